#!/bin/sh
# What takes too long for every change: 1,000 waits for a lock in each program, wrong Python and TypeScript clients, each of
# which a scenario must catch, and 20 minutes of chaos with each client. Wants what `tests/run.sh` has installed. Takes more than an hour.
set -eu
cd "$(dirname "$0")/.."

say() { printf '\n==> %s\n' "$*"; }

target=$(cd "${CARGO_TARGET_DIR:-target}" && pwd)
minutes=${FENCE_TEST_CHAOS_MINUTES:-20}
cargo build --locked -p fencegate -p fence-chaos -p fencegate-conformance --bins
FENCE_TEST_GATEWAY=$target/debug/fencegate
FENCE_TEST_CONFORMANCE=$target/debug/fencegate-conformance
export FENCE_TEST_GATEWAY FENCE_TEST_CONFORMANCE

for driver in "$target/debug/rust-driver" "$target/tools/python/bin/python -m fencegate.testing.driver" \
    'node clients/typescript/dist/testing/driver.js'; do
    say "waits of any length: $driver"
    FENCE_TEST_LONG=1 "$FENCE_TEST_CONFORMANCE" run --driver "$driver" --only any-wait
done
say 'wrong clients: Python'
clients/python/tests/wrong/run.sh "$target/tools/python"
say 'wrong clients: TypeScript'
(cd clients/typescript && npx tsc -p tsconfig.json && node tests/wrong/build.mjs)
"$FENCE_TEST_CONFORMANCE" mutants --driver 'node clients/typescript/build/wrong/dist/testing/driver.js'

python="$target/tools/python/bin/python -m fencegate.testing.driver"
say "chaos: Python on asyncio, $minutes minutes"
"$target/debug/fence-chaos" run --minutes "$minutes" --out "$target/chaos-python" --client "$python"
say "chaos: Python with threads, $minutes minutes"
"$target/debug/fence-chaos" run --minutes "$minutes" --out "$target/chaos-python-threads" --client "$python --sync"
say "chaos: Node, $minutes minutes"
"$target/debug/fence-chaos" run --minutes "$minutes" --out "$target/chaos-node" \
    --client 'node clients/typescript/dist/testing/driver.js'
