//! Names and words of others are shown so that no terminal obeys them, and as they are in JSON.

use fence_tests::s3::Request;

use super::call;
use crate::setup::{SetUp, on_both};

on_both!(no_name_reaches_a_terminal_as_it_is);

async fn no_name_reaches_a_terminal_as_it_is(setup: SetUp) {
    let (gateway, s3, lock, key) = super::lake(setup).await;
    let url = &gateway.url();
    // What clears a screen, sets a title, forges a row, and turns the direction of writing.
    let odd = "d/\u{1b}[2J\u{1b}]0;t\u{7}\nforged  row\u{202e}\u{9b}";
    let put = Request::put(&format!("/lake/{odd}"), "x").sign(s3, &key).send(s3).await;
    assert_eq!(put.status, 200, "{}", put.text());
    let shown = r"d/\u{1b}[2J\u{1b}]0;t\u{7}\nforged  row\u{202e}\u{9b}";
    let home = tempfile::tempdir().unwrap();
    let (token, id) = (lock.token.to_string(), lock.id.to_string());
    for (words, rows) in [
        (&["ls", "lake"][..], 2),
        (&["ls", "lake", "-o", "wide"], 2),
        (&["ls", "lake", "-o", "name"], 1),
        (&["log", "lake"], 2),
        (&["events"], 2),
        (&["show", "lake"], 0),
    ] {
        let said = call(url, words).await.with(0).out();
        assert!(words.contains(&"show") || said.contains(shown), "{words:?}: {said:?}");
        let is_obeyed = |c: char| c != '\n' && (c.is_control() || c == '\u{202e}');
        assert!(!said.contains(is_obeyed), "{words:?}: {said:?}");
        assert!(rows == 0 || said.lines().count() == rows, "{words:?}: {said:?}");
    }
    let to = home.path().join("to");
    for words in [
        &["cp", "-R", "fg:lake/d", to.to_str().unwrap()][..],
        &["rm", "-R", "lake/d", "-y", "--token", &token, "--lock-id", &id],
    ] {
        let said = call(url, words).await.with(1).err();
        assert!(!said.contains(['\u{1b}', '\u{202e}']), "{words:?}: {said:?}");
    }
    let exact = call(url, &["ls", "lake", "--json"]).await.with(0).json();
    assert_eq!(exact["items"][0]["key"], odd);
}
