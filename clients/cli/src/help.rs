//! What `--help` and the man pages say behind the options.

/// Of all commands.
pub const ALL: &str = "\
Exit status:
  0    done
  1    a fault of the gateway or of this machine, or anything else
  2    the command line is wrong, or the gateway would refuse it
  3    it is not there
  4    busy: held, frozen, or the wait is over; try later
  5    the lock is lost: stop
  6    it has changed: read again
  7    nobody knows whether the write took effect; `fence operation` tells later
  8    the gateway cannot be reached
  9    no right to do this, or no credential that is good
  130, 143 and the like: ended by a signal
  `fence run` and `fence elect` have codes of their own: see there.

Settings: options first, then the environment, then the context, then http://127.0.0.1:8080.
  FENCE_URL, FENCE_CONTEXT, FENCE_OWNER, FENCE_AUTH_TOKEN, FENCE_AUTH_TOKEN_FILE, FENCE_CA_FILE,
  FENCE_CERT_FILE, FENCE_KEY_FILE; NO_COLOR
  $XDG_CONFIG_HOME/fence/config.toml keeps contexts: see `fence context`.";

/// Of `fence run`.
pub const RUN: &str = "\
The command ends before its lock can be another's: TERM a grace before the deadline, KILL at the deadline. It ends,
too, if `fence` is killed or stands still for longer than the lock lasts, and all that it has started ends with it:
they are known by FENCE_RUN in their environment. Processes that run as somebody else, or without FENCE_RUN and outside
the command's group, are not reached: run such a command under `systemd-run --scope`. What goes through the gateway is
refused in any case once the lock has passed on.

Exit status:
  the command's own; if it died of a signal, `fence` dies of the same
  75   the lock was not had (--conflict-exit-code)
  121  the lock was lost while the command ran, also if the command ended with 0 (--lost-exit-code)
  124  the command ran for longer than --max-runtime
  125  `fence` itself failed: a wrong option, or no gateway
  126  the command cannot be run
  127  the command is not there

The command is told:
  FENCE_RUN (which run it is part of), FENCE_URL, FENCE_RESOURCE (the first), FENCE_RESOURCES (all, with spaces between
  them), FENCE_TOKEN, FENCE_LOCK_ID, FENCE_LOCK_OWNER, and the files with credentials and certificates that `fence` uses
  `fence put` and the libraries write under this token.

Examples:
  fence run -r invoices:2026 -- ./close-books.sh
  fence run -r backup --nonblock --conflict-exit-code 0 -c 'pg_dump shop | fence put backup shop.sql'
  fence run -r orders:1 -r stock:1 --wait 30 -- ./move-stock

See also: flock(1), timeout(1), env(1)";

/// Of `fence commit`.
pub const COMMIT: &str = "\
A file of operations:
  {\"operations\": [
    {\"op\": \"put\", \"resource\": \"orders:1\", \"key\": \"17.json\", \"file\": \"17.json\", \"if_absent\": true},
    {\"op\": \"put\", \"resource\": \"stock:1\", \"key\": \"boxes\", \"text\": \"97\", \"if_match\": \"\\\"g0-v3\\\"\"},
    {\"op\": \"delete\", \"resource\": \"orders:1\", \"key\": \"draft.json\"}
  ]}
  `content_type` may be said of a put. Files are found from the directory of the caller.";
