//! Each setting, once: what it is, its name, type, default and bounds, and whether it has a flag. All else comes from
//! here: the file, the environment, the flags and their help, what `check-config` prints, and the tables of
//! `docs/config.md`.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::table::{Form, Setting, outside, settings, span};
use super::{
    AdminAddress, ClientAuth, Failover, HostName, INLINE_BYTES_LIMIT, LogFormat, Network,
    OBJECT_BYTES_LIMIT, PostgresUrl, RefenceMode, RequireLockId, S3Anonymous, S3Once, S3Root,
    Secret, TlsBy, Ui, Upstream,
};
use crate::blobs::BlobsUrl;

const MILLISECOND: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_mins(1);
const HOUR: Duration = Duration::from_hours(1);
const DAY: Duration = Duration::from_hours(24);
const TEN_YEARS: Duration = Duration::from_hours(3650 * 24);

settings! {
    "Where to listen and what to keep" {
        /// Where to take requests. Port 0 takes a free one, which is logged. Another address than `127.0.0.0/8` and
        /// `[::1]` needs TLS, be it `tls_cert_file` or `tls = "proxy"`, and [rules of access](access.md); or
        /// `open_to_network`.
        listen: SocketAddr = SocketAddr::from((Ipv4Addr::LOCALHOST, 8080)), takes "IP address and port", flag "ADDR:PORT";
        /// Where the same API is served once more, with [room of its own](#a-separate-door-for-operators), so that
        /// operators, health checks and metrics get in while `listen` is full. Addresses need what `listen` does. With a
        /// data directory it is the socket `admin.sock` there if nothing is said, and none if the list is empty.
        admin_listen: Vec<AdminAddress>, takes "list of IP addresses and ports, and of `unix:/path`", flag "ADDR:PORT|unix:PATH,...";
        /// Where the SQLite ledger and the embedded mint live. Created if it is not there, for this user only;
        /// refused if others can write to it. One gateway at a time. Not used with `postgres`.
        data_dir: PathBuf = "./fencegate-data".into(), takes "a path", flag "DIR";
        /// The ledger, for several gateways side by side: `postgres://user:password@host:5432/database`. Needs
        /// `etcd`. Over a network it needs `sslmode=verify-full` (see `insecure_backends`). Other users of a
        /// machine can see its flags, so a password is better kept in the file or the environment.
        postgres: Option<PostgresUrl>, takes "a URL", flag "URL";
        /// Whether a write without `X-Lock-Id` is refused (428 `lock-id-missing`): a token is a running number that
        /// others can guess, the id of a lock is not. `auto`: while `listen`, `s3_listen` or an address of `admin_listen` is not
        /// a loopback address, and `open_to_network` is set; behind a proxy on the same machine say `on`. What comes out is
        /// [agreed](#what-all-gateways-have-alike) in the ledger, and `fencegate.guard` goes by it as well.
        require_lock_id: RequireLockId = RequireLockId::Auto, flag "WHEN";
        /// `lossless` declares that a failover of Postgres loses nothing that was acknowledged: then a promoted
        /// server that is proven not to be behind is taken over, and no token is void. Agreed in the ledger. See
        /// [Postgres in real set-ups](postgres.md) before you say so.
        failover: Failover = Failover::Lossy, flag "HOW";
        /// Who re-fences a Postgres that may have lost commits, which voids all tokens: the gateways by themselves,
        /// or an operator with `fencegate refence`. See [the runbook](runbook.md).
        refence: RefenceMode = RefenceMode::Auto, flag "HOW";
    }
    "Who may call" {
        /// Whether `listen`, `admin_listen` and `s3_listen` may be addresses that others than this machine reach, without TLS and
        /// rules of access. Only where all that reach it may do everything; refused where rules are in force.
        open_to_network: bool, flag;
        /// Under which names the gateway is reached, beside those of this machine itself.
        server_names: Vec<HostName>, takes "list of names and addresses, without ports", flag "NAME,...";
        /// Who passes on what others send. Their connections count against [no peer's share](#shares-of-one-peer),
        /// and what they say in `X-Forwarded-*`, `Forwarded` and `X-Real-IP` goes on to [upstreams](upstreams.md).
        trusted_proxies: Vec<Network>, takes "list of addresses and networks such as `10.0.0.0/8`", flag "NETWORK,...";
        /// Who secures connections: `own`, the gateway, if it has `tls_cert_file`; `proxy`, those of `trusted_proxies`,
        /// through whom alone others reach it: connections from elsewhere, but for this machine itself, are closed.
        tls: TlsBy = TlsBy::Own, flag "WHO";
        /// The gateway's certificate, and behind it those between it and its authority. With it every connection to
        /// `listen`, `admin_listen` and `s3_listen` is secured by TLS 1.3 or 1.2, but those to a Unix socket. It is read again when
        /// the file changes, and on SIGHUP, without ending a connection.
        tls_cert_file: Option<PathBuf>, takes "a PEM file", flag "FILE";
        /// The key of that certificate.
        tls_key_file: Option<PathBuf>, takes "a PEM file", flag "FILE";
        /// The authorities whose certificates callers may show. A certificate of anybody else is refused. Each of them can sign
        /// any name, unless [the rules](access.md#in-a-mesh) say whose counts.
        tls_client_ca_file: Option<PathBuf>, takes "a PEM file, with `tls_cert_file`", flag "FILE";
        /// Whether callers must show such a certificate: `optional` also takes connections without one, `required` does
        /// not. Needs `tls_client_ca_file`.
        tls_client_auth: ClientAuth = ClientAuth::Optional, flag "WHETHER";
        /// Which of those certificates are revoked: one list of an authority, signed by it. An open connection ends when
        /// its certificate is revoked.
        tls_client_crl_file: Option<PathBuf>, takes "a PEM file, with `tls_client_ca_file`", flag "FILE";
        /// What checkpoints of [the audit](audit.md) are signed with: 32 secret bytes in hex, as `fencegate audit
        /// new-key` writes them. By default the file `audit.key` in the data directory, which is made; without one, beside
        /// a `postgres`, checkpoints are not signed.
        audit_key_file: Option<PathBuf>, takes "a file", flag "FILE";
        /// Witnesses that are shown every checkpoint of [the audit](audit.md#outside-of-the-ledger), and sign it: URLs under which
        /// each has `add-checkpoint`, as C2SP tlog-witness says. Best run by somebody else.
        audit_witness: Vec<String>, takes "list of URLs", flag "URL,...";
        /// Origins such as `https://ops.example.com` whose pages may call the gateway from a browser. Not `*`.
        cors_origin: Vec<String>, takes "list of origins", flag "ORIGIN";
    }
    "The mint" {
        /// The members of the etcd cluster (3.4 or newer) that numbers grants. Needs `postgres`. A call that a
        /// member does not answer goes on to the next one.
        etcd: Vec<String>, takes "list of `host:port` or URLs", flag "HOST:PORT,...";
        /// What all keys begin with. Each ledger needs one of its own.
        etcd_prefix: String = "/fencegate".into(), takes "begins with `/`, does not end with it", flag "PREFIX";
        /// The user to sign in with. It needs `readwrite` on all keys under the prefix and a slash.
        etcd_user: Option<String>, takes "with `etcd_password`";
        /// Its password; never shown.
        etcd_password: Option<Secret>, takes "with `etcd_user`";
        /// Whose certificates to accept. With it all members are reached by TLS; `https://` members need it.
        etcd_ca_file: Option<PathBuf>, takes "a PEM file";
        /// The gateway's own certificate, if etcd asks for one.
        etcd_cert_file: Option<PathBuf>, takes "a PEM file";
        /// The key of that certificate.
        etcd_key_file: Option<PathBuf>, takes "a PEM file";
        /// Whether Postgres, etcd, upstreams and the store of blobs may be reached over a network without verified TLS.
        /// Otherwise a Postgres that is not on this machine needs `sslmode=verify-full` in its URL (with
        /// `sslrootcert=FILE` for a CA of your own), etcd needs `etcd_ca_file`, and upstreams and endpoints of stores need
        /// `https://`: whoever sits between can forge tokens, or write without one.
        insecure_backends: bool, flag;
    }
    "Blobs" {
        /// Where large payloads go, with credentials from the environment; by default the folder `blobs` in the data
        /// directory. All gateways on one ledger need the same, and each ledger a bucket or prefix of
        /// its own: what is there carries a mark, and a gateway refuses a store that is not its ledger's.
        blobs: Option<BlobsUrl>, takes "`file:///folder`, `s3://bucket/prefix`, `az://container/prefix`", flag "URL";
        /// The largest payload that is kept in the ledger.
        inline_bytes_max: u64 = 256 * 1024, in 1..=INLINE_BYTES_LIMIT, flag "BYTES";
        /// How long a payload is kept in the store that nobody has committed. An upload that takes longer fails.
        /// Above `upload_timeout`.
        uploads_kept: Duration = 2 * HOUR, in Duration::ZERO..=TEN_YEARS;
        /// How long a replaced payload stays for readers that have begun, and again once its version is forgotten.
        /// Who reads for longer pins it.
        reader_grace: Duration = HOUR, in Duration::ZERO..=TEN_YEARS;
        /// The furthest back a failover or a restore may take the ledger. Replaced payloads are kept this long,
        /// since a ledger that went back may point to them again, and this long again after their versions are
        /// forgotten. For this long after a re-fence nothing is deleted at all, not by `fencegate scrub --fix`
        /// either. 0 only without standby and point-in-time recovery.
        rollback_horizon: Duration = DAY, in Duration::ZERO..=TEN_YEARS;
        /// Garbage is deleted twice, this far apart, in case a delayed upload creates it again. It must exceed the
        /// longest delay of a request to the store.
        redelete_after: Duration = HOUR, in Duration::ZERO..=TEN_YEARS;
    }
    "Limits" {
        /// The largest payload of a put, at most 5 TiB. Beyond about 80 GB the client must send a `Content-Length`.
        object_bytes_max: u64 = 64 << 30, in 1..=OBJECT_BYTES_LIMIT;
        /// How many payloads may be on their way to the blob store; each takes up to 16 MiB of memory. One whose
        /// `Content-Length` says that it has at most 8 MiB counts half. More wait for a moment, then get 503
        /// `overloaded`. With `s3_listen` there is room for twice as many.
        uploads_max: usize = 16, in 1..=10_000;
        /// How long a payload, or all payloads of one commit together, may be on their way to the blob store;
        /// beyond that 408. A copy on the server has as long; beyond that 503. Below `uploads_kept`.
        upload_timeout: Duration = HOUR, in SECOND..=30 * DAY;
        /// How many bytes of a payload on its way to the blob store must come in each second, taken over any 30 s
        /// after the first 10 s; beyond that 408. A copy on the server must move at the same rate from store to store;
        /// beyond that 503. An answer above 1 MiB must be taken at the same rate, by the time that the gateway has
        /// waited for its reader, else its connection is cut. 0 for any rate.
        upload_rate_min: u64 = 16 * 1024, in 0..=(1 << 30);
        /// How long a caller stands in line for the ledger or the mint before the answer is 503. What is under way
        /// by then is waited for up to twice as long again.
        request_timeout: Duration = 4 * SECOND, in 100 * MILLISECOND..=MINUTE;
        /// How long a start waits for a Postgres that is not there yet, or still a standby. A wrong password or
        /// database, and a certificate that is not trusted, are said at once.
        wait_for_ledger: Duration = MINUTE, in Duration::ZERO..=HOUR;
        /// How many items wait in each queue; beyond that callers get 503 `overloaded`, and before if they would
        /// wait for more than half of `request_timeout`.
        queue_max: usize = 4096, in 1..=1_000_000;
        /// How many callers may wait in line for one resource; beyond that they get 429 `queue-full`.
        waiters_max: usize = 10_000, in 1..=1_000_000;
        /// How many items go into one act of the ledger.
        batch_max: usize = 64, in 1..=256;
        /// How many batches of writes are under way at a time.
        committers: usize = 1, in 1..=16;
        /// How many bytes the bodies of all requests under way may take, from 1 MiB to 64 GiB; beyond that a request is refused with 503
        /// `overloaded`. An eighth of it is kept for JSON bodies, so that payloads that stall keep nobody from a
        /// lock. Half of it may belong to commits of which a large body is still on its way; further ones are
        /// refused likewise.
        bodies_bytes_max: usize = 128 * 1024 * 1024, in (1 << 20)..=(64 << 30);
        /// How many connections are open at a time, behind `listen`. One that sends no request within 10 s of its
        /// beginning is closed. Four fifths of them may wait for something (a lock, a change, events); further such
        /// calls get 503 `overloaded`, so that a release, a renewal or a break gets through.
        connections_max: usize = 10_000, in 1..=1_000_000;
        /// How long the body of a request may take as a whole; beyond that 408.
        body_timeout: Duration = MINUTE, in SECOND..=HOUR;
        /// How long the body of a request may stall; beyond that 408.
        body_idle_timeout: Duration = 10 * SECOND, in 100 * MILLISECOND..=HOUR;
        /// How long a gateway that was told to stop goes on taking requests while `/readyz` says no, so that load
        /// balancers notice.
        drain_delay: Duration = 500 * MILLISECOND, in Duration::ZERO..=HOUR;
        /// How long a gateway that was told to stop waits for requests in flight.
        drain_timeout: Duration = 25 * SECOND, in Duration::ZERO..=HOUR;
    }
    "Upstreams" {
        /// HTTP services that are fronted as a fenced reverse proxy; see [upstreams.md](upstreams.md). In the file
        /// each is a table `[[upstreams]]`; elsewhere it is `key=value` pairs between commas, such as
        /// `name=crm,url=http://crm:8000,resource=/customers/{resource},resource_form=digits,guarantee=drained`.
        /// All gateways of a ledger need the same.
        upstreams: Vec<Upstream>, takes "list of tables", flag "KEY=VALUE,...";
    }
    "S3" {
        /// Where to speak S3, for tools that speak nothing else. Another address than one of this machine needs what `listen`
        /// needs, and has the same certificate.
        s3_listen: Option<SocketAddr>, takes "IP address and port", flag "ADDR:PORT";
        /// Where callers reach that, as they are told: `http://HOST:PORT` or `https://HOST:PORT`. By default it is
        /// `s3_listen`; to be said where that is `0.0.0.0` or `[::]`, and with `tls = "proxy"`.
        s3_endpoint: Option<String>, takes "a URL without a path", flag "URL";
        /// The name below which each bucket has a name of its own: with `s3.example.com` the bucket `lake` is also
        /// reached as `lake.s3.example.com`. Without it, buckets are the first part of the path.
        s3_domain: Option<HostName>, takes "a name of a host, without a port", flag "NAME";
        /// The region that is told to callers. They may sign for any. Not one that AWS has: for those, boto3 and the AWS CLI make
        /// URLs with signatures of version 2, which is not served.
        s3_region: String = "fencegate".into(), takes "1 to 63 of `a-z 0-9 -`", flag "REGION";
        /// What may be done without a key.
        s3_anonymous: S3Anonymous = S3Anonymous::None, flag "WHAT";
        /// Which calls are done once, however often an SDK sends them, by the id that it gives to all attempts of one
        /// call: `all`, or those with a condition alone (`conditional`), whose repetition would be told that the
        /// condition fails.
        s3_once: S3Once = S3Once::All, flag "WHICH";
        /// Root of all access keys of S3: whoever knows it can make the key of any lock. `s3_listen` beside
        /// `postgres` needs it, the same on all gateways: `openssl rand -hex 32` makes one. By default a data directory has
        /// its own, in the file `s3.root`, which is made. With two, the first one makes keys, and those of both are good,
        /// so that one can [follow the other](runbook.md#change-the-root-of-access-keys). What it is, is
        /// [agreed](#what-all-gateways-have-alike), as a digest; it is not in the ledger itself.
        s3_root: Option<S3Root>, takes "64 hexadecimal digits, or two such separated by a comma";
        /// How long the parts of an upload in parts are kept that nobody has completed. Agreed in the ledger.
        multipart_kept: Duration = 7 * DAY, in HOUR..=TEN_YEARS;
    }
    "What is remembered" {
        /// How long an `Idempotency-Key` is remembered, and what came of a request to a drained
        /// [upstream](upstreams.md). A retry after that is a new write. A writer may ask for less, from `1m`, with
        /// [`X-Fence-Key-Kept`](decisions/0018-keys-say-how-long.md).
        keys_kept: Duration = 7 * DAY, in MINUTE..=TEN_YEARS;
        /// How long a lock that has ended can be asked about.
        ended_locks_kept: Duration = DAY, in MINUTE..=TEN_YEARS;
        /// How long the ids are remembered of writes and locks whose callers were told that they never were. Set it
        /// longer than any gateway can be paused: one that wakes up later could still carry out a write that its
        /// caller was told had not happened.
        buried_kept: Duration = DAY, in MINUTE..=TEN_YEARS;
        /// How long replaced versions of objects stay readable with `?version=`. Every replaced payload takes room
        /// for that long. Those in the blob store stay readable anyway for as long as `reader_grace` and
        /// `rollback_horizon` keep them.
        versions_kept: Duration = Duration::ZERO, in Duration::ZERO..=TEN_YEARS;
        /// How long the history of a resource is kept: its grants, its operations and their events. For ever, if
        /// this is not set. The newest grant and the newest operation of a resource always stay, so that versions
        /// and tags go on. See [what stays behind](performance.md#what-stays-behind) for the bytes that this is
        /// about. It is at least a day, and no shorter than what else is remembered of locks and writes.
        history_kept: Option<Duration>, takes "1day to 10 years";
        /// How many refused writes are kept for `GET /rejections`; the oldest go first. Those with unknown tokens,
        /// which anybody can make up, are counted by resource and minute, and a tenth as many entries of them are
        /// kept beside.
        rejections_max: i64 = 100_000, in 0..=10_000_000;
        /// How often what was kept long enough is removed: all of it, in passes that leave half of the time to
        /// others.
        sweep_interval: Duration = 10 * SECOND, in 100 * MILLISECOND..=HOUR;
    }
    "Seeing" {
        /// Resources whose names begin with one of these appear in `/metrics` one by one: how often each was
        /// granted (`fencegate_resource_grants_total`), for how long it has been held, when it was renewed. No
        /// metric has a token. Each is a time series of its own, so choose prefixes with few names behind them.
        metrics_prefix: Vec<String>, takes "list of beginnings of resource names", flag "PREFIX";
        /// Where operators have [their page](operators.md), at `/ui/`. `auto`: at each address of `admin_listen`; without
        /// one at `listen`, while that is a loopback address. `on`: the same, whoever reaches `listen`. `readonly`: as
        /// `on`, but without buttons; who may do what is said by [rules of access](access.md) alone.
        ui: Ui = Ui::Auto, flag "WHERE";
        /// What to log, on standard error: a level (`error`, `warn`, `info`, `debug`, `trace`, `off`), or
        /// directives such as `info,fencegate=debug`. The line of each request has the target `request`: `info,request=off`
        /// leaves those out, `info,request=warn` all but those of failures and of writers that were fenced off.
        log: String = "info".into(), takes "a filter", flag "FILTER";
        /// Lines for people, or one JSON object per line.
        log_format: LogFormat = LogFormat::Text, flag "FORMAT";
    }
}
