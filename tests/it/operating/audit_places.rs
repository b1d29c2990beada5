//! Checkpoints of the audit outside of the ledger: in etcd, in the blob store and at a witness; and what they tell of a ledger,
//! or an etcd, that went back.
#![expect(clippy::unwrap_used, reason = "tests and their helpers may panic")]
#![expect(clippy::disallowed_methods, reason = "the witness is a server of its own")]

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::post;
use base64::prelude::{BASE64_STANDARD, Engine as _};
use fence_core::wire::Lock;
use fence_tests::gateway::{Gateway, Settings};
use fence_tests::process::eventually;
use fencegate_audit::{Checkpoint, Hash, SignedNote, SigningKey, is_beginning};
use tempfile::TempDir;

use crate::disasters::refence::Site;
use crate::setup::SetUp;

const WITNESS: &str = "witness.example.org";

/// A witness as C2SP `tlog-witness` has it: it signs what has only grown since it last looked.
#[derive(Clone)]
struct Witness {
    seen: Arc<Mutex<(u64, Hash)>>,
    address: SocketAddr,
}

impl Witness {
    async fn start() -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let witness = Self { seen: Arc::new(Mutex::new((0, [0; 32]))), address };
        let app = Router::new().route("/at/add-checkpoint", post(Self::add));
        let app = app.with_state(witness.clone());
        tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
        witness
    }

    fn key() -> SigningKey {
        SigningKey::of_witness(WITNESS, &[3; 32]).unwrap()
    }

    async fn add(State(witness): State<Self>, body: String) -> (StatusCode, String) {
        let (proof, note) = body.split_once("\n\n").unwrap();
        let mut lines = proof.lines();
        let old: u64 = lines.next().unwrap().strip_prefix("old ").unwrap().parse().unwrap();
        let hash = |line| BASE64_STANDARD.decode(line).unwrap().try_into().unwrap();
        let proof: Vec<Hash> = lines.map(hash).collect();
        let (note, checkpoint) = read(note);
        let mut seen = witness.seen.lock().unwrap();
        if old != seen.0 {
            return (StatusCode::CONFLICT, format!("{}\n", seen.0));
        }
        let now = (checkpoint.size, checkpoint.root);
        let has_grown = old == 0 || is_beginning((seen.0, &seen.1), (now.0, &now.1), &proof);
        if !has_grown {
            return (StatusCode::UNPROCESSABLE_ENTITY, String::new());
        }
        *seen = now;
        (StatusCode::OK, Self::key().witness(&note, 1_800_000_000))
    }

    fn size(&self) -> u64 {
        self.seen.lock().unwrap().0
    }
}

fn read(note: &str) -> (SignedNote, Checkpoint) {
    let note: SignedNote = note.parse().unwrap();
    let checkpoint = note.checkpoint().unwrap();
    (note, checkpoint)
}

/// A key file for a gateway.
fn key_file(home: &TempDir) -> PathBuf {
    let file = home.path().join("audit.key");
    std::fs::write(&file, "07".repeat(32)).unwrap();
    std::fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    file
}

fn signing(settings: Settings, home: &TempDir) -> Settings {
    settings.flag("--audit-key-file", key_file(home).to_str().unwrap())
}

async fn grants(gateway: &Gateway, name: &str, count: usize) {
    for number in 0..count {
        let _lock: Lock = gateway.client().acquire(&format!("{name}:{number}"), "10m").await;
    }
}

/// The gateway's own checkpoint once it has so many leaves.
async fn sealed(gateway: &Gateway, size: u64) -> String {
    eventually("the audit is sealed", async || {
        let answer = gateway.client().get("/audit/checkpoint").send().await;
        let note = (answer.status == 200).then(|| answer.text())?;
        (read(&note).1.size >= size).then_some(note)
    })
    .await
}

async fn expect(gateway: &Gateway, code: i32, says: &[&str]) {
    let (found, out, log) = gateway.run(&["audit", "verify"]).await;
    assert_eq!(found, Some(code), "{out}{log}");
    for said in says {
        assert!(out.contains(said), "{said}: {out}{log}");
    }
}

async fn a_witness_signs_what_has_only_grown(setup: SetUp) {
    let (home, witness) = (TempDir::new().unwrap(), Witness::start().await);
    let url = format!("http://{}/at/", witness.address);
    let settings = signing(setup.settings().await, &home).flag("--audit-witness", &url);
    let mut gateway = settings.start().await;
    grants(&gateway, "a", 3).await;
    sealed(&gateway, 3).await;
    eventually("the witness has seen them", async || (witness.size() >= 3).then_some(())).await;
    // A gateway that starts anew is told from where to prove.
    gateway.restart().await;
    grants(&gateway, "b", 300).await;
    let size = read(&sealed(&gateway, 303).await).1.size;
    eventually("it has seen more", async || (witness.size() >= size).then_some(())).await;
    let note = eventually("what it has signed is kept", async || {
        let call = gateway.client().get("/audit/checkpoint").query("witnessed", "true");
        let answer = call.send().await;
        let note = (answer.status == 200).then(|| read(&answer.text()))?;
        let is_signed = note.0.is_witnessed_by(Witness::key().public()).is_some();
        (note.1.size >= size && is_signed).then_some(note.0)
    })
    .await;
    assert_eq!(note.is_witnessed_by(Witness::key().public()), Some(1_800_000_000));
    expect(&gateway, 0, &["has a checkpoint of", "sound"]).await;
    // It has seen more than there is: somebody has begun anew, and that is not signed.
    *witness.seen.lock().unwrap() = (1_000_000, [1; 32]);
    grants(&gateway, "c", 1).await;
    eventually("that is counted", async || {
        let metrics = gateway.client().get("/metrics").send().await.text();
        let failed = metrics.lines().find(|line| {
            line.starts_with("fencegate_audit_witness_failures_total{place=\"witness ")
        })?;
        (!failed.ends_with(" 0")).then_some(())
    })
    .await;
    gateway.logged("it has seen 1000000 leaves, and there are").await;
}

crate::setup::on_both!(a_witness_signs_what_has_only_grown);

/// A gateway on etcd, what etcd has of its audit, and the key for that.
struct OnEtcd {
    gateway: Gateway,
    etcd: fence_tests::etcd::Etcd,
    key: String,
    _home: TempDir,
}

impl OnEtcd {
    async fn start() -> Self {
        let (home, etcd) = (TempDir::new().unwrap(), fence_tests::etcd::Etcd::dedicated().await);
        let postgres = fence_tests::postgres::Postgres::shared().await;
        let url = postgres.url(&postgres.database_name().await);
        let prefix = etcd.prefix();
        let settings = Gateway::clustered(&url, &etcd.endpoint(), &prefix);
        let key = format!("{prefix}/audit");
        let gateway = signing(settings, &home).start().await;
        Self { gateway, etcd, key, _home: home }
    }

    async fn kept(&self) -> Option<String> {
        let answer = self.etcd.client().await.kv_client().get(&*self.key, None).await.unwrap();
        Some(answer.kvs().first()?.value_str().unwrap().to_owned())
    }

    /// What `audit verify` comes to when etcd has this. The gateway's own checkpoint may be on its way there once more.
    async fn expect_beside(&self, note: &str, code: i32, says: &str) {
        eventually(&format!("{code}: {says}"), async || {
            self.etcd.client().await.kv_client().put(&*self.key, note, None).await.unwrap();
            let (found, out, _) = self.gateway.run(&["audit", "verify"]).await;
            (found == Some(code) && out.contains(says)).then_some(())
        })
        .await;
    }

    async fn kept_with(&self, size: u64) -> String {
        eventually("etcd has the checkpoint", async || {
            let note = self.kept().await?;
            (read(&note).1.size >= size).then_some(note)
        })
        .await
    }
}

#[tokio::test]
async fn etcd_that_is_behind_ahead_or_wiped_is_named() {
    let it = OnEtcd::start().await;
    grants(&it.gateway, "a", 2).await;
    let old = it.kept_with(2).await;
    grants(&it.gateway, "b", 2).await;
    let newest = it.kept_with(4).await;
    expect(&it.gateway, 0, &["etcd has a checkpoint of 4 leaves", "sound"]).await;
    // Behind: what it has is the beginning of what there is.
    it.expect_beside(&old, 0, "etcd has a checkpoint of 2 leaves").await;
    // Ahead: it has seen what the ledger does not have.
    let key = SigningKey::of_log(&read(&newest).1.origin, &[7; 32]).unwrap();
    let ahead = Checkpoint { size: 9, root: [9; 32], ..read(&newest).1 };
    let told = "truncated: there are 4 leaves, and a checkpoint has seen 9";
    it.expect_beside(&key.sign(&ahead).to_string(), 4, told).await;
    // Other leaves.
    let forked = key.sign(&Checkpoint { size: 3, ..ahead.clone() }).to_string();
    let told = "forked: a checkpoint of generation 0 has seen other leaves";
    it.expect_beside(&forked, 5, told).await;
    // Of a key that nobody trusts.
    let other = SigningKey::of_log(&ahead.origin, &[8; 32]).unwrap();
    let strange = other.sign(&read(&old).1).to_string();
    it.expect_beside(&strange, 6, "not signed: the checkpoint of 2 leaves").await;
    // Wiped, and filled again as the audit grows.
    it.etcd.client().await.kv_client().delete(&*it.key, None).await.unwrap();
    grants(&it.gateway, "c", 1).await;
    it.kept_with(5).await;
    // It may be on its way there once more.
    eventually("etcd is seen to have none", async || {
        it.etcd.client().await.kv_client().delete(&*it.key, None).await.unwrap();
        let (code, out, log) = it.gateway.run(&["audit", "verify"]).await;
        assert_eq!(code, Some(0), "{out}{log}");
        out.contains("etcd has no checkpoint").then_some(())
    })
    .await;
}

#[tokio::test]
async fn what_a_ledger_lost_that_went_back_is_told() {
    let (site, home) = (Site::new().await, TempDir::new().unwrap());
    let gateway = signing(site.gateway("auto"), &home).start().await;
    let key = format!("{}/audit", site.prefix);
    let kept = async |size: u64| {
        eventually("etcd has the checkpoint", async || {
            let answer = site.etcd.client().await.kv_client().get(&*key, None).await.unwrap();
            let (_, checkpoint) = read(answer.kvs().first()?.value_str().unwrap());
            (checkpoint.size >= size).then_some(checkpoint)
        })
        .await
    };
    grants(&gateway, "known", 3).await;
    kept(3).await;
    site.standby.caught_up(&site.primary).await;
    site.standby.stop_following().await;
    grants(&gateway, "lost", 2).await;
    let lost = kept(5).await;
    site.fail_over().await;
    eventually("it grants again", async || {
        let body = serde_json::json!({ "resource": "later", "owner": "x", "ttl": "10m" });
        let answer = gateway.client().post("/locks", &body).send().await;
        (answer.status == 201).then_some(())
    })
    .await;
    let after = eventually("the new generation is kept", async || {
        let note = kept(0).await;
        (note.generation > lost.generation).then_some(note)
    })
    .await;
    assert!(after.size >= 3, "{after:?}");
    let root = hex::encode(lost.root);
    let told =
        format!("goes on from 3 leaves; generation 0 had 5, root {root}; 2 entries are lost");
    // The entry of the fork is sealed with the step after its own.
    eventually("that is sealed, too", async || {
        let (code, out, log) = gateway.run(&["audit", "verify"]).await;
        assert_eq!(code, Some(0), "{out}{log}");
        out.contains(&told).then_some(())
    })
    .await;
    // Whoever has kept what was lost finds it explained, and another end not.
    let signing = SigningKey::of_log(&lost.origin, &[7; 32]).unwrap();
    let file = home.path().join("kept");
    for (checkpoint, code) in [(lost.clone(), 0), (Checkpoint { root: [1; 32], ..lost }, 5)] {
        std::fs::write(&file, signing.sign(&checkpoint).to_string()).unwrap();
        let args = ["audit", "verify", "--checkpoint", file.to_str().unwrap()];
        let (found, out, log) = gateway.run(&args).await;
        assert_eq!(found, Some(code), "{out}{log}");
    }
}
