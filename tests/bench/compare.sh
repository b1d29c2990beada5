#!/bin/sh
# Compares the gateway of this tree with one before it: compare.sh COMMIT|PATH [what else fence-bench compare takes].
# A path is that of a gateway, or of a folder as it is made here: the programs of a commit, and the rights on its tables.
# That of a commit is built once, and kept in target/compare.
set -eu
cd "$(dirname "$0")/../.."
base=${1:?a commit, or the path of a gateway}
shift
built=target/compare
mkdir -p "$built"

# What is released is optimized as a whole, which takes ten minutes more: either side goes without.
export CARGO_PROFILE_RELEASE_LTO=off CARGO_PROFILE_RELEASE_CODEGEN_UNITS=16

# All go into one folder, so that what they depend on is compiled once. From there each finds target/tools. Both
# programs at a time, of either side: features of dependencies are those that both ask for together.
build() {
    cargo build --release --locked --target-dir "$built" --manifest-path "$1/Cargo.toml" -p fencegate -p fence-bench
}

if [ ! -e "$base" ]; then
    commit=$(git rev-parse --quiet --verify "$base^{commit}") || {
        echo "$base: neither a path nor a commit"
        exit 2
    }
    base=$built/$commit
    if [ ! -d "$base" ]; then
        source=$built/source
        # What an interrupted build has left is overwritten.
        rm -rf "$source"
        git worktree add --quiet --force --detach "$source" "$commit"
        trap 'git worktree remove --force "$source"' EXIT
        build "$source"
        # Whole or not at all.
        rm -rf "$base.new"
        mkdir "$base.new"
        cp "$source/schema/postgres/roles.sql" "$built/release/fencegate" "$base.new"
        # Older ones have no filler that could be called.
        [ ! -e "$source/tests/bench/src/filler.rs" ] || cp "$built/release/fence-bench" "$base.new"
        mv "$base.new" "$base"
        git worktree remove --force "$source"
        trap - EXIT
    fi
fi

build .
echo "base: $base; new: $(git describe --always --dirty 2>/dev/null || echo 'this tree')"
exec "$built/release/fence-bench" compare --base "$base" --out "$built" "$@"
