/* Fencegate as its documents describe it: README, docs/safety.md, docs/leases.md, docs/glossary.md, openapi.yaml.
 * It follows them and not the code. One process; each option of its loop is one atomic act of somebody.
 * An act that was sent may happen at any later time, so gateways and connections pause as long as they like.
 * Bounds (bounds.h) and mutants are set with -D; see README.md. A line `assert(...)` is a promise.               */
#include "bounds.h"
#define NR 2
#define BURIED 255
#define HAS(m, r) (((m) >> (r)) & 1)
#define MAX(a, b) ((a) > (b) -> (a) : (b))
#define REACHED(n) assert(GOAL != n)          /* a situation that some run must reach: -DGOAL=n finds it */

byte num, nonce = 1, reach;                   /* etcd: number, nonce (which epoch), base that it remembers */
byte known, knownGen;                         /* ... the newest milestone that it knows, and of which generation */
/* gateways: what was sent, under which number and epoch, and whether its answer can still come */
mtype lockSent[CALLS]; byte lockNum[CALLS], lockEpoch[CALLS], lockAgain[CALLS]; bool lockCut[CALLS];
mtype opSent[OPS]; byte opTok[OPS], opMask[OPS], opAgain[OPS]; bool opCut[OPS], opKey[OPS];
/* ... the milestone that was left and is not known yet; a look after a start: what it saw, and what etcd said */
byte left, saw, heard, heardGen; bool looks;
/* callers: what they were told */
byte token[NI]; bool dead[NI], let_go[NI]; mtype told[OPS];
/* the observer */
byte given[NR], seen[NR], broken[NR], clock; bool back;
byte mints, losses, expiries, ends, freezes, jumps, backs, fileBacks, restarts, miles, mintBacks, epochs;
byte mask[3] = { MASKS };
byte id[3] = { IDS };
/* only mutants use these */
bool judged[OPS], noKey[OPS];

#include "ledger.pml"

/* ------------------------------------------------------------------------------ what callers are told */
#ifdef GUARD_IS_REFUSED
#define REFUSED_BY_GUARD || v == GUARD
#else
#define REFUSED_BY_GUARD                      /* of a rerun: the first sending may have taken effect */
#endif
inline tell_lock(i) {
  assert(back || token[i] == 0 || token[i] == L.grant[i]);      /* one id, one grant */
  token[i] = L.grant[i];
  j = 0; do :: j < NI -> assert(j == i || token[j] != token[i]); j++ :: else -> break od;   /* I15 */
  if :: HAS(mask[i], 0) -> given[0] = MAX(given[0], token[i]) :: else fi;
  if :: HAS(mask[i], 1) -> given[1] = MAX(given[1], token[i]) :: else fi }
inline tell_op(o) {
  if :: v == YES -> told[o] = TOLD_YES
     :: v == NO REFUSED_BY_GUARD -> told[o] = TOLD_NO
     :: else fi }
inline hear(o) { if :: v == GUARD -> v = NO :: else fi; tell_op(o) }
#ifndef UNKNOWN_IS_REFUSED
#define cut(o) skip                           /* the caller is told `unknown` */
#else
#define cut(o) told[o] = TOLD_NO
#endif
inline check() {                              /* holds after every act */
  o = 0; do :: o < OPS ->
    assert(told[o] != TOLD_YES || L.op[o] == APPLIED || (opKey[o] && L.key != 0));  /* acknowledged: never lost */
    assert(told[o] != TOLD_NO || L.op[o] != APPLIED);           /* I8: refused: never applied, now or later */
    assert(L.eff[o] == (L.op[o] == APPLIED -> opMask[o] : 0));  /* a commit takes effect as a whole or not at all */
#ifndef FIRST_TWICE                           /* forget what is over: fewer states */
    if :: told[o] != UNTOLD && opSent[o] == DONE -> opTok[o] = 0; opAgain[o] = 0; opCut[o] = false :: else fi;
#endif
    o++ :: else -> break od;
  r = 0; do :: r < NR ->
    assert(back || L.ver[r] >= seen[r]); if :: !back -> seen[r] = L.ver[r] :: else fi;   /* versions never fall */
    r++ :: else -> break od;
  c = 0; i = 0; o = 0; r = 0; j = 0; m = 0; x = 0; v = NONE }

#define SAME_BY_KEY (x == 0 || !opKey[o - 1] || opMask[o - 1] == m + 1)       /* one key, one payload */
#define CUT(f) losses < LOSSES -> losses++; f = true
#define PICK(k, n) k = 0; do :: k < n - 1 -> k++ :: break od
inline go_back() {                            /* what callers were told of what is gone is no promise any more */
  c_code { now.L = now.S; }; copied = false; back = true;
  i = 0; do :: i < NI -> if :: L.grant[i] != BURIED -> dead[i] = false :: else fi; i++ :: else -> break od;
  o = 0; do :: o < OPS -> if :: told[o] == TOLD_YES && L.op[o] != APPLIED && !(opKey[o] && L.key != 0) ->
       told[o] = LOST :: else fi; o++ :: else -> break od }
/* What put it back is noticed if the copy lacks what etcd knows, or if etcd knows nothing of this line. */
#ifndef YOUNG_COPY
#define IS_OLDER (knownGen != S.gen || !HAS(S.has, known))
#else
#define IS_OLDER true
#endif

active proctype World() {
  byte c, i, o, r, j, m, x; mtype v = NONE;
  d_step {
    L.epoch = 1; L.open = true; L.line = 1; L.start = 1; L.has = 1;    /* milestone 0: known since the mint opened */
    r = 0; do :: r < NR -> L.hold[r] = NONE; r++ :: else -> break od;
    o = 0; do :: o < OPS -> L.op[o] = ABSENT; told[o] = UNTOLD; opSent[o] = IDLE; o++ :: else -> break od;
    c = 0; do :: c < CALLS -> lockSent[c] = IDLE; c++ :: else -> break od; c = 0; o = 0; r = 0 }
  do
  /* ---- a lock is asked for: the mint's number and the epoch; then the act of the ledger, at any later time */
  :: atomic { PICK(c, CALLS); if
       :: lockSent[c] == IDLE && TAKES && L.open && nonce == L.epoch && mints < MINTS ->
            mints++; num++; lockNum[c] = L.base + num; lockEpoch[c] = L.epoch; clock = MAX(clock, lockNum[c]);
            lockSent[c] = SENT; i = id[c];
#ifdef SEAL_AT_FIRST_WRITE
            L.grant[i] = lockNum[c]; lockSent[c] = DONE; tell_lock(i)
#endif
       :: else fi; check() }
  :: atomic { PICK(c, CALLS); if
       :: lockSent[c] == SENT -> seal(c, false); lockSent[c] = DONE; if
            :: lockCut[c]
            :: !lockCut[c] -> if :: v == YES -> tell_lock(i) :: else -> lockSent[c] = IDLE fi;  /* ask again */
                 lockNum[c] = 0; lockEpoch[c] = 0
            :: !lockCut[c] && CUT(lockCut[c]) fi
       :: else fi; check() }
  :: atomic { PICK(c, CALLS); if :: lockSent[c] == SENT && !lockCut[c] && CUT(lockCut[c]) :: else fi; check() }
  :: atomic { PICK(c, CALLS); i = id[c]; if      /* lost: run it again, or give it up and bury it */
       :: lockCut[c] && lockAgain[c] == 0 && token[i] == 0 && !dead[i] -> lockAgain[c] = 1
       :: lockCut[c] && lockAgain[c] == 0 && token[i] == 0 && !dead[i] -> lockAgain[c] = 2
       :: else fi; check() }
  :: atomic { PICK(c, CALLS); i = id[c]; if
       :: lockAgain[c] == 1 -> seal(c, true)
       :: lockAgain[c] == 2 -> if
            :: !TAKES -> v = GUARD
            :: else -> if :: L.grant[i] == 0 -> L.grant[i] = BURIED :: else fi;
                 v = (L.grant[i] != BURIED && L.grant[i] > L.floor -> YES : NO) fi
       :: else fi;
       if :: v != NONE -> lockAgain[c] = 0; if
            :: v == YES -> tell_lock(i) :: v == NO -> dead[i] = true :: v == GUARD
            :: losses < LOSSES -> losses++ fi
       :: else fi; check() }
  /* ---- a write or a commit: a caller sends a token that it was given, however long ago */
  :: atomic { PICK(o, OPS); PICK(i, NI); PICK(m, 3); PICK(x, 2); if
       :: opSent[o] == IDLE && token[i] != 0 && (o == 0 || (opSent[o - 1] != IDLE && SAME_BY_KEY)) ->
            opTok[o] = token[i]; opMask[o] = m + 1; opKey[o] = x; opSent[o] = SENT
#if !defined(CHECK_THEN_WRITE) && !defined(KEY_BEFORE_LOCK)     /* it comes at once, and is heard; or its connection is cut */
            ; if :: write(o, false); opSent[o] = DONE; hear(o) :: CUT(opCut[o]); cut(o) fi
#endif
       :: else fi; check() }
  :: atomic { PICK(o, OPS); if                 /* it comes as late as it likes */
       :: opSent[o] == SENT -> write(o, false); if :: opCut[o] :: !opCut[o] -> hear(o) fi; opSent[o] = DONE
       :: else fi; check() }
#ifdef FIRST_TWICE                            /* the same statement comes once more */
  :: atomic { PICK(o, OPS); if :: opSent[o] == DONE && opAgain[o] == 0 -> write(o, false) :: else fi; check() }
#endif
  :: atomic { PICK(o, OPS); if
       :: opCut[o] && opAgain[o] == 0 && told[o] == UNTOLD -> opAgain[o] = 1
       :: opCut[o] && opAgain[o] == 0 && told[o] == UNTOLD -> opAgain[o] = 2
       :: else fi; check() }
  :: atomic { PICK(o, OPS); if
       :: opAgain[o] == 1 -> write(o, true)
       :: opAgain[o] == 2 -> if
            :: !TAKES -> v = GUARD
            :: else -> if :: L.op[o] == ABSENT -> L.op[o] = DEAD :: else fi;
                 v = (L.op[o] == APPLIED || (opKey[o] && L.key != 0) -> YES : NO) fi
       :: else fi;
       if :: v != NONE -> opAgain[o] = 0; if :: tell_op(o) :: losses < LOSSES -> losses++ fi
       :: else fi; check() }
  :: atomic { PICK(o, OPS); if                  /* GET /operations/{id}: what is not there may be under way */
       :: opCut[o] && told[o] == UNTOLD && TAKES -> if :: L.op[o] == APPLIED -> v = YES; tell_op(o)
#ifdef ABSENT_IS_NOT_APPLIED
            :: L.op[o] != APPLIED -> v = NO; tell_op(o)
#endif
            :: else fi
       :: else fi; check() }
#ifdef CHECK_THEN_WRITE
  :: atomic { PICK(o, OPS); if :: opSent[o] == SENT && TAKES && ADMITTED(opTok[o], opMask[o]) -> judged[o] = true
       :: else fi; check() }
#endif
#ifdef KEY_BEFORE_LOCK
  :: atomic { PICK(o, OPS); if :: opSent[o] == SENT && L.key == 0 -> noKey[o] = true :: else fi; check() }
#endif
  /* ---- time, holders, operators */
  :: atomic { PICK(r, NR); if :: L.hold[r] == HELD && !exp[r] && expiries < EXPIRIES -> expiries++; exp[r] = true
       :: else fi; check() }
  :: atomic { PICK(i, NI); if                  /* a renewal: only while all of it is the lock's own */
       :: token[i] != 0 && TAKES && (!HAS(mask[i], 0) || (L.owner[0] == i + 1 && L.hold[0] == HELD)) &&
            (!HAS(mask[i], 1) || (L.owner[1] == i + 1 && L.hold[1] == HELD)) ->
            if :: HAS(mask[i], 0) -> exp[0] = false :: else fi; if :: HAS(mask[i], 1) -> exp[1] = false :: else fi
       :: else fi; check() }
  :: atomic { PICK(i, NI); if                  /* a release: what is still the lock's own */
       :: token[i] != 0 && TAKES && ends < ENDS -> ends++; let_go[i] = true;
            if :: HAS(mask[i], 0) && L.owner[0] == i + 1 -> L.hold[0] = RELEASED :: else fi;
            if :: HAS(mask[i], 1) && L.owner[1] == i + 1 -> L.hold[1] = RELEASED :: else fi
       :: else fi; check() }
  :: atomic { PICK(r, NR); if :: L.hold[r] == HELD && TAKES && ends < ENDS -> ends++; L.hold[r] = BROKEN
       :: L.hold[r] == HELD && TAKES && ends < ENDS && JUMPS > 0 -> ends++; L.due[r] = true     /* with `after` */
       :: else fi; check() }
  :: atomic { true; if :: TAKES && freezes < FREEZES -> freezes++; L.frozen = !L.frozen :: else fi; check() }
  :: atomic { PICK(r, NR); if                  /* the ledger's clock jumps, ahead or back */
       :: jumps < JUMPS && L.hold[r] == HELD -> jumps++; exp[r] = !exp[r]
       :: jumps < JUMPS && (L.due[0] || L.due[1]) -> jumps++; ripe = !ripe
#ifdef BURIAL_FORGOTTEN
       :: jumps < JUMPS && L.op[r] == DEAD -> jumps++; L.op[r] = ABSENT
#endif
       :: else fi; check() }
  /* ---- the ledger goes back: a standby on a timeline of its own, or files that are put back; the re-fence */
  :: atomic { true; if :: !copied && backs < LEDGER_BACK + FILES_BACK -> c_code { now.S = now.L; }; copied = true
       :: else fi; check() }
  :: atomic { true; if :: copied && backs - fileBacks < LEDGER_BACK -> backs++; server++; go_back() :: else fi; check() }
  :: atomic { true; if :: copied && fileBacks < FILES_BACK && IS_OLDER -> backs++; fileBacks++; started++; go_back()
       :: else fi; check() }
  :: atomic { true; if :: restarts < RESTARTS -> restarts++; started++ :: else fi; check() }    /* loses nothing */
  :: atomic { true; if
       :: L.line != server ->
            x = MAX(L.top, MAX(L.base, reach) + num);   /* what ledger and mint remember */
#ifndef NO_CLOCK
            if :: mintBacks > 0 -> x = MAX(x, clock) :: else fi;    /* a clock that was never ahead, and is right */
#endif
            L.base = x; L.floor = x; L.top = x; L.gen++; L.line = server; L.start = started; exp[0] = true; exp[1] = true;
            L.epoch = MAX(L.epoch, nonce) + 1; L.open = false
       :: else fi; check() }
  /* ---- milestones, and the look of a gateway after a start: it may stand still between any two steps */
  :: atomic { true; if :: TAKES && miles < MILES && left == 0 -> miles++; left = miles; L.has = L.has | (1 << left)
       :: else fi; check() }
  :: atomic { true; if :: left != 0 && knownGen == L.gen -> known = left; left = 0 :: left != 0 -> left = 0
       :: else fi; check() }
#ifndef MINT_READ_FIRST
  :: atomic { true; if :: saw == 0 && L.line == server && L.start != started -> saw = started :: else fi; check() }
  :: atomic { true; if :: saw != 0 && !looks -> looks = true; heard = known; heardGen = knownGen :: else fi; check() }
#else
  :: atomic { true; if :: !looks && FILES_BACK > 0 -> looks = true; heard = known; heardGen = knownGen :: else fi; check() }
  :: atomic { true; if :: looks && saw == 0 && L.line == server && L.start != started -> saw = started :: else fi; check() }
#endif
  :: atomic { true; if
       :: saw != 0 && looks -> if
            :: saw != started || L.line != server       /* moved: look again */
#ifdef MILESTONE_UNASKED
            :: saw == started && L.line == server -> L.start = started
#else
            :: saw == started && L.line == server && heardGen == L.gen && HAS(L.has, heard) -> L.start = started; REACHED(7)
            :: saw == started && L.line == server && !(heardGen == L.gen && HAS(L.has, heard)) -> L.line = 0; REACHED(8)
#endif
            fi; saw = 0; looks = false; heard = 0; heardGen = 0
       :: else fi; check() }
  /* ---- the mint goes back; a new epoch: ledger, then etcd, then it is open; one that was begun is gone on with */
  :: atomic { true; if :: mintBacks < MINT_BACK -> mintBacks++; PICK(x, num + 1); num = x;
            if :: true :: nonce = 1; reach = 0 :: nonce = 0; reach = 0; num = 0; knownGen = 255 fi
       :: else fi; check() }
  :: atomic { true; if
       :: TAKES && epochs < EPOCHS && (nonce != L.epoch || L.base + num < L.top) -> epochs++;
            L.epoch = MAX(L.epoch, nonce) + 1; L.open = false;
            L.base = MAX(L.base, L.top)
       :: else fi; check() }
  :: atomic { true; if
       :: TAKES && !L.open -> nonce = L.epoch; reach = L.base; L.open = true; knownGen = L.gen;
            if :: MILES > 0 && L.gen > 0 -> miles++; known = miles; L.has = L.has | (1 << known) :: else fi; left = 0
       :: else fi; check() }
  od
}
