#!/bin/sh
# Looks for inputs that break a property: tests/fuzz/run.sh TARGET [MINUTES], or `all` for one after the other.
# What it needs: Rust (stable will do) and a C++ compiler, for libFuzzer, which cargo fetches. Neither
# nightly nor cargo-fuzz: our own crates are compiled with what libFuzzer needs to see which code an input
# reaches, the others are not.
#
# New inputs that reach more code go to target/fuzz/TARGET. One that breaks a property goes to
# target/fuzz/broken-TARGET-*, and the script does not end with 0: mend it, and commit it to the corpus.
# `tests/fuzz/run.sh TARGET merge` adds to the committed corpus what reaches code that it does not.
set -eu
cd "$(dirname "$0")/../.."

usage() { sed -n '2,10s/^# \{0,1\}//p' tests/fuzz/run.sh; exit 2; }
targets=$(ls tests/fuzz/targets | sed 's/\.rs$//')
[ $# -ge 1 ] || usage
what=$1
minutes=${2:-1}

command -v cargo >/dev/null || { echo "not available: Rust is missing, see https://rustup.rs"; exit 2; }
command -v c++ >/dev/null || { echo "not available: a C++ compiler is missing (build-essential)"; exit 2; }
case $(rustc -vV) in
*x86_64*linux* | *aarch64*linux* | *apple-darwin*) ;;
*) echo "not available: libFuzzer runs on Linux and macOS"; exit 2 ;;
esac

# Cargo puts this before the compiler, for the crates of this workspace alone.
RUSTC_WORKSPACE_WRAPPER=$PWD/tests/fuzz/instrument.sh \
    cargo build --locked -p fence-fuzz --features libfuzzer --bins \
    --config profile.dev.package.fence-core.opt-level=1 \
    --config profile.dev.package.fencegate.opt-level=1 \
    --config profile.dev.package.fencegate-access.opt-level=1 \
    --config profile.dev.package.fencegate-s3.opt-level=1 \
    --config profile.dev.package.fence-fuzz.opt-level=1
bins=${CARGO_TARGET_DIR:-target}/debug
found=${CARGO_TARGET_DIR:-target}/fuzz

fuzz() {
    name=$1
    seeds=tests/fuzz/corpus/$name
    mkdir -p "$found/$name"
    common="-dict=tests/fuzz/words.dict -artifact_prefix=$found/broken-$name- -timeout=20 -rss_limit_mb=4096"
    if [ "$minutes" = merge ]; then
        # shellcheck disable=SC2086 # options are words
        "$bins/fuzz-$name" $common -set_cover_merge=1 -use_counters=0 -max_len=1024 "$seeds" "$found/$name"
    else
        # shellcheck disable=SC2086 # options are words
        "$bins/fuzz-$name" $common -max_total_time="$((minutes * 60))" -print_final_stats=1 \
            -max_len=4096 "$found/$name" "$seeds"
    fi
}

case $what in
all) for name in $targets; do fuzz "$name"; done ;;
*)
    echo "$targets" | grep -qx "$what" || { echo "targets: $(echo "$targets" | tr '\n' ' ')"; exit 2; }
    fuzz "$what"
    ;;
esac
