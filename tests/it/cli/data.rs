//! Objects by hand: put, get, list, remove, copy, commit, edit, log and diff.

use super::{Dev, call, call_with, end, fence, on_a_terminal};
use crate::setup::{SetUp, on_both};

on_both!(
    objects_go_up_and_down,
    a_write_needs_a_token,
    trees_are_copied,
    commits_are_all_or_nothing,
    an_object_is_edited,
);

async fn objects_go_up_and_down(setup: SetUp) {
    let gateway = setup.start().await;
    let url = &gateway.url();
    let said = call_with(url, &["put", "r", "a.txt", "--lock"], b"hello").await.with(0);
    assert!(said.out().starts_with("r/a.txt is version 1"), "{said:?}");
    assert_eq!(call(url, &["get", "r", "a.txt"]).await.with(0).out(), "hello");
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    std::fs::write(&file, vec![7; 300_000]).unwrap();
    let path = file.to_str().unwrap();
    call(url, &["put", "r", "dir/b.bin", path, "--lock", "--type", "image/png"]).await.with(0);
    let back = folder.path().join("back");
    call(url, &["get", "r", "dir/b.bin", "--out", back.to_str().unwrap()]).await.with(0);
    assert_eq!(std::fs::read(&back).unwrap(), vec![7; 300_000]);
    let head = call(url, &["get", "r", "dir/b.bin", "--head", "--json"]).await.with(0).json();
    assert_eq!((&head["size"], &head["content_type"]), (&300_000.into(), &"image/png".into()));
    // Some of it, and only if it is news.
    assert_eq!(call(url, &["get", "r", "a.txt", "--range", "1-3"]).await.with(0).out(), "ell");
    assert_eq!(call(url, &["get", "r", "a.txt", "--range", "3-"]).await.with(0).out(), "lo");
    call(url, &["get", "r", "a.txt", "--range", "9-"]).await.with(2);
    call(url, &["get", "r", "a.txt", "--range", "3-1"]).await.with(2);
    let etag = head["etag"].as_str().unwrap();
    let words = ["get", "r", "dir/b.bin", "--if-none-match", etag];
    assert_eq!(call(url, &words).await.with(0).out(), "");
    std::fs::write(&back, "kept").unwrap();
    let to = ["--out", back.to_str().unwrap()];
    let said = call(url, &[&words[..], &to].concat()).await.with(0);
    assert!(said.err().contains("has not changed"), "{said:?}");
    assert_eq!(std::fs::read(&back).unwrap(), b"kept");
    let words = ["get", "r", "dir/b.bin", "--if-none-match", "\"g9-v9\"", to[0], to[1]];
    assert!(call(url, &words).await.with(0).err().contains("sha256"));
    assert_eq!(std::fs::read(&back).unwrap(), vec![7; 300_000]);
    // Conditions.
    let tag = call(url, &["get", "r", "a.txt", "--head", "--json"]).await.json()["etag"].clone();
    let tag = tag.as_str().unwrap();
    call_with(url, &["put", "r", "a.txt", "--lock", "--if-match", tag], b"two").await.with(0);
    call_with(url, &["put", "r", "a.txt", "--lock", "--if-match", tag], b"three").await.with(6);
    call_with(url, &["put", "r", "a.txt", "--lock", "--if-absent"], b"three").await.with(6);
    // Once, however often.
    for _ in 0..2 {
        let words = ["put", "r", "once", "--lock", "--idempotency-key", "message-7"];
        call_with(url, &words, b"1").await.with(0);
    }
    let names = call(url, &["ls", "r", "-o", "name"]).await.with(0).out();
    assert_eq!(names, "a.txt\ndir/b.bin\nonce\n");
    assert_eq!(call(url, &["ls", "r/dir/", "-o", "name"]).await.with(0).out(), "dir/b.bin\n");
    assert_eq!(call(url, &["ls", "-o", "name"]).await.with(0).out(), "r\n");
    let log = call(url, &["log", "r", "a.txt", "-o", "name"]).await.with(0).out();
    assert_eq!(log, "3\n1\n");
    call(url, &["rm", "r", "a.txt", "once", "--lock"]).await.with(0);
    call(url, &["rm", "-R", "r/dir", "--yes", "--lock"]).await.with(0);
    assert_eq!(call(url, &["ls", "r", "-o", "name"]).await.with(0).out(), "");
    call(url, &["get", "r", "a.txt"]).await.with(3);
}

async fn a_write_needs_a_token(setup: SetUp) {
    let gateway = setup.start().await;
    let url = &gateway.url();
    let said = call_with(url, &["put", "r", "k"], b"x").await.with(2);
    assert!(said.err().contains("--lock") && said.err().contains("fence run"), "{said:?}");
    let lock = call(url, &["lock", "-r", "r", "--json"]).await.with(0).json();
    let (id, token) = (lock["id"].as_str().unwrap(), lock["token"].as_str().unwrap());
    let under = ["--token", token, "--lock-id", id];
    call_with(url, &[&["put", "r", "k"][..], &under].concat(), b"x").await.with(0);
    call(url, &["put", "r", "k", "--lock"]).await.with(4);
    call(url, &["unlock", id]).await.with(0);
    let said = call_with(url, &[&["put", "r", "k"][..], &under].concat(), b"y").await.with(5);
    assert!(said.err().contains("start over"), "{said:?}");
    assert_eq!(call(url, &["get", "r", "k"]).await.out(), "x");
}

async fn trees_are_copied(setup: SetUp) {
    let gateway = setup.start().await;
    let url = &gateway.url();
    let folder = tempfile::tempdir().unwrap();
    let (from, to) = (folder.path().join("from"), folder.path().join("to"));
    std::fs::create_dir_all(from.join("deep/er")).unwrap();
    for name in ["a", "b", "deep/c", "deep/er/d"] {
        std::fs::write(from.join(name), name.repeat(1000)).unwrap();
    }
    let (source, target) = (from.to_str().unwrap(), to.to_str().unwrap());
    let said = call(url, &["cp", "-R", source, "fg:r/tree", "--lock", "-o", "jsonl"]).await.with(0);
    assert_eq!(said.out().lines().count(), 4);
    call(url, &["cp", "-R", "fg:r/tree", target]).await.with(0);
    for name in ["a", "b", "deep/c", "deep/er/d"] {
        assert_eq!(std::fs::read(to.join(name)).unwrap(), std::fs::read(from.join(name)).unwrap());
    }
    call(url, &["cp", "fg:r/tree/a", "fg:s/a", "--lock"]).await.with(0);
    let one = folder.path().join("one");
    call(url, &["cp", "fg:s/a", one.to_str().unwrap()]).await.with(0);
    assert_eq!(std::fs::read_to_string(one).unwrap(), "a".repeat(1000));
    call(url, &["cp", source, target]).await.with(2);
    // All at once: one version, or none.
    let words = ["cp", "-R", source, "fg:once/tree", "--atomic", "--lock", "-o", "name"];
    let said = call(url, &words).await.with(0);
    assert_eq!(said.out(), "tree/a\ntree/b\ntree/deep/c\ntree/deep/er/d\n");
    assert_eq!(call(url, &["log", "once", "-o", "name"]).await.with(0).out(), "1\n");
    for number in 0..1_000 {
        std::fs::write(from.join(number.to_string()), "x").unwrap();
    }
    let words = ["cp", "-R", source, "fg:many/tree", "--atomic", "--lock"];
    let said = call(url, &words).await.with(2);
    assert!(said.err().contains("1000 operations"), "{said:?}");
    call(url, &["cp", "-R", "fg:once/tree", target, "--atomic"]).await.with(2);
}

#[tokio::test]
async fn long_transfers_show_how_far_they_are() {
    let gateway = Dev::start().await;
    let folder = tempfile::tempdir().unwrap();
    let (file, back) = (folder.path().join("large"), folder.path().join("back"));
    std::fs::write(&file, vec![7; 40 << 20]).unwrap();
    let (file, back) = (file.display(), back.display());
    for words in [
        format!("put r k {file} --lock"),
        format!("get r k --out {back}"),
        "get r k > /dev/null".to_owned(),
        format!("cp {file} fg:r/k --lock"),
        format!("cp fg:r/k {back}"),
    ] {
        let shown = end(on_a_terminal(gateway.url(), &words).spawn().unwrap()).await.with(0);
        assert!(shown.out().contains("of 41.94 MB"), "{words}: {shown:?}");
        // Off a terminal nobody sees it.
        let line = format!("{} {words}", super::binary().display());
        let mut plain = tokio::process::Command::new("sh");
        let plain = plain.args(["-c", &line]).env("FENCE_URL", gateway.url());
        let mut plain = plain.output().await.unwrap();
        plain.stdout.append(&mut plain.stderr);
        assert!(!String::from_utf8_lossy(&plain.stdout).contains(" left"), "{plain:?}");
    }
}

async fn commits_are_all_or_nothing(setup: SetUp) {
    let gateway = setup.start().await;
    let url = &gateway.url();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("x");
    std::fs::write(&file, "from a file").unwrap();
    let put = format!("a/k={}", file.display());
    let words = ["commit", "--put", &put, "--put", &put.replace("a/k", "b/k"), "--lock", "--json"];
    let done = call(url, &words).await.with(0).json();
    assert_eq!(done["resources"].as_array().unwrap().len(), 2);
    let words = ["commit", "--delete", "a/k", "--expect", "b=7", "--lock"];
    call(url, &words).await.with(6);
    assert_eq!(call(url, &["get", "a", "k"]).await.with(0).out(), "from a file");
    let list = folder.path().join("list.json");
    let text = r#"{"operations": [{"op": "put", "resource": "a", "key": "k", "text": "from a list"},
                   {"op": "delete", "resource": "b", "key": "k"}]}"#;
    std::fs::write(&list, text).unwrap();
    call(url, &["commit", list.to_str().unwrap(), "--lock"]).await.with(0);
    assert_eq!(call(url, &["get", "a", "k"]).await.with(0).out(), "from a list");
    call(url, &["get", "b", "k"]).await.with(3);
    std::fs::write(&list, "{\"operations\": [{\"op\": \"burn\"}]}").unwrap();
    call(url, &["commit", list.to_str().unwrap(), "--lock"]).await.with(2);
}

async fn an_object_is_edited(setup: SetUp) {
    let gateway = setup.start().await;
    let url = &gateway.url();
    call_with(url, &["put", "r", "k.txt", "--lock"], b"one\n").await.with(0);
    let edit = async |editor: &str| {
        let mut command = fence(url, &["edit", "r", "k.txt"]);
        command.env("EDITOR", editor).env_remove("VISUAL");
        end(command.spawn().unwrap()).await
    };
    edit("sed -i s/one/two/").await.with(0);
    assert_eq!(call(url, &["get", "r", "k.txt"]).await.out(), "two\n");
    assert!(edit("true").await.with(0).err().contains("nothing was changed"));
    edit("false").await.with(1);
    assert_eq!(call(url, &["get", "r", "k.txt"]).await.out(), "two\n");
}

#[tokio::test]
async fn what_was_written_before_is_shown() {
    let gateway = Dev::with(&[("FENCEGATE_VERSIONS_KEPT", "1h")]).await;
    let url = gateway.url();
    for text in ["hello\n", "two\n", "two\n"] {
        call_with(url, &["put", "r", "a.txt", "--lock"], text.as_bytes()).await.with(0);
    }
    assert_eq!(call(url, &["get", "r", "a.txt", "--at", "1"]).await.with(0).out(), "hello\n");
    let diff = call(url, &["diff", "r", "a.txt", "1", "2"]).await.with(1).out();
    assert!(diff.contains("-hello") && diff.contains("+two"), "{diff}");
    call(url, &["diff", "r", "a.txt", "2"]).await.with(0);
    call(url, &["diff", "r", "a.txt", "7"]).await.with(3);
}
