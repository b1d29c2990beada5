#!/bin/sh
# Installs what the tests need, then runs all checks and tests: the one command for a fresh clone
# and for continuous integration. Runs as root, or as a user who may use sudo.
set -eu
cd "$(dirname "$0")/.."

say() { printf '\n==> %s\n' "$*"; }

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
zsh:zsh fish:fish mandoc:mandoc flock:util-linux script:bsdutils chromium:chromium'

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

# Object stores that the tests start: an S3 server on files, and Azurite.
tools=${CARGO_TARGET_DIR:-target}/tools
s3s=0.14.1
azurite=3.35.0
case $("$tools/bin/s3s-fs" --version 2>/dev/null) in
*" $s3s") ;;
*)
    say "tools: s3s-fs $s3s"
    cargo install --quiet --locked --root "$tools" --version "$s3s" --features binary s3s-fs
    ;;
esac
if ! grep -q "\"version\": \"$azurite\"" "$tools/node_modules/azurite/package.json" 2>/dev/null; then
    say "tools: azurite $azurite"
    npm install --prefix "$tools" --no-save --no-audit --no-fund --loglevel=error "azurite@$azurite"
fi

# A tester of OpenAPI documents, with all that it needs in the versions that are listed.
wanted=tests/openapi/requirements.txt
if ! cmp -s "$wanted" "$tools/openapi/requirements.txt"; then
    say 'tools: schemathesis'
    rm -rf "$tools/openapi"
    python3 -m venv "$tools/openapi"
    "$tools/openapi/bin/pip" install --quiet --disable-pip-version-check --no-deps --requirement "$wanted"
    cp "$wanted" "$tools/openapi/requirements.txt"
fi

say 'layout: cargo fmt'
cargo fmt --all --check

say 'lints: cargo clippy'
cargo clippy --workspace --all-targets --locked -- -D warnings

say 'build: cargo build -p fencegate, -p fencegate-cli'
cargo build --locked -p fencegate
cargo build --locked -p fencegate-cli
# The examples of the client's documentation run against it.
FENCE_TEST_GATEWAY=$(cd "${CARGO_TARGET_DIR:-target}" && pwd)/debug/fencegate
export FENCE_TEST_GATEWAY

# The tests wait for servers more than they compute, so a few run at a time on few cores.
threads=${FENCE_TEST_THREADS:-4}
say "tests: cargo test, $threads at a time"
cargo test --workspace --locked --no-fail-fast -- --test-threads "$threads"

cargo build --locked -p fencegate-conformance --bins
FENCE_TEST_CONFORMANCE=$(cd "${CARGO_TARGET_DIR:-target}" && pwd)/debug/fencegate-conformance
export FENCE_TEST_CONFORMANCE
say 'clients: Python'
./clients/python/check.sh "$(cd "$tools" && pwd)/python"
say 'clients: TypeScript'
./clients/typescript/check.sh "$(cd "$tools" && pwd)/typescript"

say 'chaos: fence-chaos run, 3 minutes'
cargo build --locked -p fence-chaos
"${CARGO_TARGET_DIR:-target}/debug/fence-chaos" run --minutes 3 --out "${CARGO_TARGET_DIR:-target}/chaos"

say 'chaos with the Python client, and with that for Node: fence-chaos run, a minute each'
"${CARGO_TARGET_DIR:-target}/debug/fence-chaos" run --minutes 1 --out "${CARGO_TARGET_DIR:-target}/chaos-python" \
    --client "$(cd "$tools" && pwd)/python/bin/python -m fencegate.testing.driver"
"${CARGO_TARGET_DIR:-target}/debug/fence-chaos" run --minutes 1 --out "${CARGO_TARGET_DIR:-target}/chaos-node" \
    --client 'node clients/typescript/dist/testing/driver.js'

say 'schedules: fence-chaos schedules, 2 minutes'
"${CARGO_TARGET_DIR:-target}/debug/fence-chaos" schedules --minutes 2 --out "${CARGO_TARGET_DIR:-target}/schedules"

say 'speed: fence-bench, the short form, beside what was recorded'
cargo build --release --locked -p fencegate -p fence-bench
"${CARGO_TARGET_DIR:-target}/release/fence-bench" --short --against tests/bench/recorded.json \
    --out "${CARGO_TARGET_DIR:-target}/bench"

say 'all checks and tests have passed'
