//! Rules of access: the input is their text.

use fence_core::ResourceName;
use fencegate_access::{Action, Identity, Rules};
use jiff::Timestamp;

const NAMES: [&str; 6] = ["a", "a:b", "a:b:c", "job:7", "invoices:archive:7", "x.y"];

/// Rules are taken or refused, and what is taken allows no more of a prefix than of each name below it.
pub fn rules(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else { return };
    let now = Timestamp::UNIX_EPOCH;
    let Ok(rules) = Rules::parse(text) else { return };
    for id in [0, 1, 7, 990, 1000] {
        let Ok(caller) = rules.caller(&Identity::Unix { uid: id, gid: id }, now) else { continue };
        for &action in Action::ALL {
            for name in NAMES {
                let resource = ResourceName::new(name).unwrap();
                let may = caller.may(action, &resource).is_ok();
                let ends = name.char_indices().map(|(at, _)| &name[..at]);
                for prefix in ends {
                    let may_all = caller.may_all(action, prefix).is_ok();
                    assert!(may || !may_all, "{action} of {prefix:?} and not of {name}");
                }
            }
        }
    }
}
