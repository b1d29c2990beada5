//! What looks for secrets in all that a gateway leaves behind finds them.

use std::panic::catch_unwind;

use fence_tests::secrets::{answered, look, note, secret_of};

#[test]
fn a_secret_is_what_nobody_else_knows() {
    let secret = "s_".repeat(21) + "e";
    assert_eq!(secret_of(&format!("fgk_a7_{secret}_c0ffee")), Some(secret));
    let signature = "x".repeat(86);
    assert_eq!(secret_of(&format!("aa.bb.{signature}")), Some(signature));
    for short in ["", "a.b.c", "fgk_a7_short_c0ffee", "Bearer"] {
        assert_eq!(secret_of(short), None, "{short}");
    }
}

#[test]
fn what_is_found_is_told() {
    let gateway = "127.0.0.1:1".parse().unwrap();
    let (secret, data) = ("y".repeat(43), tempfile::tempdir().unwrap());
    let line = format!("Bearer fgk_a7_{secret}_c0ffee");
    let finds = |log: &str| {
        note(gateway, &line);
        catch_unwind(|| look(gateway, log, data.path(), None)).is_err()
    };
    assert!(!finds("a line"));
    assert!(finds(&format!("a line with {secret}")));
    std::fs::write(data.path().join("ledger.sqlite"), format!("\0{secret}\0")).unwrap();
    assert!(finds("a line"));
    let echoed = || answered(gateway, &line, false, &format!("no: {secret}"));
    assert!(catch_unwind(echoed).is_err());
}
