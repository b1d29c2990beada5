"""A real Prometheus looks at real gateways under load, with the rules and alerts as they are; then every expression of every
board is asked, and must find something.

Two gateways: one on an embedded ledger, with S3 and an upstream; one on Postgres and etcd, with TLS and rules of access,
whose etcd is wiped and whose Postgres is restored and promoted meanwhile."""

import json
import math
import os
import re
import signal
import ssl
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import urlencode

import workload
from exprs import FOLDER, NAME, Asked, all_asked, boards
from servers import FENCE, GATEWAY, HANGS_S, Etcd, Failed, Postgres, Program, Small, call, eventually, reserved_port

EXPECTED_EMPTY = Path(__file__).with_name("expected-empty.txt")
# What callers did to the gateways must also have raised these, by real disasters and not by made-up numbers.
FIRED = ["FencegateRefenced", "FencegateEpochSwitched", "FencegateBlobMissing", "FencegateBlobDamaged"]

# What must have been so, though not for as long as it takes to fire.
PENDING = ["FencegateNotReady", "FencegateHoldersFencedOff", "FencegateJobFailing", "FencegateJobLost"]
# What the S3 keys of the embedded gateway are derived from.
S3_ROOT = bytes(range(32))
# A metric with what is asked of its labels.
SELECTOR = re.compile(r"\w+\{[^}]*\}")


def say(what: str) -> None:
    print(f"   {what}", flush=True)


def exporter(address: tuple[str, int], home: Path) -> tuple[Program, tuple[str, int]]:
    """What tells Prometheus of jobs."""
    port = reserved_port()
    args = [FENCE, f"--url=http://{address[0]}:{address[1]}", "job", "exporter", f"--listen=127.0.0.1:{port}"]
    return Program("exporter", args, home), ("127.0.0.1", port)


def certificates(home: Path) -> Path:
    """An authority with a list of what it has revoked, and a certificate of the gateway."""
    files = home / "tls"
    files.mkdir()
    (files / "index.txt").touch()
    (files / "openssl.cnf").write_text(
        "[ca]\ndefault_ca = here\n[here]\ndatabase = index.txt\ndefault_md = sha256\ndefault_crl_days = 30\n"
        "crl_extensions = list\ncrlnumber = number\n[list]\nauthorityKeyIdentifier = keyid:always\n"
    )
    (files / "number").write_text("01\n")
    new = "-nodes -newkey ec -pkeyopt ec_paramgen_curve:P-256"
    authority = f"-x509 {new} -keyout ca.key -out ca.crt -days 90 -subj /CN=authority"
    asked = f"{new} -keyout tls.key -out tls.csr -subj /CN=gateway"
    (files / "names").write_text("subjectAltName = IP:127.0.0.1\n")
    for command in [
        f"req {authority}",
        f"req {asked}",
        "x509 -req -in tls.csr -CA ca.crt -CAkey ca.key -CAcreateserial -out tls.crt -days 60 -extfile names",
        "ca -config openssl.cnf -gencrl -keyfile ca.key -cert ca.crt -out ca.crl",
    ]:
        subprocess.run(["openssl", *command.split()], cwd=files, check=True, capture_output=True)
    return files


def embedded(home: Path, small: Small) -> tuple[Program, tuple[str, int]]:
    """A gateway on an embedded ledger, that removes at once what it would keep for hours."""
    port = reserved_port()
    args = [
        GATEWAY,
        "serve",
        f"--data-dir={home}/data",
        f"--listen=127.0.0.1:{port}",
        f"--s3-listen=127.0.0.1:{reserved_port()}",
    ]
    args += ["--metrics-prefix=table:"]
    args += [
        f"--upstream=name=crm,url={small.url},resource=/customers/{{resource}},resource_form=digits,guarantee=drained"
    ]
    env = {"INLINE_BYTES_MAX": "1024", "SWEEP_INTERVAL": "1s", "ROLLBACK_HORIZON": "0s", "READER_GRACE": "0s"}
    env |= {"REDELETE_AFTER": "1s", "UPLOAD_TIMEOUT": "5s", "UPLOADS_KEPT": "6s", "S3_ROOT": S3_ROOT.hex()}
    env = {f"FENCEGATE_{name}": value for name, value in env.items()} | {"FENCEGATE_KEYS_KEPT": "1m"}
    return Program("embedded", args, home, env), ("127.0.0.1", port)


def clustered(home: Path, files: Path, postgres: Postgres, etcd: Etcd, small: Small) -> tuple[Program, tuple[str, int]]:
    """A gateway on Postgres and etcd, with TLS, and a witness of the audit that says no."""
    port = reserved_port()
    key = home / "audit.key"
    subprocess.run([GATEWAY, "audit", "new-key", str(key)], check=True, capture_output=True)
    args = [GATEWAY, "serve", f"--postgres={postgres.url}", f"--etcd=127.0.0.1:{etcd.port}", "--failover=lossless"]
    args += [f"--listen=127.0.0.1:{port}", f"--tls-cert-file={files}/tls.crt", f"--tls-key-file={files}/tls.key"]
    args += [f"--tls-client-ca-file={files}/ca.crt", f"--tls-client-crl-file={files}/ca.crl", f"--audit-key-file={key}"]
    args += [f"--audit-witness={small.url}/witness", f"--blobs=file://{home}/store", "--metrics-prefix=table:"]
    return Program("clustered", args, home, {"FENCEGATE_SWEEP_INTERVAL": "1s"}), ("127.0.0.1", port)


def put_rules_in_force(home: Path, gateway: Program) -> dict[str, str]:
    """Rules for each role of the workload; returns the keys by role."""
    keys, text = {}, workload.RULES
    for role in ["worker", "slow", "prometheus", "admin"]:
        keys[role], principal = workload.key_of(role)
        text += principal
    file = home / "access.toml"
    file.write_text(text)
    ledger = [
        arg for arg in gateway.args if arg.startswith(("--postgres", "--etcd", "--failover", "--audit-key", "--blobs"))
    ]
    command = [GATEWAY, "access", "apply", str(file), "--reason", "the test", *ledger]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Failed(f"the rules are not in force: {done.stderr}")
    return keys


def drill(address: tuple[str, int], home: Path) -> Path:
    """A drill that leaves what came of it."""
    file = home / "drill.prom"
    command = [
        GATEWAY,
        "drill",
        f"http://{address[0]}:{address[1]}",
        "--resource",
        "canary:fence",
        "--textfile",
        str(file),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Failed(f"the drill: {done.stdout}{done.stderr}")
    return file


def wait_for(name: str, program: Program, probe: object) -> None:
    def alive() -> object:
        if program.process is None or program.process.poll() is not None:
            # Not Failed: there is nothing left to wait for.
            raise RuntimeError(f"{name} has ended: {program.tail()}")
        return probe()  # type: ignore[operator]

    eventually(f"{name} answers", alive)


class Prometheus:
    """A Prometheus with the rules and alerts of the folder, which scrapes each second."""

    def __init__(self, home: Path, targets: list[dict]):
        self.address = ("127.0.0.1", reserved_port())
        folder = FOLDER / "prometheus"
        config = {
            "global": {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"},
            "rule_files": [str(folder / "rules.yaml"), str(folder / "alerts.yaml")],
            "scrape_configs": targets,
        }
        file = home / "prometheus.yml"
        # JSON is YAML.
        file.write_text(json.dumps(config))
        args = ["prometheus", f"--config.file={file}", f"--storage.tsdb.path={home}/prometheus"]
        args += [f"--web.listen-address=127.0.0.1:{self.address[1]}", "--log.level=warn"]
        self.program = Program("prometheus", args, home)

    def api(self, path: str, **query: object) -> dict | list:
        answer = call(self.address, "GET", f"/api/v1/{path}?{urlencode(query, doseq=True)}")
        told = json.loads(answer.body)
        if told["status"] != "success":
            raise Failed(f"{path} {query}: {told.get('error')}")
        return told["data"]

    def has(self, asked: Asked, expr: str, begin: float, end: float) -> bool:
        """Whether it finds a number."""
        if asked.instant:
            found = [[one["value"]] for one in self.api("query", query=expr, time=end)["result"]]
        else:
            result = self.api("query_range", query=expr, start=begin, end=end, step="1s")["result"]
            found = [one["values"] for one in result]
        return any(math.isfinite(float(value)) for values in found for _, value in values)

    def values_of(self, query: str, known: dict[str, str], begin: float, end: float) -> list[str]:
        """What Grafana finds for a variable."""
        metric, label = re.fullmatch(r"label_values\((.*), (\w+)\)", query).groups()  # type: ignore[union-attr]
        return self.api(f"label/{label}/values", **{"match[]": filled(metric, known), "start": begin, "end": end})  # type: ignore[return-value]


def filled(expr: str, variables: dict[str, str]) -> str:
    return re.sub(r"\$(\w+)", lambda found: variables[found[1]], expr)


def targets(
    one: tuple[str, int], other: tuple[str, int], jobs: tuple[str, int], files: Path, key: str, small: Small
) -> list[dict]:
    def at(address: tuple[str, int], job: str = "fencegate") -> list[dict]:
        return [{"targets": [f"{address[0]}:{address[1]}"], "labels": {"job": job}}]

    tls = {"scheme": "https", "tls_config": {"ca_file": str(files / "ca.crt")}, "authorization": {"credentials": key}}
    return [
        {"job_name": "embedded", "static_configs": at(one)},
        {"job_name": "clustered", "static_configs": at(other), **tls},
        {"job_name": "fence-jobs", "static_configs": at(jobs, "fence-jobs")},
        {"job_name": "node", "metrics_path": "/node", "static_configs": at(small.address, "node")},
    ]


def expected_empty() -> dict[str, str]:
    """What is allowed to be empty, and why: `BOARD / PANEL / REFID: reason`."""
    found = {}
    for line in EXPECTED_EMPTY.read_text().splitlines():
        if line and not line.startswith("#"):
            what, _, why = line.partition(": ")
            if not why.strip():
                raise Failed(f"expected-empty.txt gives no reason for {what}")
            found[what] = why
    return found


def judge(prometheus: Prometheus, begin: float) -> list[str]:
    """What is wrong with what Prometheus has."""
    wrong = []
    end = time.time()
    allowed = expected_empty()
    variables: dict[str, dict[str, str]] = {}
    for name, board in boards().items():
        known = {"__rate_interval": "10s"}
        for variable in board["templating"]["list"]:
            if variable["type"] == "query":
                found = prometheus.values_of(variable["query"]["query"], known, begin, end)
                if not found:
                    wrong.append(f"{name}: the variable {variable['name']} finds nothing")
                known[variable["name"]] = ".*"
        variables[name] = known
    empty = set()
    for asked in all_asked():
        board = asked.where.partition(" / ")[0]
        if asked.where.startswith("alert "):
            continue
        if asked.where.startswith("rule "):
            asked = Asked(asked.where, asked.where.removeprefix("rule "), is_panel=False)
        expr = filled(asked.expr, variables.get(board, {}))
        try:
            if not prometheus.has(asked, expr, begin, end):
                empty.add(asked.where)
        except Failed as error:
            wrong.append(f"{asked.where}: {error}")
    wrong += [f"{where} finds nothing" for where in sorted(empty - allowed.keys())]
    wrong += [f"expected-empty.txt: {where} is not empty, or is no more" for where in sorted(allowed.keys() - empty)]

    # What an alert looks for must be there, although it is no reason to fire: a wrong label would be silent for ever.
    for asked in all_asked():
        selectors = SELECTOR.findall(asked.expr) if asked.where.startswith("alert ") else []
        for selector in selectors:
            if not prometheus.api("series", **{"match[]": selector, "start": begin, "end": end}):
                wrong.append(f"{asked.where}: nothing is a {selector}")

    names = prometheus.api("label/__name__/values", start=begin, end=end)
    exported = {found[1] for name in names if (found := NAME.fullmatch(name))}
    named = {name for asked in all_asked() for name in asked.metrics()}
    shown = {name for asked in all_asked() if asked.is_panel for name in asked.metrics()}
    wrong += [f"{name} is named and not exported" for name in sorted(named - exported - allowed.keys())]
    wrong += [f"{name} is exported and on no panel" for name in sorted(exported - shown)]
    say(f"{len(all_asked())} expressions, {len(empty)} empty; {len(exported)} metrics exported, {len(shown)} shown")

    for group in prometheus.api("rules")["groups"]:
        wrong += [f"{rule['name']}: {rule.get('lastError')}" for rule in group["rules"] if rule["health"] != "ok"]
    result = prometheus.api("query_range", query="ALERTS", start=begin, end=end, step="1s")["result"]
    in_state: dict[str, set[str]] = {"firing": set(), "pending": set()}
    for one in result:
        in_state[one["metric"]["alertstate"]].add(one["metric"]["alertname"])
    for state, found in in_state.items():
        say(f"{state}: {', '.join(sorted(found))}")
    wrong += [f"{name} did not fire" for name in FIRED if name not in in_state["firing"]]
    wrong += [f"{name} was not so for a moment" for name in PENDING if name not in in_state["pending"]]
    return wrong


def main(stack: ExitStack) -> list[str]:
    home = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="fencegate-observability-")))
    # Postgres runs as a user of its own, who has to get through to its folder.
    home.chmod(0o755)
    small = stack.enter_context(Small().running())
    postgres, etcd = Postgres(home), Etcd(home)
    for server in [postgres, etcd]:
        stack.callback(server.program.stop)
        server.start()
    files = certificates(home)
    one, at_one = embedded(home, small)
    other, at_other = clustered(home, files, postgres, etcd, small)
    for gateway in [one, other]:
        stack.enter_context(gateway.running())
    tls = ssl.create_default_context(cafile=str(files / "ca.crt"))
    wait_for("the embedded gateway", one, lambda: call(at_one, "GET", "/readyz").must(200))
    wait_for("the gateway on Postgres", other, lambda: call(at_other, "GET", "/readyz", tls=tls).must(200))
    keys = put_rules_in_force(home, other)

    textfile = drill(at_one, home)
    small.pages["/node"] = textfile.read_text
    jobs, at_jobs = exporter(at_one, home)
    stack.enter_context(jobs.running())
    wait_for("the exporter of jobs", jobs, lambda: call(at_jobs, "GET", "/metrics").must(200))
    prometheus = Prometheus(home, targets(at_one, at_other, at_jobs, files, keys["prometheus"], small))
    stack.enter_context(prometheus.program.running())
    begin = time.time()
    wait_for("Prometheus", prometheus.program, lambda: call(prometheus.address, "GET", "/-/ready").must(200))
    up = eventually("all targets are up", lambda: prometheus.api("query", query="count(up == 1) == 4")["result"])
    say(f"{up[0]['value'][1]} targets are up")

    def seen(metric: str) -> object:
        return prometheus.api("query", query=f"{metric} > 0")["result"]

    def scraped() -> None:
        """Waits until Prometheus has looked at both gateways once more."""
        now = time.time()
        query = 'timestamp(up{job="fencegate"}) and up{job="fencegate"} == 1'

        def both_since() -> bool:
            times = [float(one["value"][1]) for one in prometheus.api("query", query=query)["result"]]
            return len(times) == 2 and min(times) > now

        eventually("a scrape", both_since)

    callers = {role: workload.Caller(at_other, tls, key) for role, key in keys.items()}
    stranger = workload.Caller(at_other, tls, workload.key_of("nobody")[0])
    here = workload.Caller(at_one)
    idle = workload.connection_without_a_request(here)
    stack.callback(idle.close)
    for what, do in [
        ("locks and writes", lambda: workload.locks_and_writes(here, seen)),
        ("a deaf caller", lambda: workload.deaf(here)),
        ("blobs", lambda: workload.blobs(here, home / "data/blobs")),
        ("upstreams", lambda: workload.upstreams(here, small, scraped)),
        ("S3", lambda: workload.s3(here, S3_ROOT, scraped)),
        ("jobs", lambda: stack.callback(workload.jobs(at_one, home))),
        ("access", lambda: workload.access(callers["worker"], callers["slow"], stranger, files, other, seen)),
    ]:
        say(what)
        try:
            do()
        except Failed as error:
            raise Failed(f"{what}: {error}") from error

    say("disasters")
    try:
        workload.disasters(callers["worker"], stranger, postgres, etcd, seen)
    except Failed as error:
        # Its callers go on meanwhile; how the ledger fared stands between their requests.
        told = [line for line in other.log.read_text(errors="replace").splitlines() if " request: " not in line]
        raise Failed("\n".join([f"disasters: {error}", *told[-40:]])) from error
    # What the gateways do at times of their own comes in the end: the room of etcd, the sweeper, the collector.
    deadline = time.monotonic() + HANGS_S
    while (wrong := judge(prometheus, begin)) and time.monotonic() < deadline:
        say(f"{len(wrong)} wrong yet: {wrong[0]}")
        time.sleep(5)
    return wrong


if __name__ == "__main__":
    if not GATEWAY or not FENCE:
        sys.exit("FENCE_TEST_GATEWAY and FENCE_TEST_FENCE: the paths of fencegate and fence")
    os.environ["no_proxy"] = "*"
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    with ExitStack() as servers:
        try:
            found = main(servers)
        except Failed as error:
            found = [str(error)]
    for line in found:
        print(f"wrong: {line}", file=sys.stderr)
    sys.exit(1 if found else 0)
