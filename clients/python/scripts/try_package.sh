#!/bin/sh
# Builds the sdist, and the wheel from it; installs the wheel into an empty environment, uses it from there, and looks
# whether all that it shows has types.
# Usage: try_package.sh PYTHON, which has `build`, `hatchling` and `pyright`. FENCE_TEST_GATEWAY names the gateway.
set -eu
python=$1
home=$(cd "$(dirname "$0")/.." && pwd)
made=$(mktemp -d)
trap 'rm -rf "$made"' EXIT

"$python" -m build --no-isolation --outdir "$made/dist" "$home" >"$made/log" || { cat "$made/log"; exit 1; }
"$python" -m venv "$made/empty"
"$made/empty/bin/pip" install --quiet --disable-pip-version-check "$made"/dist/fencegate-*.whl
# Not in the folder of the sources, which would be found first.
cp "$home/tests/smoke.py" "$made/smoke.py"
cd "$made"
"$made/empty/bin/python" -I "$made/smoke.py"
PATH=$made/empty/bin:$PATH "$python" -m pyright --verifytypes fencegate --ignoreexternal >types || { cat types; exit 1; }
grep 'completeness' types
