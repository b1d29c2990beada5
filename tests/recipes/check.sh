#!/bin/sh
# Holds the manifests of `clients/recipes` against the schemas of Kubernetes. `check.sh VENV` keeps the tool for that in this
# folder.
set -eu
cd "$(dirname "$0")"
venv=$1
if ! cmp -s requirements.txt "$venv/requirements.txt"; then
    rm -rf "$venv"
    python3 -m venv "$venv"
    "$venv/bin/pip" install --quiet --disable-pip-version-check --no-deps --require-hashes --requirement requirements.txt
    cp requirements.txt "$venv/requirements.txt"
fi
# A wrong one is noticed: the check itself is checked.
wrong=$(mktemp)
trap 'rm -f "$wrong"' EXIT
sed 's/schedule:/shedule:/' ../../clients/recipes/jobs/cronjob.yaml >"$wrong"
if "$venv/bin/kubernetes-validate" --strict "$wrong" >/dev/null 2>&1; then
    echo "a manifest with a misspelt field passes"
    exit 1
fi
"$venv/bin/kubernetes-validate" --strict ../../clients/recipes/*.yaml ../../clients/recipes/jobs/*.yaml
