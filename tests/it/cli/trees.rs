//! Trees of objects and of files: a folder ends at `/`, no two sources have one target, and what is left out is told.

use fence_tests::s3::Request;

use super::{Said, call};
use crate::setup::{SetUp, on_both};

on_both!(a_folder_ends_at_a_slash, no_two_sources_have_one_target, odd_keys_stop_nothing);

/// Stores objects under these keys, each of which is its own content.
async fn store(url: &str, resource: &str, keys: &[&str]) {
    let folder = tempfile::tempdir().unwrap();
    let put = |(number, key): (usize, &&str)| {
        let file = folder.path().join(number.to_string());
        std::fs::write(&file, key).unwrap();
        ["--put".to_owned(), format!("{resource}/{key}={}", file.display())]
    };
    let puts: Vec<String> = keys.iter().enumerate().flat_map(put).collect();
    let mut words = vec!["commit", "--lock"];
    words.extend(puts.iter().map(String::as_str));
    call(url, &words).await.with(0);
}

async fn keys(url: &str, words: &[&str]) -> Vec<String> {
    let said = call(url, &[&["ls", "-o", "name"], words].concat()).await.with(0).out();
    said.lines().map(str::to_owned).collect()
}

/// The names that a call says it has left out.
fn left_out(said: &Said) -> usize {
    said.err().lines().filter(|line| line.starts_with("fence: left out ")).count()
}

async fn a_folder_ends_at_a_slash(setup: SetUp) {
    let gateway = setup.start().await;
    let url = &gateway.url();
    store(url, "c:1", &["dir/1", "dir1", "dir-backup/x", "directory"]).await;
    let home = tempfile::tempdir().unwrap();
    for (from, name) in [("fg:c:1/dir", "bare"), ("fg:c:1/dir/", "slash")] {
        let to = home.path().join(name);
        call(url, &["cp", "-R", from, to.to_str().unwrap()]).await.with(0);
        assert_eq!(std::fs::read_to_string(to.join("1")).unwrap(), "dir/1");
        assert_eq!(std::fs::read_dir(&to).unwrap().count(), 1, "{from}");
    }
    assert_eq!(keys(url, &["c:1/dir"]).await, ["dir/1"]);
    assert_eq!(keys(url, &["c:1", "--prefix", "dir-"]).await, ["dir-backup/x"]);
    assert_eq!(keys(url, &["c:1/dir-backup", "--prefix", "x"]).await, ["dir-backup/x"]);
    // Nothing lies there: whoever meant a prefix is told.
    let to = home.path().join("none");
    for words in [
        &["cp", "-R", "fg:c:1/direct", to.to_str().unwrap()][..],
        &["rm", "-R", "c:1/direct", "-y", "--lock"],
    ] {
        let said = call(url, words).await.with(3);
        assert!(said.err().contains("no object below c:1/direct/"), "{said:?}");
    }
    assert!(!to.exists());
    call(url, &["rm", "-R", "c:1/dir", "-y", "--lock"]).await.with(0);
    assert_eq!(keys(url, &["c:1"]).await, ["dir-backup/x", "dir1", "directory"]);
    // A target that is a folder takes the name of the source.
    let file = home.path().join("bare/1");
    call(url, &["cp", file.to_str().unwrap(), "fg:c:1/new/", "--lock"]).await.with(0);
    call(url, &["cp", "fg:c:1/new/1", "fg:c:2/", "--lock"]).await.with(0);
    assert_eq!(
        (keys(url, &["c:1/new"]).await, keys(url, &["c:2"]).await),
        (vec!["new/1".into()], vec!["1".into()])
    );
}

async fn no_two_sources_have_one_target(setup: SetUp) {
    let gateway = setup.start().await;
    let url = &gateway.url();
    store(url, "r", &["d/a", "d/a/b", "d/x", "d/x.part", "d/y"]).await;
    let home = tempfile::tempdir().unwrap();
    let to = home.path().join("to");
    for jobs in ["1", "64"] {
        let words = ["cp", "-R", "--jobs", jobs, "fg:r/d", to.to_str().unwrap()];
        let said = call(url, &words).await.with(1);
        assert_eq!(left_out(&said), 2, "{said:?}");
        assert!(said.err().contains("\"d/a\"") && said.err().contains("\"d/x.part\""), "{said:?}");
        for name in ["a/b", "x", "y"] {
            assert_eq!(std::fs::read_to_string(to.join(name)).unwrap(), format!("d/{name}"));
        }
        assert!(!to.join("x.part").exists());
    }
    // What cannot be written for what is there already keeps back no other.
    std::fs::remove_file(to.join("y")).unwrap();
    std::fs::create_dir_all(to.join("x.part")).unwrap();
    std::fs::remove_file(to.join("x")).unwrap();
    let said = call(url, &["cp", "-R", "fg:r/d", to.to_str().unwrap()]).await.with(1);
    assert_eq!(left_out(&said), 3, "{said:?}");
    assert_eq!(std::fs::read_to_string(to.join("y")).unwrap(), "d/y");
    // Of files: a link is left out, and so all of what is to be all or nothing.
    std::os::unix::fs::symlink("y", to.join("link")).unwrap();
    let from = to.to_str().unwrap();
    let said = call(url, &["cp", "-R", from, "fg:all/t", "--atomic", "--lock"]).await.with(2);
    assert!(said.err().contains("nothing was copied"), "{said:?}");
    call(url, &["ls", "all"]).await.with(3);
    let said = call(url, &["cp", "-R", from, "fg:up/t", "--lock"]).await.with(1);
    assert!(left_out(&said) == 1 && said.err().contains("a link"), "{said:?}");
    assert_eq!(keys(url, &["up"]).await, ["t/a/b", "t/y"]);
}

/// Keys that S3 has, and no path of the gateway's own API.
async fn odd_keys_stop_nothing(setup: SetUp) {
    let (gateway, s3, lock, key) = super::lake(setup).await;
    let url = &gateway.url();
    let odd = ["d/", "d//x", "d/\u{1}"];
    for name in odd.into_iter().chain(["d/a", "d/z"]) {
        let put = Request::put(&format!("/lake/{name}"), name).sign(s3, &key).send(s3).await;
        assert_eq!(put.status, 200, "{name:?}: {}", put.text());
    }
    let home = tempfile::tempdir().unwrap();
    let to = home.path().join("to");
    let said = call(url, &["cp", "-R", "fg:lake/d", to.to_str().unwrap()]).await.with(1);
    assert_eq!(left_out(&said), odd.len(), "{said:?}");
    assert!(said.err().contains(r#""d/\u{1}""#), "what a terminal obeys is not shown as it is");
    for name in ["a", "z"] {
        assert_eq!(std::fs::read_to_string(to.join(name)).unwrap(), format!("d/{name}"));
    }
    let (token, id) = (lock.token.to_string(), lock.id.to_string());
    let words = ["rm", "-R", "lake/d", "-y", "--token", &token, "--lock-id", &id];
    let said = call(url, &words).await.with(1);
    assert_eq!(left_out(&said), odd.len(), "{said:?}");
    let left = call(url, &["ls", "lake", "--json"]).await.with(0).json();
    let left: Vec<_> =
        left["items"].as_array().unwrap().iter().map(|it| it["key"].as_str().unwrap()).collect();
    assert_eq!(left.len(), odd.len(), "{left:?}");
    assert!(odd.iter().all(|key| left.contains(key)), "{left:?}");
}
