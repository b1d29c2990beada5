//! The tree over the audit: what is recorded is sealed, and whoever changes it is found out.
#![expect(clippy::unwrap_used, reason = "tests and their helpers may panic")]

use std::path::{Path, PathBuf};

use fence_core::wire::{AuditProof, Lock};
use fence_tests::gateway::Gateway;
use fence_tests::postgres::Postgres;
use fence_tests::process::eventually;
use fencegate_audit::{Checkpoint, Leaf, SignedNote, VerifierKey, is_beginning, is_included};
use serde_json::json;
use tempfile::TempDir;

use crate::setup::{SetUp, on_both};

on_both!(what_is_recorded_is_sealed_and_proven, an_entry_outlives_a_kill_before_it_is_sealed,);

/// A folder for exports and checkpoints that are kept.
struct Kept(TempDir);

impl Kept {
    fn new() -> Self {
        Self(TempDir::new().unwrap())
    }

    fn file(&self, name: &str, text: &str) -> PathBuf {
        let file = self.0.path().join(name);
        std::fs::write(&file, text).unwrap();
        file
    }
}

fn read(note: &str) -> (SignedNote, Checkpoint) {
    let note: SignedNote = note.parse().unwrap();
    let checkpoint = note.checkpoint().unwrap();
    (note, checkpoint)
}

/// The checkpoint once it has so many leaves.
async fn checkpoint(gateway: &Gateway, size: u64) -> (String, Option<String>) {
    eventually("the audit is sealed", async || {
        let answer = gateway.client().get("/audit/checkpoint").send().await;
        if answer.status != 200 {
            return None;
        }
        let key = answer.header("fencegate-audit-key").map(str::to_owned);
        let note = answer.text();
        (read(&note).1.size >= size).then_some((note, key))
    })
    .await
}

/// Grants on so many resources, one of which is frozen.
async fn record(gateway: &Gateway, name: &str, grants: usize) {
    let client = gateway.client();
    for number in 0..grants {
        client.acquire(&format!("{name}:{number}"), "10m").await;
    }
    let body = json!({ "reason": "a look at \u{2603}" });
    client.post(format!("/resources/{name}:0/freeze"), &body).send().await.expect(200);
}

async fn verify(gateway: &Gateway, args: &[&str]) -> (Option<i32>, String) {
    let (code, out, log) = gateway.run(&[&["audit", "verify"], args].concat()).await;
    (code, out + &log)
}

/// What the verifier in another language says.
async fn verify_otherwise(export: &Path) -> (Option<i32>, String) {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("it/operating/verify_audit.py");
    let mut python = tokio::process::Command::new("python3");
    let told = python.arg(script).arg(export).output().await.unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (told.status.code(), text(told.stdout) + &text(told.stderr))
}

async fn exported(gateway: &Gateway, kept: &Kept) -> PathBuf {
    let (code, out, log) = gateway.run(&["audit", "export"]).await;
    assert_eq!(code, Some(0), "{log}");
    kept.file("export", &out)
}

/// The settings of a gateway that signs, and can be asked at a socket.
async fn settings(setup: SetUp, kept: &Kept) -> fence_tests::gateway::Settings {
    let file = kept.0.path().join("audit.key");
    let made = tokio::process::Command::new(fence_tests::gateway::binary())
        .args(["audit", "new-key"])
        .arg(&file)
        .output()
        .await
        .unwrap();
    assert!(made.status.success(), "{made:?}");
    setup.settings().await.flag("--audit-key-file", file.to_str().unwrap())
}

async fn what_is_recorded_is_sealed_and_proven(setup: SetUp) {
    let kept = Kept::new();
    let gateway = settings(setup, &kept).await.start().await;
    record(&gateway, "a", 3).await;
    let (first, key) = checkpoint(&gateway, 4).await;
    let key: VerifierKey = key.unwrap().parse().unwrap();
    record(&gateway, "b", 5).await;
    let (second, _) = checkpoint(&gateway, 10).await;
    let ((_, then), (note, now)) = (read(&first), read(&second));
    assert!(note.is_signed_by(&key) && now.origin == then.origin);

    let client = gateway.client();
    let hashes = |proof: &AuditProof| -> Vec<[u8; 32]> {
        proof.hashes.iter().map(|hash| hex::decode(hash).unwrap().try_into().unwrap()).collect()
    };
    let proof = client.get("/audit/proof").query("from", &then.size.to_string());
    let proof = proof.query("to", &now.size.to_string()).send().await.expect(200);
    let proof: AuditProof = proof.parse();
    assert!(is_beginning((then.size, &then.root), (now.size, &now.root), &hashes(&proof)));
    // Numbers may have gaps; the first entry has the first.
    let answer = client.get("/audit/proof").query("number", "1").send().await.expect(200);
    let proof: AuditProof = answer.parse();
    let leaf = proof.leaf.clone().unwrap();
    let digest = hex::decode(&leaf.digest).unwrap().try_into().unwrap();
    let hash = Leaf { number: leaf.number, is_grant: leaf.is_grant, digest }.hash();
    let (_, of) = read(proof.checkpoint.as_ref().unwrap());
    let index = u64::try_from(leaf.index).unwrap();
    assert!(is_included(&hash, index, of.size, &hashes(&proof), &of.root));
    for bad in ["number=0", "number=1000000", "from=0&to=1", "from=2&to=1", "from=1", ""] {
        let call = client.get(format!("/audit/proof?{bad}")).unchecked();
        call.send().await.refused(400, "query-malformed");
    }

    let earlier = kept.file("earlier", &first);
    let (code, told) = verify(&gateway, &["--checkpoint", earlier.to_str().unwrap()]).await;
    assert_eq!(code, Some(0), "{told}");
    assert!(told.contains("sound"), "{told}");
    let export = exported(&gateway, &kept).await;
    let told = verify_otherwise(&export).await;
    assert_eq!(told.0, Some(0), "{}", told.1);
    let from_file = ["--export", export.to_str().unwrap(), "--key", &key.to_string()];
    assert_eq!(verify(&gateway, &from_file).await.0, Some(0));
    // By a key that nobody trusts.
    let other = fencegate_audit::SigningKey::of_log(&now.origin, &[9; 32]).unwrap();
    let (code, told) = verify(&gateway, &["--key", &other.public().to_string()]).await;
    assert_eq!(code, Some(6), "{told}");
    // Entries have tokens, which nobody sees at a port where no rules are in force.
    let answer = client.get("/audit/export").unchecked().send().await;
    answer.refused(403, "permission-denied");
}

async fn an_entry_outlives_a_kill_before_it_is_sealed(setup: SetUp) {
    let kept = Kept::new();
    let mut gateway = settings(setup, &kept).await.start().await;
    let mut granted = 0;
    for round in 0..5 {
        for number in 0..3 {
            gateway.client().acquire(&format!("{round}:{number}"), "10m").await;
            granted += 1;
        }
        gateway.kill9();
        gateway.restart().await;
    }
    checkpoint(&gateway, granted).await;
    let (code, told) = verify(&gateway, &[]).await;
    assert_eq!(code, Some(0), "{told}");
}

/// A Postgres ledger whose administrator is up to no good.
struct Tampered {
    gateway: Gateway,
    kept: Kept,
    database: String,
}

impl Tampered {
    async fn new() -> Self {
        let (kept, postgres) = (Kept::new(), Postgres::shared().await);
        let database = postgres.database_name().await;
        let etcd = fence_tests::etcd::Etcd::shared().await;
        let url = postgres.url(&database);
        let key = kept.file("audit.key", &"07".repeat(32));
        std::fs::set_permissions(&key, std::os::unix::fs::PermissionsExt::from_mode(0o600))
            .unwrap();
        let gateway = Gateway::clustered(&url, &etcd.endpoint(), &etcd.prefix());
        let gateway = gateway.flag("--audit-key-file", key.to_str().unwrap()).start().await;
        Self { gateway, kept, database }
    }

    /// Does this to the tables, past their triggers.
    async fn execute(&self, sql: &str) {
        let sql = format!("SET session_replication_role = replica; {sql}");
        Postgres::shared().await.execute(&self.database, &sql).await;
    }

    async fn expect(&self, sql: &str, code: i32, says: &str, args: &[&str]) {
        self.execute(sql).await;
        let (found, told) = verify(&self.gateway, args).await;
        assert_eq!(found, Some(code), "{sql}: {told}");
        assert!(told.contains(says), "{sql}: {told}");
    }
}

#[tokio::test]
async fn what_was_let_go_is_told_from_what_was_removed() {
    let it = Tampered::new().await;
    let client = it.gateway.client();
    for _ in 0..4 {
        let lock: Lock = client.acquire("a", "10m").await;
        client.release(&lock).send().await.expect(204);
    }
    checkpoint(&it.gateway, 4).await;
    // What the sweeper does a day later at the earliest, and only by agreement.
    it.execute("UPDATE fencegate.agreed SET value = '0s' WHERE name = 'history_kept'").await;
    let later = "UPDATE fencegate.own_time SET at = clock_timestamp() + interval '1 hour'";
    it.execute(later).await;
    it.execute("SELECT fencegate_acts_1.prune(0, 0, 1000)").await;
    // Since, so that no leaf is of it yet.
    let _newest: Lock = client.acquire("a", "10m").await;
    it.execute("SELECT fencegate_acts_1.prune(0, 0, 1000)").await;
    checkpoint(&it.gateway, 5).await;
    let (code, told) = verify(&it.gateway, &[]).await;
    assert_eq!(code, Some(0), "{told}");
    assert!(told.contains("grants let go as history"), "{told}");
    let told = verify_otherwise(&exported(&it.gateway, &it.kept).await).await;
    assert_eq!(told.0, Some(0), "{}", told.1);
    it.expect("DELETE FROM fencegate.grants", 3, "removed: entry 5 is gone", &[]).await;
}

#[tokio::test]
async fn an_administrator_of_the_database_is_found_out() {
    let it = Tampered::new().await;
    record(&it.gateway, "a", 6).await;
    let (note, _) = checkpoint(&it.gateway, 7).await;
    let seen = it.kept.file("seen", &note);
    let seen = ["--checkpoint", seen.to_str().unwrap()];
    it.execute(
        "ALTER TABLE fencegate.audit DROP CONSTRAINT audit_number_counts;
         ALTER TABLE fencegate.grants DROP CONSTRAINT grants_number_counts",
    )
    .await;
    it.execute("CREATE TABLE public.g AS TABLE fencegate.grants; CREATE TABLE public.a AS TABLE fencegate.audit").await;
    let back =
        "TRUNCATE fencegate.grants, fencegate.audit; INSERT INTO fencegate.grants TABLE public.g;
                INSERT INTO fencegate.audit TABLE public.a;";
    for (table, column, value) in [
        ("grants", "owner", "'eve'"),
        ("grants", "at", "at + interval '1 microsecond'"),
        ("grants", "token", "token + 1"),
        ("grants", "resource", "resource || 'x'"),
        ("grants", "previous_owner", "'eve'"),
        ("grants", "previous_end", "'void'"),
        ("grants", "previous_ended_at", "at - interval '1 hour'"),
        ("grants", "how", "'transfer'"),
        ("grants", "lock_id", "gen_random_uuid()"),
        ("grants", "ordinal", "ordinal + 1"),
        ("grants", "leads", "NOT leads"),
        ("grants", "principal", "'eve'"),
        ("grants", "writers", "'{eve}'"),
        ("grants", "asked", "NULL"),
        ("audit", "asked", "replace(asked, 'peer', 'seer')"),
        ("audit", "reason", "'another'"),
        ("audit", "request_id", "'another'"),
        ("audit", "resource", "'another'"),
        ("audit", "action", "'unfreeze'"),
        ("audit", "owner", "'eve'"),
        ("audit", "token", "9"),
        ("audit", "at", "at - interval '1 microsecond'"),
    ] {
        let which = format!("number = (SELECT max(number) FROM fencegate.{table})");
        let sql = format!("{back} UPDATE fencegate.{table} SET {column} = {value} WHERE {which}");
        it.expect(&sql, 3, "altered: entry ", &[]).await;
        let told = verify_otherwise(&exported(&it.gateway, &it.kept).await).await;
        assert_eq!(told.0, Some(3), "{sql}: {}", told.1);
    }
    for number in 1..=7 {
        let sql = format!(
            "{back} DELETE FROM fencegate.grants WHERE number = {number}; DELETE FROM fencegate.audit WHERE number = {number}"
        );
        it.expect(&sql, 3, &format!("removed: entry {number} is gone"), &[]).await;
    }
    let swap = format!(
        "{back} UPDATE fencegate.grants SET number = -1 WHERE number = 2;
         UPDATE fencegate.grants SET number = 2 WHERE number = 3; UPDATE fencegate.grants SET number = 3 WHERE number = -1"
    );
    it.expect(&swap, 3, "altered: entry 2", &[]).await;
    let added = format!(
        "{back} UPDATE fencegate.audit_tiles SET numbers = numbers[:2] || numbers[4:], grants = grants[:2] || grants[4:],
         digests = substr(digests, 1, 64) || substr(digests, 97); UPDATE fencegate.audit_tree SET size = size - 1"
    );
    it.execute("CREATE TABLE public.t AS TABLE fencegate.audit_tiles; CREATE TABLE public.h AS TABLE fencegate.audit_tree").await;
    it.expect(&added, 3, "added: entry 3", &[]).await;
    let back = format!(
        "{back} TRUNCATE fencegate.audit_tiles, fencegate.audit_tree; INSERT INTO fencegate.audit_tiles TABLE public.t;
         INSERT INTO fencegate.audit_tree TABLE public.h;"
    );
    it.expect(&back, 0, "sound", &seen).await;
    // Put in below the first entry, as if it were older than all.
    let back_dated = format!(
        "{back} INSERT INTO fencegate.audit (number, at, action, resource, owner, reason)
         VALUES (-9, now() - interval '30 days', 'broken', 'a:1', 'mallory', 'by order of the board')"
    );
    it.expect(&back_dated, 3, "added: entry -9", &seen).await;
    let told = verify_otherwise(&exported(&it.gateway, &it.kept).await).await;
    assert_eq!(told.0, Some(3), "{}", told.1);
    // Everything cut off, and begun anew: the ledger's own word is good for nothing, whoever saw more knows.
    let cut = format!(
        "{back} DELETE FROM fencegate.grants; DELETE FROM fencegate.audit; DELETE FROM fencegate.audit_tiles;
         UPDATE fencegate.audit_tree SET size = 0, upto = 0, roots = '', note = NULL"
    );
    it.execute(&cut).await;
    checkpoint(&it.gateway, 0).await;
    it.expect("SELECT", 4, "truncated: there are 0 leaves, and a checkpoint has seen 7", &seen)
        .await;
    // And filled with something else.
    record(&it.gateway, "b", 8).await;
    checkpoint(&it.gateway, 9).await;
    it.expect("SELECT", 5, "forked: ", &seen).await;
}

#[tokio::test]
async fn a_number_that_no_sequence_gave_leads_the_seal_nowhere() {
    let it = Tampered::new().await;
    record(&it.gateway, "a", 3).await;
    checkpoint(&it.gateway, 4).await;
    it.execute(
        "INSERT INTO fencegate.audit (number, at, action, resource, owner, reason)
         VALUES (9000000000000000000, now(), 'broken', 'a:1', 'mallory', 'by order of the board')",
    )
    .await;
    record(&it.gateway, "b", 3).await;
    checkpoint(&it.gateway, 8).await;
    let (code, told) = verify(&it.gateway, &[]).await;
    assert_eq!(code, Some(0), "{told}");
}
