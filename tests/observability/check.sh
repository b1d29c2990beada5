#!/bin/sh
# Checks the boards and alerts of deploy/observability as CI does: the rules by promtool, the files by themselves, and all of it by a
# real Prometheus that looks at real gateways under load.
# Usage: check.sh FOLDER, where the Python environment is made if it is not there. FENCE_TEST_GATEWAY names the program `fencegate`,
# and FENCE_TEST_FENCE the program `fence`.
# Prometheus, promtool, jsonnet, etcd and openssl are on the PATH; Postgres is where Debian has it.
set -eu
: "${FENCE_TEST_GATEWAY:?the path of fencegate}"
: "${FENCE_TEST_FENCE:?the path of fence}"
mkdir -p "${1:?the folder for the Python environment}"
tools=$(cd "$1" && pwd)
cd "$(dirname "$0")"
rules=../../deploy/observability/prometheus
# What is compiled stays out of the sources.
export PYTHONDONTWRITEBYTECODE=1

step() { printf '\n== %s\n' "$*"; }

step 'environment'
python=$tools/bin/python
if ! cmp -s requirements.txt "$tools/requirements.txt"; then
    python3 -m venv --clear "$tools"
    "$python" -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes --requirement requirements.txt
    cp requirements.txt "$tools/requirements.txt"
fi

step 'lints: ruff'
"$python" -m ruff check --quiet --no-cache . ../ports.py
"$python" -m ruff format --quiet --check --no-cache . ../ports.py

step 'rules: promtool'
promtool check rules "$rules/rules.yaml" "$rules/alerts.yaml"
promtool test rules "$rules/alerts_test.yaml"

step 'boards, alerts, mixin: the files'
"$python" static.py

step 'boards and rules: a real Prometheus'
"$python" live.py
