//! Access keys: what they are, that each has one text, and that nobody makes one up (I18).

use fencegate_s3::key::{ID_LEN_MAX, Keys, NONCE_LEN, Named, ROOTS_MAX, Rights, Root};
use fencegate_wire::{LockId, Token};
use proptest::prelude::*;
use uuid::Uuid;

const LOCK: &str = "67e55044-10b1-426f-9247-bb680e5fe0c8";
const NONCE: [u8; NONCE_LEN] = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10];

/// Worked out by `../vectors/keys.py`, from the root whose bytes are 0 to 31.
const KNOWN: [(&str, &str); 6] = [
    (
        "FG1RJQDTGLRR7QMFHFUVQIITCNNNEMPU5F7CM7XWVSMERQR7PCT4TDQ",
        "QTtjkDi4u_8h-gDrWXEPKskD3oVg6V_Q8rG7H1Qc_JY",
    ),
    (
        "FG1JB4K5GJ7JLFPLHOVOUUJNZTYKVKAYCUJFCKDTVSR4WFTS2ZK7O7Q",
        "URkelIMj3shxTGQWvF_KMjHoAHpW2fmJ3g37IqzXvc4",
    ),
    ("FG2NM34C7CDFLUCFFKV", "aabLirSXOaJA3QjAFdwz5qyaQS4avhrLkUm5MvelM2s"),
    (
        "FG2PJ5HU6T2PJ5HU6T2PJ5HU6T2PJ5HU6T2PJ5HU6T2PJ5HU6T2PJ5LLW34JB3ZSGEZ",
        "KHNtUMDw1Mn0F6xqWbcBJuSlpHYcukJ-kkuZTnrAFLk",
    ),
    ("FG3AAAACAQDAQCQMBYIBEFN7FH4NX6Y4BWZ", "oIRP-bXwaJO5zK0Q9C9CES24PFJFaGZlx6w6S9NTnxg"),
    ("FG3AEAACAQDAQCQMBYIBEFAYHLJNVGT5JP5", "9UV1EkQ3oRCvqPwL_cSo3dNCxyn7WGyq5mbzyCHZhLo"),
];

fn root(first: u8) -> Root {
    let digits: String = (0..32).map(|at| format!("{:02x}", at ^ first)).collect();
    Root::parse(&digits).expect("a root")
}

fn keys() -> Keys {
    Keys::new(&[root(0)]).expect("keys")
}

fn token(number: i64) -> Token {
    Token::new(number).expect("a token")
}

#[test]
fn keys_are_those_that_were_worked_out_elsewhere() {
    let keys = keys();
    let lock = LockId::parse(LOCK).expect("an id");
    let longest = "z".repeat(32);
    let made = [
        (keys.of_lock(token(1), lock), Named::Lock { token: token(1), lock }),
        (keys.of_lock(token(i64::MAX), lock), Named::Lock { token: token(i64::MAX), lock }),
        (keys.of_principal("k7").expect("a key"), Named::Principal { kid: "k7".to_owned() }),
        (keys.of_principal(&longest).expect("a key"), Named::Principal { kid: longest.clone() }),
        (keys.of_anyone(Rights::Read, NONCE), Named::Anyone(Rights::Read)),
        (keys.of_anyone(Rights::Admin, NONCE), Named::Anyone(Rights::Admin)),
    ];
    for ((key, named), (id, secret)) in made.into_iter().zip(KNOWN) {
        assert_eq!((key.id.as_str(), key.secret.reveal()), (id, secret));
        let (read, its_secret) = keys.read(id).expect("it is read");
        assert_eq!((read, its_secret.reveal()), (named, secret));
        assert!(id.len() <= ID_LEN_MAX && secret.len() == 43);
    }
    assert_eq!(KNOWN[0].0.len(), 55);
}

#[test]
fn no_text_near_a_key_is_a_key() {
    let keys = keys();
    for (id, _) in KNOWN {
        for at in 0..id.len() {
            for bit in 0..7 {
                let mut changed = id.as_bytes().to_vec();
                changed[at] ^= 1 << bit;
                let changed = String::from_utf8(changed).expect("ASCII");
                assert!(keys.read(&changed).is_none(), "{changed}");
            }
            assert!(keys.read(&id[..at]).is_none(), "{at} of {id}");
            assert!(keys.read(&format!("{}A{}", &id[..at], &id[at..])).is_none());
            assert!(keys.read(&format!("{}ö{}", &id[..at], &id[at..])).is_none());
        }
        for more in ["=", "A", "AA", "AAAAAAAA", " ", "\0"] {
            assert!(keys.read(&format!("{id}{more}")).is_none());
        }
        assert!(keys.read(&id.to_lowercase()).is_none());
        let other_form = ["FG1", "FG2", "FG3"].into_iter().filter(|form| !id.starts_with(form));
        other_form.for_each(|form| assert!(keys.read(&format!("{form}{}", &id[3..])).is_none()));
    }
    for bad in [
        "",
        "F",
        "FG",
        "FG1",
        "FG2",
        "FG3",
        "FG4AAAAAAAA",
        "AKIAIOSFODNN7EXAMPLE",
        &"A".repeat(4096),
    ] {
        assert!(keys.read(bad).is_none(), "{bad}");
    }
}

/// Four bits at the end of 32 bytes in base32 say nothing: with them an id would have 16 texts.
#[test]
fn spare_bits_are_none() {
    let keys = keys();
    let (id, _) = KNOWN[0];
    let (all, last) = id.split_at(id.len() - 1);
    let others = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567".chars().filter(|other| !last.contains(*other));
    for other in others {
        assert!(keys.read(&format!("{all}{other}")).is_none(), "{other}");
    }
}

#[test]
fn a_new_root_makes_keys_and_the_one_before_is_read_while_it_is_there() {
    let lock = LockId::parse(LOCK).expect("an id");
    let old = Keys::new(&[root(0)]).expect("keys");
    let both = Keys::new(&[root(9), root(0)]).expect("keys");
    let new = Keys::new(&[root(9)]).expect("keys");
    let before = old.of_lock(token(7), lock);
    let after = both.of_lock(token(7), lock);
    assert_ne!(before.id, after.id);
    assert_eq!(after.id, new.of_lock(token(7), lock).id);
    for (key, readers, others) in [(&before, [&old, &both], &new), (&after, [&new, &both], &old)] {
        for reader in readers {
            let (named, secret) = reader.read(&key.id).expect("it is read");
            assert_eq!(named, Named::Lock { token: token(7), lock });
            assert_eq!(secret.reveal(), key.secret.reveal());
        }
        assert!(others.read(&key.id).is_none());
    }
    assert!(Keys::new(&[]).is_err());
    assert!(Keys::new(&vec![root(0); ROOTS_MAX + 1]).is_err());
}

#[test]
fn roots_have_one_text_and_show_it_to_nobody() {
    let one = Root::generate().expect("random bytes");
    assert_eq!(Root::parse(&one.reveal()).expect("a root").reveal(), one.reveal());
    assert_ne!(one.reveal(), Root::generate().expect("random bytes").reveal());
    let text = root(0).reveal();
    for bad in [&text[1..], &format!("{text}0"), &text.to_uppercase(), &text.replace('0', "g"), ""]
    {
        assert!(Root::parse(bad).is_err(), "{bad}");
    }
    let key = keys().of_principal("k7").expect("a key");
    let shown = format!("{:?} {:?} {:?}", root(0), keys(), key);
    assert_eq!(
        shown,
        format!("Root Keys(of 1 roots) AccessKey {{ id: {:?}, secret: Secret }}", key.id)
    );
}

#[test]
fn only_names_of_keys_are_keys_of_principals() {
    for bad in ["", "A", "a_b", "a b", "ö", &"a".repeat(33)] {
        assert!(keys().of_principal(bad).is_err(), "{bad}");
    }
}

proptest! {
    #[test]
    fn each_lock_has_a_key_of_its_own(
        number in 1..=i64::MAX, other in 1..=i64::MAX, id in any::<u128>(), other_id in any::<u128>(),
    ) {
        let keys = keys();
        let (id, other_id) = (LockId(Uuid::from_u128(id)), LockId(Uuid::from_u128(other_id)));
        let key = keys.of_lock(token(number), id);
        let (named, secret) = keys.read(&key.id).expect("it is read");
        prop_assert_eq!(named, Named::Lock { token: token(number), lock: id });
        prop_assert_eq!(secret.reveal(), key.secret.reveal());
        for (number_too, id_too) in [(other, id), (number, other_id), (other, other_id)] {
            let same = (number_too, id_too) == (number, id);
            prop_assert_eq!(keys.of_lock(token(number_too), id_too).id == key.id, same);
        }
    }

    #[test]
    fn each_principal_has_a_key_of_its_own(kid in "[a-z0-9]{1,32}", other in "[a-z0-9]{1,32}") {
        let keys = keys();
        let key = keys.of_principal(&kid).expect("a key");
        let (named, _) = keys.read(&key.id).expect("it is read");
        prop_assert_eq!(named, Named::Principal { kid: kid.clone() });
        prop_assert_eq!(keys.of_principal(&other).expect("a key").id == key.id, kid == other);
    }

    #[test]
    fn nobody_makes_a_key_up(id in "(FG[123])?[A-Z2-7]{0,70}") {
        prop_assert!(keys().read(&id).is_none());
    }
}
