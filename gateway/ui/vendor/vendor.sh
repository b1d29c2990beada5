#!/bin/sh
# Fetches what others wrote from npm into this folder: the versions that are named here, with names that a browser
# resolves by itself. Run it to take newer ones; then the tests say whether SHA256SUMS has what is here.
set -eu
cd "$(dirname "$0")"
preact=11.2.0
htm=3.1.1

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
npm pack --silent --pack-destination "$work" "preact@$preact" "htm@$htm" >/dev/null
for name in "preact-$preact" "htm-$htm"; do
    mkdir "$work/$name"
    tar -xzf "$work/$name.tgz" -C "$work/$name" --strip-components 1
done
# Without the line that names a map: a browser would ask for it.
plain() { sed -e '/^\/\/# sourceMappingURL=/d' -e 's#from"preact"#from"./preact.js"#g' "$1"; }
plain "$work/preact-$preact/dist/preact.mjs" >preact.js
plain "$work/preact-$preact/hooks/dist/hooks.mjs" >hooks.js
plain "$work/htm-$htm/dist/htm.mjs" >htm.js
{
    printf 'preact.js and hooks.js are Preact %s (https://preactjs.com):\n\n' "$preact"
    cat "$work/preact-$preact/LICENSE"
    printf '\n\nhtm.js is htm %s (https://github.com/developit/htm):\n\n' "$htm"
    cat "$work/htm-$htm/LICENSE"
} >LICENSES.txt
sha256sum -- LICENSES.txt hooks.js htm.js preact.js >SHA256SUMS
