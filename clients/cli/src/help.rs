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

Tables and lines for people, and `-o name`, show control and format characters of names and words as escapes, such as \\n
and \\u{1b}, on a terminal and in a pipe alike: one row is one line. --json and -o jsonl have them as they are.

Settings: options first, then the environment, then the context, then http://127.0.0.1:8080.
  FENCE_URL, FENCE_CONTEXT, FENCE_OWNER, FENCE_AUTH_TOKEN, FENCE_AUTH_TOKEN_FILE, FENCE_CA_FILE,
  FENCE_CERT_FILE, FENCE_KEY_FILE, FENCE_ALLOW_HTTP, FENCE_WAIT_FOR_GATEWAY; NO_COLOR; TRACEPARENT, the span that requests are part of
  $XDG_CONFIG_HOME/fence/config.toml keeps contexts: see `fence context`.
  A credential or certificate of a context is shown to the URLs of that context alone, one of the environment to those of
  FENCE_URL if it is set: never to another --url. None goes over http to another machine without --allow-http.";

/// Of `fence run`.
pub const RUN: &str = "\
The command ends before its lock can be another's: TERM a grace before the deadline, KILL at the deadline. It ends,
too, if `fence` is killed or stands still for longer than the lock lasts, and all that it has started ends with it:
they are known by FENCE_RUN in their environment. Processes that run as somebody else, or without FENCE_RUN and outside
the command's group, are not reached: run such a command under `systemd-run --scope`. What goes through the gateway is
refused in any case once the lock has passed on. When it has ended, a gateway has 2 s to hear that the lock is given back;
without an answer it stays until its ttl is over, which is said. A command within a run does not wait for a lock that this
run holds: it ends at once. As process 1, or where else orphans are given to it, `fence` waits for them: no init is needed.

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
  them), FENCE_TOKEN, FENCE_LOCK_ID, FENCE_LOCK_OWNER, and the files with credentials and certificates that `fence` uses;
  and TRACEPARENT: all requests of a run are in one trace, that of `fence` itself if its environment names one.
  `fence put` and the libraries write under this token.

S3: if one of the resources lies in a bucket, the lock has a key of S3 that names its token, for ever and no other. Then
(unless --no-s3) the command also has what S3 tools read: AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_ENDPOINT_URL_S3,
AWS_REGION and the like, and those of s5cmd, DuckDB, rclone, pgBackRest and WAL-G; and nothing that would lead them to
another key, such as AWS_PROFILE. `fence s3-key --as env` prints all of it. They are for all AWS services of the process.
What does not inherit the environment, such as executors of Spark, or reads other names gets them by --set.

Examples:
  fence run -r invoices:2026 -- ./close-books.sh
  fence run -r backup --nonblock --conflict-exit-code 0 -c 'pg_dump shop | fence put backup shop.sql'
  fence run -r orders:1 -r stock:1 --wait 30 -- ./move-stock
  fence run -r lake:orders -- aws s3 cp orders.parquet s3://lake/orders/
  fence run -r repo --set 'RESTIC_REPOSITORY=s3:{s3_endpoint}/repo' -- restic prune

See also: flock(1), timeout(1), env(1)";

/// Of `fence job run`.
pub const JOB_RUN: &str = "\
Call it as often as you like, on as many hosts as you like: by cron, systemd or Kubernetes. Each slot succeeds once. The
slot is computed with the gateway's clock. The lock of the job is its heartbeat; its record, its log and that its slot is
done are stored at once, under that lock, so that a run that has lost it changes nothing any more.

Exit status:
  the command's own; if it died of a signal, `fence` dies of the same
  0    also if the slot was done before (--done-exit-code), which is said with --verbose alone
  75   somebody else has the lock, or it is frozen: said unless with --quiet (--conflict-exit-code)
  121  the lock was lost while the command ran, also if the command ended with 0 (--lost-exit-code)
  124  the command ran for longer than --max-runtime
  125  `fence` itself failed, or nobody knows whether the end of the run was recorded
  126  the command cannot be run
  127  the command is not there

The command is told, beside what `fence run` tells:
  FENCE_JOB, FENCE_RUN_ID, FENCE_SLOT (20261122T020000Z), FENCE_ATTEMPT (from 1), FENCE_RESUME=1 if there is a checkpoint
  to go on with, FENCE_SHARD (from 0) and FENCE_SHARDS

Examples:
  fence job run nightly --every 1d -- ./close-books.sh
  fence job run import --every 1h --catch-up all --retries 3 -- ./import.sh
  fence job run reindex --every 1d --shards 16 --concurrency 4 -c './reindex --part \"$FENCE_SHARD\"'
  fence job run migrate --resume -c 'fence job checkpoint load state.json || :; ./migrate state.json'

See also: crontab(5), systemd.timer(5)";

/// Of `fence s3-key`.
pub const S3_KEY: &str = "\
The key names the lock's token, for ever and no other; a new lock has a new key. So a source of keys has to name a lock,
and always the same. A file at a fixed path that is written anew for each lock, or an address that gives the key of
whoever has the resource now, would hand a late writer the token of its successor.

For a process below `fence run --no-s3` that also talks to AWS, a profile in ~/.aws/config for S3 alone:
  [profile lake]
  credential_process = fence s3-key
  services = lake
  [services lake]
  s3 =
    endpoint_url = http://127.0.0.1:9000
It asks for the lock in FENCE_LOCK_ID, which stays the same as long as the process runs.

Exit status: as of all commands; 5 if the lock has ended, 3 if it has no key.

Examples:
  fence s3-key 0190a1b2-0000-7000-8000-000000000000
  eval \"$(fence lock -r lake:orders --ttl 10m --export)\"; eval \"$(fence s3-key --as env)\"";

/// Of `fence commit`.
pub const COMMIT: &str = "\
A file of operations:
  {\"operations\": [
    {\"op\": \"put\", \"resource\": \"orders:1\", \"key\": \"17.json\", \"file\": \"17.json\", \"if_absent\": true},
    {\"op\": \"put\", \"resource\": \"stock:1\", \"key\": \"boxes\", \"text\": \"97\", \"if_match\": \"\\\"g0-v3\\\"\"},
    {\"op\": \"delete\", \"resource\": \"orders:1\", \"key\": \"draft.json\"}
  ]}
  `content_type` may be said of a put. Files are found from the directory of the caller.";
