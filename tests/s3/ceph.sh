#!/bin/sh
# Runs the tests of S3 that the makers of Ceph wrote, as they are, against a gateway. Takes ten minutes, and is no part of
# `tests/run.sh`: the tests are in no registry, only on GitHub. They are fetched at one commit, and not kept here.
#
# Usage: ceph.sh [WORDS FOR PYTEST]. FENCE_TEST_CEPH names where to fetch from, if it is not GitHub: a repository of git.
set -eu
cd "$(dirname "$0")/../.."
from=${FENCE_TEST_CEPH:-https://github.com/ceph/s3-tests}
commit=8f0ae7b404a3a2fcf7038bf1e6bf29544fe9b6a3

cargo build --locked -p fencegate
target=$(cd "${CARGO_TARGET_DIR:-target}" && pwd)
place=$target/tools/s3/ceph
mkdir -p "$place"
if ! cmp -s tests/s3/ceph/requirements.txt "$place/python/requirements.txt"; then
    rm -rf "$place/python"
    python3 -m venv "$place/python"
    "$place/python/bin/pip" install --quiet --disable-pip-version-check --no-deps --require-hashes --requirement tests/s3/ceph/requirements.txt
    cp tests/s3/ceph/requirements.txt "$place/python/requirements.txt"
fi
if [ "$(git -C "$place/s3-tests" rev-parse HEAD 2>/dev/null || true)" != "$commit" ]; then
    rm -rf "$place/s3-tests"
    git init --quiet "$place/s3-tests"
    if ! git -C "$place/s3-tests" fetch --quiet --depth 1 "$from" "$commit"; then
        rm -rf "$place/s3-tests"
        echo "The tests cannot be fetched from $from. Set FENCE_TEST_CEPH to a repository of git that has"
        echo "https://github.com/ceph/s3-tests at $commit."
        exit 1
    fi
    git -C "$place/s3-tests" checkout --quiet "$commit"
fi
exec "$place/python/bin/python" tests/s3/ceph/run.py "$target/debug/fencegate" "$place/s3-tests" "$@"
