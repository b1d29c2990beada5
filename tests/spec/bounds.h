/* Bounds of a search of fencegate.pml; check.sh sets others. */
#ifndef NI
#define NI 2            /* ids of locks                                                            */
#endif
#ifndef CALLS
#define CALLS 3         /* calls of POST /locks                                                    */
#endif
#ifndef IDS
#define IDS 0,1,0       /* ... and the id that each names: here the third repeats the first's id   */
#endif
#ifndef OPS
#define OPS 2           /* operations (writes and commits); each has an id                         */
#endif
#ifndef MINTS
#define MINTS 3         /* numbers that the mint gives out                                         */
#endif
#ifndef MASKS
#define MASKS 1,3,3     /* resources of each lock, as bits: {0}, {0,1}, {0,1}                      */
#endif
#ifndef LOSSES
#define LOSSES 2        /* answers and connections that are lost                                   */
#endif
#ifndef EXPIRIES
#define EXPIRIES 1
#endif
#ifndef ENDS
#define ENDS 1          /* releases and breaks                                                     */
#endif
#ifndef FREEZES
#define FREEZES 0
#endif
#ifndef JUMPS
#define JUMPS 0         /* how often the ledger's clock jumps, ahead or back                       */
#endif
#ifndef LEDGER_BACK
#define LEDGER_BACK 0   /* how often an older copy of the ledger takes over on a timeline of its own */
#endif
#ifndef FILES_BACK
#define FILES_BACK 0    /* how often an older copy of its files is put back, on the same timeline  */
#endif
#ifndef RESTARTS
#define RESTARTS 0      /* starts of the ledger's server that lose nothing                         */
#endif
#ifndef MILES
#define MILES 0         /* milestones that gateways leave, and make known in etcd                  */
#endif
#ifndef MINT_BACK
#define MINT_BACK 0     /* how often the mint is restored or wiped                                 */
#endif
#ifndef EPOCHS
#define EPOCHS 0        /* new epochs of the mint (re-fences do not count)                         */
#endif
#ifndef GOAL
#define GOAL 0          /* the situation that a run must reach                                     */
#endif
