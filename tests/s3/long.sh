#!/bin/sh
# All clients of S3, those too that are too large or too slow for every change: about ten minutes. Installs them first.
set -eu
cd "$(dirname "$0")/../.."

missing=
for program in rclone s3cmd restic; do
    command -v "$program" >/dev/null || missing="$missing $program"
done
if [ -n "$missing" ]; then
    as_root=
    [ "$(id -u)" -eq 0 ] || as_root=sudo
    $as_root apt-get update -q
    # shellcheck disable=SC2086 # one word for each package
    $as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends $missing
fi
for tools in light long; do
    tests/s3/install.sh "$tools" "${CARGO_TARGET_DIR:-target}/tools/s3"
done
cargo build --locked -p fencegate -p fencegate-cli
cargo clippy --locked -p fence-tests --features long --all-targets -- -D warnings
cargo test --locked -p fence-tests --features long --test it -- s3:: --test-threads "${FENCE_TEST_THREADS:-4}"
