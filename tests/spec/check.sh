#!/bin/sh
# Searches the specification. check.sh: it holds within each bound. check.sh mutants: each mistake is noticed. check.sh goals:
# what it is about is reached. check.sh assumptions: without each of them a promise breaks. check.sh short: the smallest bound, in
# seconds. check.sh all: everything.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"
cp "$here"/*.pml "$here"/*.h .

smallest='-DCALLS=2 -DIDS=0,1,0 -DMINTS=2 -DLOSSES=0 -DEXPIRIES=1 -DENDS=1'
takeover='-DNI=3 -DIDS=0,1,2 -DMASKS=1,3,2 -DLOSSES=0 -DEXPIRIES=2 -DENDS=1'
lost='-DLOSSES=2 -DENDS=0 -DEXPIRIES=1'
two='-DCALLS=2 -DIDS=0,1,0'
frozen="$two -DMINTS=2 -DFREEZES=2 -DLOSSES=2 -DENDS=0 -DEXPIRIES=1"
one='-DOPS=1 -DLOSSES=1 -DENDS=0 -DEXPIRIES=1'
mint="$one -DMINT_BACK=1 -DEPOCHS=1"
ledger="$one -DLEDGER_BACK=1"
both="$one $two -DLEDGER_BACK=1 -DMINT_BACK=1 -DEPOCHS=1"
twice="$one $two -DLEDGER_BACK=2"
files="$two -DMINTS=2 -DOPS=1 -DLOSSES=0 -DENDS=0 -DEXPIRIES=1 -DFILES_BACK=1 -DRESTARTS=1 -DMILES=2"
lookers="$one $two -DFILES_BACK=1 -DRESTARTS=1 -DMILES=2"
clocks="$two -DMINTS=2 -DLOSSES=1 -DENDS=1 -DEXPIRIES=0 -DJUMPS=3"

# Optimizing what SPIN writes takes longer than a short search does.
optimized=-O0
bad=0
run() { # NAME ERRORS FLAGS...: one search to its end, or to its first error
    name=$1 wanted=$2
    shift 2
    spin -a "$@" fencegate.pml >/dev/null
    cc "$optimized" -w -DSAFETY -DCOLLAPSE -DMEMLIM="${FENCE_TEST_SPEC_MB:-4000}" -o pan pan.c
    ./pan -m2000000 -E >out || true
    errors=$(sed -n 's/.*errors: \([0-9]*\).*/\1/p' out)
    states=$(sed -n 's/ *\([0-9e+.]*\) states, stored.*/\1/p' out)
    what=$(sed -n 's/^pan:1: assertion violated \(.*\) (at.*/\1/p' out)
    # A search that was broken off has shown nothing.
    if [ "$errors" = 0 ] && grep -q 'not completed\|out of memory\|too small' out; then errors='?'; fi
    verdict=ok
    [ "$errors" = "$wanted" ] || { verdict=WRONG bad=1; }
    printf '%-6s %-28s %10s states  errors %s  %s\n' "$verdict" "$name" "$states" "$errors" "$what"
}

# shellcheck disable=SC2086 # each bound is several words
holds() {
    optimized=-O2
    run takeover 0 $takeover
    run 'lost answers' 0 $lost
    run frozen 0 $frozen
    run clocks 0 $clocks
    run 'mint back' 0 $mint
    run 'ledger back' 0 $ledger
    run 'ledger back twice' 0 $twice
    run both 0 $both
    run 'files put back' 0 $files
    run 'files, and lost answers' 0 $lookers
    optimized=-O0
}

# shellcheck disable=SC2086
goals() {
    run 'a rerun finds its effect' 1 -DGOAL=1 $lost
    run 'a ghost finds its burial' 1 -DGOAL=2 $lost
    run 'a key replays' 1 -DGOAL=3 $lost
    run 'a commit of two' 1 -DGOAL=4 $lost
    run 'written after a re-fence' 1 -DGOAL=5 $ledger
    run 'a ghost seal is buried' 1 -DGOAL=6 $lost
    run 'a start is confirmed' 1 -DGOAL=7 $files
    run 'a start shows a loss' 1 -DGOAL=8 $files
}

# shellcheck disable=SC2086
mutants() {
    for m in SEAL_AT_FIRST_WRITE TOKEN_AT_LEAST CHECK_THEN_WRITE ENDED_WRITES FIRST_RESOURCE_DECIDES COMMIT_WHAT_IS_GOOD \
        SEAL_WHAT_IS_FREE NUMBER_MAY_FALL; do run $m 1 -D$m $takeover; done
    for m in BURIED_IS_SEALED SEAL_RERUN_NOT_BURIED BURIED_TAKES_EFFECT KNOWN_ID_NEVER KEY_BEFORE_LOCK KEY_AFTER_RULE \
        ABSENT_IS_NOT_APPLIED UNKNOWN_IS_REFUSED; do run $m 1 -D$m $lost; done
    for m in RERUN_NOT_BURIED BURIED_BEFORE_KEY; do run $m 1 -D$m $frozen; done
    run BREAK_NOT_STORED 1 -DBREAK_NOT_STORED $clocks
    for m in NO_FLOOR NO_GUARD GUARD_IS_REFUSED; do run $m 1 -D$m $ledger; done
    for m in NUMBER_TWICE NO_EPOCH; do run $m 1 -D$m $mint -DMASKS=1,2,2; done
    run NO_CLOCK 1 -DNO_CLOCK $both
    for m in START_UNASKED MILESTONE_UNASKED MINT_READ_FIRST; do run $m 1 -D$m $files; done
}

# shellcheck disable=SC2086
assumptions() {
    run FIRST_TWICE 1 -DFIRST_TWICE $frozen
    run BURIAL_FORGOTTEN 1 -DBURIAL_FORGOTTEN $frozen -DJUMPS=1
    run YOUNG_COPY 1 -DYOUNG_COPY $files
}

# shellcheck disable=SC2086
short() {
    run smallest 0 $smallest
    run CHECK_THEN_WRITE 1 -DCHECK_THEN_WRITE $smallest
}

case ${1:-holds} in
holds | goals | mutants | assumptions | short) "${1:-holds}" ;;
all)
    holds
    goals
    mutants
    assumptions
    ;;
*)
    echo "no such part: $1" >&2
    exit 2
    ;;
esac
exit $bad
