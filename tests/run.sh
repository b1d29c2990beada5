#!/bin/sh
# Installs what the tests need, then runs all checks and tests: the one command for a fresh clone
# and for continuous integration. Runs as root, or as a user who may use sudo.
set -eu
cd "$(dirname "$0")/.."

began_s=$(date +%s)
say() {
    passed_s=$(($(date +%s) - began_s))
    printf '\n==> %d:%02d %s\n' "$((passed_s / 60))" "$((passed_s % 60))" "$*"
}

# Debian keeps the servers of Postgres and nginx, and PgBouncer, in directories that are not on every PATH.
has() {
    case $1 in
    initdb) ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1 || command -v initdb >/dev/null ;;
    nginx | pgbouncer) [ -x "/usr/sbin/$1" ] || command -v "$1" >/dev/null ;;
    # protoc reads its own types from this file, which is a package of its own.
    libfaketime) ls /usr/lib/*/faketime/libfaketime.so.1 >/dev/null 2>&1 ;;
    # 3.11 or newer. Debian's python3 knows the module, but cannot make an environment without this package.
    venv) python3 -c 'import ensurepip, tomllib, venv' 2>/dev/null ;;
    descriptor.proto) [ -f "$(dirname "$(command -v protoc)")/../include/google/protobuf/$1" ] ;;
    *) command -v "$1" >/dev/null ;;
    esac
}

# What is needed: a program, and the package that brings it on Debian and Ubuntu.
needs='cc:build-essential protoc:protobuf-compiler descriptor.proto:libprotobuf-dev
openssl:openssl etcd:etcd-server etcdctl:etcd-client initdb:postgresql nginx:nginx pgbouncer:pgbouncer
redis-server:redis-server setpriv:util-linux node:nodejs npm:npm
libfaketime:libfaketime python3:python3 venv:python3-venv
zsh:zsh fish:fish mandoc:mandoc flock:util-linux script:bsdutils chromium:chromium
prometheus:prometheus promtool:prometheus jsonnet:jsonnet'

missing() {
    for need in $needs; do
        has "${need%%:*}" || printf '%s ' "${need##*:}"
    done
}

packages=$(missing)
if [ -n "$packages" ]; then
    say "missing: $packages"
    as_root=
    [ "$(id -u)" -eq 0 ] || as_root=sudo
    if ! command -v apt-get >/dev/null || { [ -n "$as_root" ] && ! command -v sudo >/dev/null; }; then
        echo "Install these packages of Debian or Ubuntu, or what brings the same programs:"
        echo "  $packages"
        exit 1
    fi
    $as_root apt-get update -q
    # Only the programs are needed: the tests start their own servers, on free ports.
    # shellcheck disable=SC2086 # one word for each package
    $as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends $packages
    packages=$(missing)
    if [ -n "$packages" ]; then
        echo "Still missing after the installation: $packages"
        exit 1
    fi
fi

if ! command -v cargo >/dev/null; then
    [ ! -x "$HOME/.cargo/bin/cargo" ] || PATH="$HOME/.cargo/bin:$PATH"
    command -v cargo >/dev/null || { echo "Rust is missing: see https://rustup.rs"; exit 1; }
fi

target=${CARGO_TARGET_DIR:-target}
mkdir -p "$target/tools"
target=$(cd "$target" && pwd)
tools=$target/tools

# What the tests need beside packages is installed while the first crates are compiled.
tests/tools.sh "$tools" >"$tools/log" 2>&1 &
installing=$!
trap 'kill "$installing" 2>/dev/null || true' EXIT

say 'layout: cargo fmt'
cargo fmt --all --check

say 'lints: cargo clippy'
cargo clippy --workspace --all-targets --locked -- -D warnings
# The gateway without what exports spans.
cargo clippy -p fencegate --no-default-features --locked -- -D warnings

say 'build: the tests, and the programs that only tests use'
cargo build --workspace --tests --bin fence-chaos --locked
# As they are shipped: without the mistakes and the clock that the tests have.
say 'build: fencegate and fence'
cargo build -p fencegate -p fencegate-cli --locked
# The tests, and the examples of the client's documentation, run these.
FENCE_TEST_GATEWAY=$target/debug/fencegate
FENCE_TEST_FENCE=$target/debug/fence
FENCE_TEST_CONFORMANCE=$target/debug/fencegate-conformance
export FENCE_TEST_GATEWAY FENCE_TEST_FENCE FENCE_TEST_CONFORMANCE

say 'tools: S3 servers and clients, Azurite, schemathesis: waiting until they are installed'
wait "$installing" || { cat "$tools/log"; exit 1; }
trap - EXIT

# The tests wait for servers more than they compute, so a few run at a time on few cores.
threads=${FENCE_TEST_THREADS:-4}
say "tests: cargo test, $threads at a time"
cargo test --workspace --locked --no-fail-fast -- --test-threads "$threads"

say 'clients: Python'
./clients/python/check.sh "$tools/python"
say 'recipes: kubernetes-validate'
./tests/recipes/check.sh "$tools/recipes"
say 'clients of S3: ruff'
"$tools/python/bin/python" -m ruff check --quiet tests/s3
"$tools/python/bin/python" -m ruff format --quiet --check tests/s3
say 'clients: TypeScript'
./clients/typescript/check.sh "$tools/typescript"

say 'the page of operators'
./tests/ui/check.sh "$tools/ui"

say 'boards and alerts'
./tests/observability/check.sh "$tools/observability"

say 'chaos: fence-chaos run, 3 minutes'
"$target/debug/fence-chaos" run --minutes 3 --out "$target/chaos"

say 'chaos with the Python client, and with that for Node: fence-chaos run, a minute each'
"$target/debug/fence-chaos" run --minutes 1 --out "$target/chaos-python" \
    --client "$tools/python/bin/python -m fencegate.testing.driver"
"$target/debug/fence-chaos" run --minutes 1 --out "$target/chaos-node" \
    --client 'node clients/typescript/dist/testing/driver.js'

say 'schedules: fence-chaos schedules, 2 minutes'
"$target/debug/fence-chaos" schedules --minutes 2 --out "$target/schedules"

say 'all checks and tests have passed'
