#!/bin/sh
# Checks and tests the Python client: what continuous integration calls.
# Usage: check.sh VENV, the folder of the environment, which is made if it is not there. FENCE_TEST_GATEWAY names the
# program `fencegate`, and FENCE_TEST_CONFORMANCE the program `fencegate-conformance`.
set -eu
: "${FENCE_TEST_GATEWAY:?names the gateway to test with}"
: "${FENCE_TEST_CONFORMANCE:?names the program that judges clients}"
mkdir -p "$1"
venv=$(cd "$1" && pwd)
cd "$(dirname "$0")"

say() { printf '\n==> python: %s\n' "$*"; }

say 'environment'
[ -x "$venv/bin/python" ] || python3 -m venv "$venv"
python=$venv/bin/python
if ! cmp -s tests/requirements.txt "$venv/requirements.txt"; then
    "$python" -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes --requirement tests/requirements.txt
    cp tests/requirements.txt "$venv/requirements.txt"
fi
"$python" -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .

say 'generator: _sync is made of _async'
"$python" scripts/unasync.py --check

say 'lints: ruff'
"$python" -m ruff check --quiet .
"$python" -m ruff format --quiet --check .

say 'types: pyright'
"$python" -m pyright --pythonpath "$python"

# Tests and scenarios wait more than they compute: more are under way than there are cores.
say 'tests: pytest'
"$python" -m pytest --quiet --numprocesses 4

say 'package'
scripts/try_package.sh "$python"

say 'scenarios'
"$FENCE_TEST_CONFORMANCE" run --jobs 4 --driver "$python -m fencegate.testing.driver"
