#!/bin/sh
# Checks this library as CI does. Needs `FENCE_TEST_GATEWAY` and `FENCE_TEST_CONFORMANCE`, the paths of `fencegate` and
# `fencegate-conformance`, and Chromium. `check.sh CACHE` keeps what npm fetches in that folder.
set -eu
cd "$(dirname "$0")"
: "${FENCE_TEST_GATEWAY:?the path of fencegate}" "${FENCE_TEST_CONFORMANCE:?the path of fencegate-conformance}"
if [ $# -gt 0 ]; then
  mkdir -p "$1"
  npm_config_cache="$(cd "$1" && pwd)"
  export npm_config_cache
fi
export npm_config_fund=false npm_config_audit=false npm_config_update_notifier=false

step() { printf '\n== %s\n' "$*"; }

step "packages"
npm ci --silent
npm ci --silent --prefix tools

step "build"
rm -rf dist build
npx tsc -p tsconfig.json
npx tsc -p tsconfig.tests.json

step "format"
npx prettier --check --log-level warn .

step "generated types are those of openapi.yaml"
(cd tools && npx openapi-typescript --check ../../../openapi.yaml -o ../tests/generated/openapi.d.ts)

step "wrong clients fit the sources"
node tests/wrong/build.mjs

step "tests"
# They wait more than they compute: more files are under way than there are cores.
node --expose-gc --test --test-concurrency=4 --test-reporter=spec build/tests/*/*.test.js

step "the package, installed into an empty folder; its size; Node 18.18"
node tests/package/trial.mjs

step "conformance"
"$FENCE_TEST_CONFORMANCE" run --jobs 4 --driver "node dist/testing/driver.js" > build/scenarios.txt || {
  grep -v '^pass' build/scenarios.txt
  exit 1
}
tail -n 1 build/scenarios.txt
