/* The ledger: what it keeps, the rule that judges a token, and its acts. Each act is one atomic step. */

mtype = { NONE, HELD, RELEASED, BROKEN,       /* how the lock of a fence stands                   */
          ABSENT, APPLIED, DEAD,              /* an operation in the ledger; DEAD: buried         */
          UNTOLD, TOLD_YES, TOLD_NO, LOST,    /* what a caller was told; UNTOLD: nothing, or `unknown` */
          IDLE, SENT, DONE,                   /* a first sending                                  */
          YES, NO, RETRY, GUARD }             /* verdicts; GUARD: the ledger takes nothing now    */

typedef Ledger {
  byte fence[NR];       /* the highest token sealed */
  byte owner[NR];       /* id + 1 of the lock it belongs to */
  mtype hold[NR];
  bool due[NR];         /* a break with `after` has been ordered */
  byte ver[NR];
  byte wrote[NR];       /* token of the newest version */
  byte grant[NI];       /* the token of an id; 0: the id is not known; BURIED */
  mtype op[OPS];
  byte eff[OPS];        /* on which resources the operation took effect */
  byte key;             /* the one idempotency key: operation + 1 */
  byte epoch, base, floor, gen, top;
  bool open;            /* whether the mint carries this epoch */
  byte line, start;     /* the guard: timeline and start of the server it knows; line 0: halted */
  byte has;             /* its milestones, as bits */
  bool frozen
}
Ledger L;               /* the ledger */
Ledger S;               /* an older copy of it: a standby, a backup, files */
bool copied; byte server = 1, started = 1;    /* the timeline of the server, and its start */
bool exp[NR];           /* by the ledger's clock the time of the lock is over */
bool ripe;              /* ... and that of a break with `after` */

/* ---------------------------------------------------------------------------------------- the rule */
/* No clock admits a write: `exp` only lets the next holder in, a break that is due only refuses. */
#define IS_DUE(r) (L.due[r] && ripe && L.hold[r] == HELD)
#if defined(TOKEN_AT_LEAST)
#define GOOD(t, r) (t > L.floor && t >= L.fence[r] && L.hold[r] == HELD)
#elif defined(BREAK_NOT_STORED)
#define GOOD(t, r) (t > L.floor && t == L.fence[r] && L.hold[r] == HELD && !IS_DUE(r))
#elif defined(NO_FLOOR)
#define GOOD(t, r) (t == L.fence[r] && L.hold[r] == HELD)
#elif defined(ENDED_WRITES)
#define GOOD(t, r) (t > L.floor && t == L.fence[r])
#elif defined(SEAL_AT_FIRST_WRITE)
#define GOOD(t, r) (t > L.floor && t >= L.fence[r])
#else
#define GOOD(t, r) (t > L.floor && t == L.fence[r] && L.hold[r] == HELD)
#endif
#if defined(FIRST_RESOURCE_DECIDES)
#define ADMITTED(t, m) (!L.frozen && (HAS(m, 0) -> GOOD(t, 0) : GOOD(t, 1)))
#elif defined(COMMIT_WHAT_IS_GOOD)
#define ADMITTED(t, m) (!L.frozen && ((HAS(m, 0) && GOOD(t, 0)) || (HAS(m, 1) && GOOD(t, 1))))
#else
#define ADMITTED(t, m) (!L.frozen && (!HAS(m, 0) || GOOD(t, 0)) && (!HAS(m, 1) || GOOD(t, 1)))
#endif

/* ---------------------------------------------------------------------------------------- the guard */
#if defined(NO_GUARD)
#define TAKES true
#elif defined(START_UNASKED)
#define TAKES (L.line == server)
#else                                         /* a ledger that may have lost commits takes nothing */
#define TAKES (L.line == server && L.start == started)
#endif

/* ------------------------------------------------------------------------------- acts of the ledger */
#ifdef SEAL_WHAT_IS_FREE
#define FREE(r, m) true
#define SEALS(r, m) (HAS(m, r) && (L.hold[r] != HELD || exp[r]))
#else
#define FREE(r, m) (!HAS(m, r) || L.hold[r] != HELD || exp[r])
#define SEALS(r, m) HAS(m, r)
#endif
#ifdef NUMBER_MAY_FALL
#define RISES(t, r, m) true
#else
#define RISES(t, r, m) (!HAS(m, r) || t > L.fence[r])
#endif
#ifndef NO_EPOCH
#define EPOCH_IS(c) (lockEpoch[c] == L.epoch)
#else
#define EPOCH_IS(c) true
#endif
#define TAKEN(t, j) (j < NI && L.grant[j] == t)
#ifdef NUMBER_TWICE
#define NEW_NUMBER(t) true
#else
#define NEW_NUMBER(t) (!TAKEN(t, 0) && !TAKEN(t, 1) && !(NI > 2 && TAKEN(t, NI - 1)))
#endif

/* An act that finds a break due stores it, so that a clock that jumps back does not take it back. */
inline settle(r, m) {
#ifndef BREAK_NOT_STORED
  if :: HAS(m, r) && IS_DUE(r) -> L.hold[r] = BROKEN; L.due[r] = false :: else fi
#else
  skip
#endif
}
inline note_broken(r) {                       /* what was refused as broken is refused for good */
  if :: JUMPS > 0 && HAS(opMask[o], r) && opTok[o] == L.fence[r] && (L.hold[r] == BROKEN || IS_DUE(r)) ->
       broken[r] = opTok[o] :: else fi }

inline put_fence(r, t, i) {
  assert(t > L.fence[r]);                                       /* I2: a fence never falls */
  assert(t > given[r]);                                         /* tokens rise, over any history */
  L.fence[r] = t; L.owner[r] = i + 1; L.hold[r] = HELD; L.due[r] = false; exp[r] = false }
inline seal(c, again) {                       /* raises the fences of a lock, all or none */
  i = id[c]; x = lockNum[c]; m = mask[i];
  if
  :: !TAKES -> v = GUARD
  :: else -> settle(0, m); settle(1, m); if
#ifndef BURIED_IS_SEALED
    :: L.grant[i] == BURIED -> v = NO; if :: !again -> REACHED(6) :: else fi
#endif
    :: L.grant[i] != 0 && L.grant[i] != BURIED -> v = (L.grant[i] > L.floor -> YES : NO)
    :: else -> if
      :: !EPOCH_IS(c) || x <= L.floor || !RISES(x, 0, m) || !RISES(x, 1, m) || !NEW_NUMBER(x) ->
           v = RETRY                          /* too low, another's, or of a past epoch: mint again */
      :: else -> if
        :: L.frozen || !FREE(0, m) || !FREE(1, m) -> v = NO
        :: else -> v = YES; assert(!dead[i]);                   /* no grant after `refused and buried` */
          assert(lockEpoch[c] == L.epoch);                      /* I11 */
          if :: SEALS(0, m) -> put_fence(0, x, i) :: else fi;
          if :: SEALS(1, m) -> put_fence(1, x, i) :: else fi;
          L.grant[i] = x; L.top = MAX(L.top, x) fi fi;
      if :: again && v != YES ->              /* a rerun that is refused buries its id */
#ifndef SEAL_RERUN_NOT_BURIED
           L.grant[i] = BURIED;
#endif
           v = NO :: else fi fi fi }

#ifdef COMMIT_WHAT_IS_GOOD
#define APPLIES(r) && GOOD(opTok[o], r)
#else
#define APPLIES(r)
#endif
inline apply(o, r) {
  if :: HAS(opMask[o], r) APPLIES(r) ->
       assert(opTok[o] >= given[r]);                            /* STRICT: nothing older than what was given out */
       assert(opTok[o] >= L.wrote[r]);                          /* I3: in version order tokens never fall */
       assert(L.owner[r] > 0 && L.grant[L.owner[r] - 1] == opTok[o]);   /* I6: under the token sealed last */
       assert(opTok[o] != broken[r]);                           /* I14: a clock that jumps back admits nothing */
       L.ver[r]++; L.wrote[r] = opTok[o]; L.eff[o] = L.eff[o] | (1 << r) :: else fi }
#ifdef KEY_AFTER_RULE
#define KEY_IF && ADMITTED(opTok[o], opMask[o])
#else
#define KEY_IF
#endif
#define BY_KEY (opKey[o] && L.key != 0 && !noKey[o] KEY_IF)
#ifdef BURIED_BEFORE_KEY
#define KEY_FIRST false
#else
#define KEY_FIRST BY_KEY
#endif
inline write(o, again) {                      /* check and effect are one act */
  if
  :: !TAKES -> v = GUARD
  :: else -> if
#ifndef KNOWN_ID_NEVER
    :: L.op[o] == APPLIED -> v = YES; REACHED(1)                /* a rerun finds what the first sending did */
#endif
#ifndef BURIED_TAKES_EFFECT
    :: L.op[o] == DEAD && !KEY_FIRST -> v = NO; if :: !again -> REACHED(2) :: else fi;
         assert(!opKey[o] || L.key == 0)                        /* of a key that had its effect nobody hears of none */
#endif
    :: else -> if
      :: BY_KEY -> v = YES; if :: L.key != o + 1 -> REACHED(3) :: else fi
#ifdef CHECK_THEN_WRITE
      :: else -> if :: !judged[o] -> v = NO
#else
      :: else -> settle(0, opMask[o]); settle(1, opMask[o]); if
        :: !ADMITTED(opTok[o], opMask[o]) -> v = NO; note_broken(0); note_broken(1);
             assert(!opKey[o] || L.key == 0)                    /* replay before rule */
#endif
        :: else -> v = YES;
#ifdef SEAL_AT_FIRST_WRITE
          if :: HAS(opMask[o], 0) -> L.fence[0] = opTok[o] :: else fi;
          if :: HAS(opMask[o], 1) -> L.fence[1] = opTok[o] :: else fi;
#endif
          assert(L.op[o] != APPLIED);                           /* one operation takes effect once */
          assert(!opKey[o] || L.key == 0);                      /* I7: one key, at most one effect */
          i = 0; do :: i < NI -> assert(!let_go[i] || opTok[o] != token[i]); i++ :: else -> break od;
          apply(o, 0); apply(o, 1);                             /* ^ after `released` nothing more is written */
          L.op[o] = APPLIED; if :: opKey[o] -> L.key = o + 1 :: else fi;
          if :: opMask[o] == 3 -> REACHED(4) :: else fi;
          if :: L.gen > 0 -> REACHED(5) :: else fi fi fi;
      if :: again && v == NO ->
#ifndef RERUN_NOT_BURIED
           L.op[o] = DEAD
#else
           skip
#endif
         :: else fi fi fi }
