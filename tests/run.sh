#!/bin/sh
# Installs what the tests need, then runs all checks and tests: the one command for a fresh clone
# and for continuous integration. Runs as root, or as a user who may use sudo. tests/gate has what it runs.
set -eu
cd "$(dirname "$0")/.."

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
prometheus:prometheus promtool:prometheus jsonnet:jsonnet spin:spin'

missing() {
    for need in $needs; do
        has "${need%%:*}" || printf '%s ' "${need##*:}"
    done
}

packages=$(missing)
if [ -n "$packages" ]; then
    echo "Missing: $packages"
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

# Phases by name run alone: `tests/run.sh python`.
PYTHONDONTWRITEBYTECODE=1 exec python3 tests/gate/run.py "$@"
