#!/bin/sh
# Checks the page of operators as CI does: its types, and what it does in a real browser. Needs `FENCE_TEST_GATEWAY`, the path
# of `fencegate`; `FENCE_TEST_FENCE`, that of `fence`, unless it is beside; and Chromium. `check.sh CACHE` keeps what npm fetches in that folder.
set -eu
cd "$(dirname "$0")"
: "${FENCE_TEST_GATEWAY:?the path of fencegate}"
FENCE_TEST_FENCE=${FENCE_TEST_FENCE:-$(dirname "$FENCE_TEST_GATEWAY")/fence}
export FENCE_TEST_FENCE
[ -x "$FENCE_TEST_FENCE" ] || { echo "check.sh: no $FENCE_TEST_FENCE: build fencegate-cli, or set FENCE_TEST_FENCE" >&2; exit 1; }
if [ $# -gt 0 ]; then
    mkdir -p "$1"
    npm_config_cache="$(cd "$1" && pwd)"
    export npm_config_cache
fi
export npm_config_fund=false npm_config_audit=false npm_config_update_notifier=false

step() { printf '\n== %s\n' "$*"; }

step "packages"
npm ci --silent
step "types"
npx tsc -p tsconfig.json
step "format"
npx prettier --check --log-level warn --print-width 120 --embedded-language-formatting off . ../ports.mjs '../../gateway/ui/*.{js,css,html}' '../../gateway/ui/{jobs,parts,views}/*.js'
step "tests"
node --test --test-concurrency=2 --test-reporter=spec tests/*.test.mjs
