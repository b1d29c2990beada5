#!/bin/sh
# Checks that what is shipped is compiled from libraries with the very features that these have beside all tests. A library with others is compiled twice, and so is all that stands on it. Only our own crates may differ: what breaks the
# promise on purpose is for tests alone.
set -eu
cd "$(dirname "$0")/.."

# The libraries of a build, a line each: name, version, features. Our own crates have a path there.
libraries() {
    tree=$(cargo tree --locked --prefix none --format '{p} [{f}]' "$@")
    printf '%s\n' "$tree" | sed 's/ (\*)$//; s/ (proc-macro)//' | grep -v -e '^$' -e ' (/' | sort -u
}

tests=$(libraries --workspace --edges normal,build,dev)
twice=
compare() {
    build=$(libraries --edges normal,build "$@")
    found=$(printf '%s\n--\n%s\n' "$tests" "$build" | awk -v build="cargo build $*" '
        $0 == "--" { tests_end = NR }
        !tests_end { with[$0] = 1; features[$1, $2] = features[$1, $2] "\n    tests: " $3 }
        tests_end && NR > tests_end && !with[$0] { print $1, $2 features[$1, $2] "\n    " build ": " $3 }
    ')
    [ -z "$found" ] || twice="$twice
$found"
}
compare -p fencegate -p fencegate-cli
[ -z "$twice" ] && exit 0
echo "Compiled twice, since they have other features beside the tests; see [workspace.dependencies] in Cargo.toml:$twice"
exit 1
