#!/bin/sh
# Plays the scenarios against clients that are wrong in one way each, and fails if none notices one of them.
# Usage: run.sh VENV, an environment that `check.sh` has made. FENCE_TEST_CONFORMANCE names the program that judges clients.
set -eu
: "${FENCE_TEST_CONFORMANCE:?names the program that judges clients}"
driver=$(cd "$(dirname "$0")" && pwd)/driver.py
python=$(cd "$1" && pwd)/bin/python
# The sources of the wrong client are made there.
TMPDIR=$(mktemp -d)
export TMPDIR
trap 'rm -rf "$TMPDIR"' EXIT
names=$("$python" "$driver" --names)
# Only those names: by itself it also wants each scenario to notice one, and others may be added before there is a patch.
"$FENCE_TEST_CONFORMANCE" mutants --driver "$python $driver" --mutant "$names"
