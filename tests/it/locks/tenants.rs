//! Other roles in the database of the ledger, hostile ones among them: they can neither put code of theirs in
//! place of what the acts call, nor hold what the acts wait for, nor call or lock anything that they were not
//! granted.
#![expect(clippy::unwrap_used, reason = "tests and their helpers may panic")]
#![expect(clippy::disallowed_methods, reason = "a test starts tasks of its own")]

use fence_tests::client::Client;
use fence_tests::etcd::Etcd;
use fence_tests::gateway::{Gateway, Settings};
use fence_tests::postgres::Postgres;
use fence_tests::process::eventually;
use serde_json::json;
use sqlx::{Connection as _, PgConnection};

use crate::ledger::guard::refused;
use crate::operating::commands::fencegate;
use crate::schedules::forced::{Ground, run};
use crate::setup::{random_id, take_over};

/// A database as one is on Postgres 14 or when it comes from there: everybody may create in `public`. The role
/// of the gateways owns it and is no superuser; another may log in, and use the schema, as users of `guard` do.
struct House {
    postgres: &'static Postgres,
    etcd: &'static Etcd,
    database: String,
    prefix: String,
    keeper: String,
    mallory: String,
}

impl House {
    async fn new() -> Self {
        let (postgres, etcd) = tokio::join!(Postgres::shared(), Etcd::shared());
        let mark = random_id().simple().to_string();
        let (keeper, mallory) = (format!("keeper_{mark}"), format!("mallory_{mark}"));
        let database = postgres.empty_database_name().await;
        let roles = format!("CREATE ROLE {keeper} LOGIN; CREATE ROLE {mallory} LOGIN");
        postgres.execute("postgres", &roles).await;
        let owner = format!("ALTER DATABASE {database} OWNER TO {keeper}");
        postgres.execute("postgres", &owner).await;
        postgres.execute(&database, "GRANT CREATE ON SCHEMA public TO PUBLIC").await;
        Self { postgres, etcd, database, prefix: etcd.prefix(), keeper, mallory }
    }

    fn url_of(&self, role: &str) -> String {
        self.postgres.url(&self.database).replace("serving@", &format!("{role}@"))
    }

    fn settings(&self) -> Settings {
        Gateway::clustered(&self.url_of(&self.keeper), &self.etcd.endpoint(), &self.prefix)
            .flag("--refence", "manual")
    }

    async fn mallory(&self) -> PgConnection {
        PgConnection::connect(&self.url_of(&self.mallory)).await.unwrap()
    }

    /// Has a gateway make the schema, and lets mallory in, as `docs/tables.md` says.
    async fn move_in(&self) {
        drop(self.settings().start().await);
        let usage = format!("GRANT USAGE ON SCHEMA fencegate TO {}", self.mallory);
        self.postgres.execute(&self.database, &usage).await;
    }
}

/// Two holders one after the other; the first one and a forger write late.
async fn late_writes_bounce(client: &Client) {
    let ann = client.acquire("job:1", "1s").await;
    let bob = take_over(client, "job:1").await;
    client.put("job:1", "k", "bob's").under(&bob).send().await.expect(201);
    let late = client.put("job:1", "k", "late").under(&ann).send().await;
    late.refused(412, "fence-token-stale");
    let forged = client.put("job:1", "k", "forged").token(bob.token.get() + 1000).send().await;
    forged.refused(403, "fence-token-unknown");
    assert_eq!(client.read("job:1", "k").send().await.expect(200).text(), "bob's");
}

#[tokio::test]
async fn an_operator_of_a_tenant_does_not_decide_which_tokens_are_equal() {
    let house = House::new().await;
    house.move_in().await;
    // An exact match for a domain, which goes before the one of Postgres for its base type.
    let operator = "
        CREATE FUNCTION public.yes(fencegate.natural, bigint) RETURNS boolean
        LANGUAGE sql IMMUTABLE AS 'SELECT true';
        CREATE OPERATOR public.= (
            LEFTARG = fencegate.natural, RIGHTARG = bigint, FUNCTION = public.yes)";
    run(&mut house.mallory().await, operator).await;
    let gateway = house.settings().start().await;
    late_writes_bounce(&gateway.client()).await;
}

#[tokio::test]
async fn a_function_of_a_tenant_does_not_run_with_the_rights_of_the_gateway() {
    let house = House::new().await;
    // There before the schema is, so that it would run in the migrations, too.
    let function = "
        CREATE TABLE public.loot (who text, what text);
        GRANT ALL ON public.loot TO PUBLIC;
        CREATE FUNCTION public.cardinality(text[]) RETURNS int LANGUAGE plpgsql AS $$
        BEGIN
            INSERT INTO public.loot SELECT current_user, f.lock_id::text FROM fencegate.fences f;
            INSERT INTO public.loot VALUES (current_user);
            RETURN coalesce(pg_catalog.array_length($1, 1), 0);
        END $$";
    run(&mut house.mallory().await, function).await;
    let gateway = house.settings().start().await;
    let client = gateway.client();
    late_writes_bounce(&client).await;
    // A seal, a write and a release that each have several resources.
    let body = json!({ "resources": ["job:2", "job:3"], "ttl": "10m" });
    let both = client.lock(&body).send().await.expect(201).parse();
    client.release(&both).send().await.expect(204);
    let loot = sqlx::query_scalar("SELECT count(*) FROM public.loot WHERE who <> $1");
    let loot: i64 = loot.bind(&house.mallory).fetch_one(&mut house.mallory().await).await.unwrap();
    assert_eq!(loot, 0);
}

#[tokio::test]
async fn a_start_where_others_may_create_functions_warns() {
    let house = House::new().await;
    let warning = "others may create functions in schema public";
    let gateway = house.settings().start().await;
    let line = gateway.logged(warning).await;
    assert!(line.contains("PUBLIC"), "{line}");
    drop(gateway);
    let revoke = format!(
        "REVOKE CREATE ON SCHEMA public FROM PUBLIC; GRANT CREATE ON SCHEMA public TO {}",
        house.mallory
    );
    house.postgres.execute(&house.database, &revoke).await;
    let gateway = house.settings().start().await;
    let line = gateway.logged(warning).await;
    assert!(line.contains(&house.mallory) && !line.contains("PUBLIC,"), "{line}");
    drop(gateway);
    let revoke = format!("REVOKE CREATE ON SCHEMA public FROM {}", house.mallory);
    house.postgres.execute(&house.database, &revoke).await;
    let gateway = house.settings().start().await;
    assert!(!gateway.log().contains(warning), "{}", gateway.log());
}

#[tokio::test]
async fn whoever_was_granted_nothing_may_do_nothing() {
    let house = House::new().await;
    house.move_in().await;
    let rights = "
        SELECT 'execute ' || p.oid::regprocedure FROM pg_proc p
        WHERE p.pronamespace::regnamespace::text LIKE 'fencegate%'
          AND has_function_privilege('public', p.oid, 'EXECUTE')
        UNION ALL
        SELECT 'use or lock ' || c.oid::regclass FROM pg_class c
        WHERE c.relnamespace::regnamespace::text LIKE 'fencegate%' AND c.relkind IN ('r', 'p', 'v', 'm', 'f')
          AND has_table_privilege('public', c.oid,
              'SELECT, INSERT, UPDATE, DELETE, TRUNCATE, REFERENCES, TRIGGER')
        UNION ALL
        SELECT 'use ' || c.oid::regclass FROM pg_class c
        WHERE c.relnamespace::regnamespace::text LIKE 'fencegate%' AND CASE WHEN c.relkind = 'S'
              THEN has_sequence_privilege('public', c.oid, 'USAGE, SELECT, UPDATE') END
        UNION ALL
        SELECT 'create or look in schema ' || n.nspname FROM pg_namespace n
        WHERE n.nspname LIKE 'fencegate%' AND has_schema_privilege('public', n.oid, 'USAGE, CREATE')";
    let mut operator = house.postgres.connect(&house.database).await;
    let rights: Vec<String> = sqlx::query_scalar(rights).fetch_all(&mut operator).await.unwrap();
    assert_eq!(rights, [""; 0]);

    // And what that comes to.
    let tables = "SELECT c.oid::regclass::text FROM pg_class c
                  WHERE c.relnamespace::regnamespace::text LIKE 'fencegate%' AND c.relkind = 'r'";
    let tables: Vec<String> = sqlx::query_scalar(tables).fetch_all(&mut operator).await.unwrap();
    assert!(tables.len() > 20, "{tables:?}");
    let mut mallory = house.mallory().await;
    for table in tables {
        for act in ["LOCK TABLE {} IN ACCESS SHARE MODE", "SELECT FROM {} FOR KEY SHARE"] {
            run(&mut mallory, "BEGIN").await;
            let act = act.replace("{}", &table);
            assert_eq!(refused(&mut mallory, &act).await.0, "42501", "{act}");
            run(&mut mallory, "ROLLBACK").await;
        }
    }
    for act in ["SELECT acts.gate('job:1')", "SELECT fencegate.guard('job:1', 1)"] {
        assert_eq!(refused(&mut mallory, act).await.0, "42501", "{act}");
    }
}

/// Every key that was ever one of the ledger's, and some that could be.
const ADVISORY: &str = "
    SELECT pg_advisory_lock(716519, 9), pg_advisory_lock(7165196801),
           pg_advisory_lock(hashtextextended('job:1', 1)), pg_advisory_lock(hashtextextended('job:1', 0)),
           pg_advisory_lock(hashtext('job:1')), pg_advisory_lock(hashtextextended('$id', 0))";

#[tokio::test]
async fn a_role_that_may_only_connect_holds_nothing_up() {
    let house = House::new().await;
    house.move_in().await;
    let id = random_id();
    let mut mallory = house.mallory().await;
    run(&mut mallory, &ADVISORY.replace("$id", &id.to_string())).await;

    // A start, a lock, a lane that waits for a guarded transaction, the feed.
    let gateway = house.settings().start().await;
    let client = gateway.client();
    let body = json!({ "resource": "job:1", "ttl": "10m", "id": id });
    let lock = client.lock(&body).send().await.expect(201).parse();
    let mut guarded = house.postgres.connect(&house.database).await;
    run(&mut guarded, "BEGIN; SET LOCAL lock_timeout = '5s'").await;
    run(&mut guarded, &crate::ledger::guard::guard(&lock)).await;
    let put = tokio::spawn(client.put("job:1", "k", "x").under(&lock).send());
    crate::schedules::stuck_rows::waiting(&house.database, 1).await;
    run(&mut guarded, "COMMIT").await;
    put.await.unwrap().expect(201);
    eventually("the write is in the feed", async || {
        let events = client.get("/events").send().await.expect(200).json();
        (events["items"].as_array()?.len() == 1).then_some(())
    })
    .await;

    // And a re-fence.
    let (url, endpoint) = (house.url_of(&house.keeper), house.etcd.endpoint());
    let mut args = vec!["refence", "--postgres", &url, "--etcd", &endpoint];
    args.extend(["--etcd-prefix", &house.prefix, "--reason", "test", "--force"]);
    let done = fencegate(&args, &[]).await;
    assert_eq!(done.code, Some(0), "{}{}", done.out, done.err);
    client.release(&lock).send().await.expect(204);
}

/// Whatever the acts call.
#[tokio::test]
async fn no_function_of_the_ledger_takes_an_advisory_lock() {
    let ground = Ground::new().await;
    let count =
        "SELECT count(*) FROM pg_proc p WHERE p.pronamespace::regnamespace::text LIKE 'fencegate%'
                 AND p.prosrc LIKE '%advisory%'";
    assert_eq!(ground.number(count).await, 0);
}
