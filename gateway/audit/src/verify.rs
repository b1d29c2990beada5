//! Whether an export of an audit is what its checkpoints say.

use serde::{Deserialize, Serialize};

use crate::checkpoint::{Checkpoint, SignedNote, VerifierKey};
use crate::entry::{Entry, Leaf};
use crate::fork::Fork;
use crate::tree::{Frontier, Hash};

/// One leaf of an export, and the entry that it is of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Line {
    /// The number of the entry in the audit.
    pub number: i64,
    /// Whether it is a grant.
    pub is_grant: bool,
    /// The digest of its fields that the tree has, in hex; none for an entry that the tree has no leaf for.
    pub digest: Option<String>,
    /// Its fields; none if there is no such entry any more.
    pub entry: Option<Entry>,
}

/// What is wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Finding {
    /// The fields of an entry are others than those that were hashed.
    Altered {
        /// Which.
        number: i64,
    },
    /// An entry is gone that is never let go.
    Removed {
        /// Which.
        number: i64,
    },
    /// There is an entry, among those that have leaves, that has none; or two of one number; or they are out of order.
    Added {
        /// Which.
        number: i64,
    },
    /// A leaf is not one.
    Unreadable {
        /// Of which entry.
        number: i64,
    },
    /// The leaves are not those of the checkpoint that the ledger has of itself.
    Rewritten {
        /// How many leaves that has.
        size: u64,
    },
    /// There is a checkpoint of more leaves than there are.
    Truncated {
        /// How many there are.
        size: u64,
        /// How many that has.
        seen: u64,
    },
    /// There is a checkpoint of this audit with other leaves.
    Forked {
        /// How many leaves that has.
        size: u64,
        /// Of which generation of the ledger it is.
        generation: i64,
    },
    /// A checkpoint is of another audit.
    Foreign {
        /// Of which.
        origin: String,
    },
    /// A checkpoint is not signed by a key that is trusted.
    Unsigned {
        /// How many leaves it has.
        size: u64,
    },
}

/// What was found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Report {
    /// How many leaves there are.
    pub size: u64,
    /// How many entries were held against their leaves.
    pub entries: u64,
    /// How many grants were let go as history, of which the leaves are kept.
    pub pruned: u64,
    /// Where the tree went on after a re-fence, as the audit says, and what was lost by that.
    pub forks: Vec<Fork>,
    /// What is wrong, in the order of the entries, at most [`FINDINGS_MAX`] of them.
    pub findings: Vec<Finding>,
}

/// More findings than this are not kept.
pub const FINDINGS_MAX: usize = 1_000;

impl Finding {
    /// The exit code of a command that verifies: 3 altered, 4 truncated, 5 forked, 6 not signed.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Altered { .. }
            | Self::Removed { .. }
            | Self::Added { .. }
            | Self::Unreadable { .. }
            | Self::Rewritten { .. } => 3,
            Self::Truncated { .. } => 4,
            Self::Forked { .. } | Self::Foreign { .. } => 5,
            Self::Unsigned { .. } => 6,
        }
    }
}

impl Report {
    /// The exit code: that of the first finding; 0 if there is none.
    pub fn exit_code(&self) -> u8 {
        self.findings.first().map_or(0, Finding::exit_code)
    }

    fn find(&mut self, finding: Finding) {
        if self.findings.len() < FINDINGS_MAX {
            self.findings.push(finding);
        }
    }
}

/// Goes through an export line by line.
pub struct Verifier {
    own: (SignedNote, Checkpoint),
    others: Vec<(SignedNote, Checkpoint)>,
    /// Up to which number grants were let go.
    let_go: i64,
    tree: Frontier,
    /// The roots at the sizes of the checkpoints, as far as it has come.
    roots: Vec<(u64, Hash)>,
    last: i64,
    report: Report,
}

impl Verifier {
    /// Of an audit with this checkpoint of its own, which others have seen as those say. Grants up to number `let_go` may
    /// be gone.
    pub fn new(
        own: (SignedNote, Checkpoint),
        others: Vec<(SignedNote, Checkpoint)>,
        let_go: i64,
    ) -> Self {
        let (tree, report) = (Frontier::default(), Report::default());
        let mut verifier = Self { own, others, let_go, tree, roots: Vec::new(), last: 0, report };
        verifier.note_root();
        verifier
    }

    /// The next line.
    pub fn take(&mut self, line: &Line) {
        let number = line.number;
        let Some(digest) = &line.digest else {
            return self.report.find(Finding::Added { number });
        };
        let digest = hex::decode(digest).ok().and_then(|digest| Hash::try_from(digest).ok());
        let Some(digest) = digest else {
            return self.report.find(Finding::Unreadable { number });
        };
        if number <= self.last {
            self.report.find(Finding::Added { number });
        }
        self.last = number;
        match &line.entry {
            Some(entry) if entry.digest() == digest => {
                self.report.entries += 1;
                let fork = entry.get("reason").filter(|_| entry.get("action") == Some("fork"));
                self.report.forks.extend(fork.and_then(|why| why.parse::<Fork>().ok()));
            }
            Some(_) => self.report.find(Finding::Altered { number }),
            None if line.is_grant && number <= self.let_go => self.report.pruned += 1,
            None => self.report.find(Finding::Removed { number }),
        }
        self.tree.push(Leaf { number, is_grant: line.is_grant, digest }.hash());
        self.note_root();
    }

    /// Keeps the root where a checkpoint says what it is.
    fn note_root(&mut self) {
        let size = self.tree.size();
        let sizes = self.others.iter().chain([&self.own]).map(|(_, checkpoint)| checkpoint.size);
        if sizes.into_iter().any(|one| one == size) {
            self.roots.push((size, self.tree.root()));
        }
    }

    /// All lines were there: what the checkpoints say, and whether each is signed by one of these keys.
    pub fn finish(mut self, keys: &[VerifierKey]) -> Report {
        let size = self.tree.size();
        self.report.size = size;
        let root_at = |size| self.roots.iter().find(|(at, _)| *at == size).map(|(_, root)| *root);
        let (_, own) = &self.own;
        match root_at(own.size) {
            None => self.report.find(Finding::Truncated { size, seen: own.size }),
            Some(root) if root != own.root => {
                self.report.find(Finding::Rewritten { size: own.size });
            }
            Some(_) => {}
        }
        for (_, other) in &self.others {
            let (seen, generation) = (other.size, other.generation);
            match root_at(seen) {
                _ if other.origin != own.origin => {
                    self.report.find(Finding::Foreign { origin: other.origin.clone() });
                }
                Some(root) if root == other.root => {}
                // It is not of this tree, which says so itself.
                _ if self.report.forks.iter().any(|fork| fork.explains(other)) => {}
                None => self.report.find(Finding::Truncated { size, seen }),
                Some(_) => {
                    self.report.find(Finding::Forked { size: seen, generation });
                }
            }
        }
        for (note, checkpoint) in self.others.iter().chain([&self.own]) {
            let is_signed = keys.iter().any(|key| note.is_signed_by(key));
            if !is_signed {
                self.report.find(Finding::Unsigned { size: checkpoint.size });
            }
        }
        self.report
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checkpoint::SigningKey;

    const ORIGIN: &str = "fencegate/1/audit";

    fn line(number: i64) -> Line {
        let entry = Entry::default().with("reason", Some(number));
        let digest = Some(hex::encode(entry.digest()));
        Line { number, is_grant: number % 2 == 0, digest, entry: Some(entry) }
    }

    fn lines(count: i64) -> Vec<Line> {
        (1..=count).map(|number| line(number * 3)).collect()
    }

    fn noted(lines: &[Line], key: &SigningKey) -> (SignedNote, Checkpoint) {
        let mut tree = Frontier::default();
        for line in lines {
            let digest = hex::decode(line.digest.as_ref().expect("a digest")).expect("hex");
            let digest = digest.try_into().expect("a hash");
            tree.push(Leaf { number: line.number, is_grant: line.is_grant, digest }.hash());
        }
        let checkpoint = Checkpoint {
            origin: ORIGIN.into(),
            size: tree.size(),
            root: tree.root(),
            generation: 1,
        };
        (key.sign(&checkpoint), checkpoint)
    }

    fn key(secret: u8) -> SigningKey {
        SigningKey::of_log(ORIGIN, &[secret; 32]).expect("a key")
    }

    /// What is said of these lines, of which the ledger says what `own` says, and somebody else what `other` does.
    fn said(lines: &[Line], own: &[Line], other: &[Line], let_go: i64) -> Report {
        let key = key(1);
        let mut verifier = Verifier::new(noted(own, &key), vec![noted(other, &key)], let_go);
        lines.iter().for_each(|line| verifier.take(line));
        verifier.finish(&[key.public().clone()])
    }

    #[test]
    fn what_is_sound_is_said_to_be() {
        let all = lines(64);
        for seen in [0, 1, 40, 64] {
            let report = said(&all, &all, &all[..seen], 0);
            assert_eq!(
                (report.exit_code(), report.size, report.entries),
                (0, 64, 64),
                "{report:?}"
            );
        }
        assert_eq!(said(&[], &[], &[], 0).exit_code(), 0);
    }

    #[test]
    fn every_change_is_found_and_named() {
        let all = lines(64);
        for at in 0..all.len() {
            let number = all[at].number;
            let mut altered = all.clone();
            altered[at].entry = Some(Entry::default().with("reason", Some("other")));
            let report = said(&altered, &all, &all, 0);
            assert_eq!(report.findings[0], Finding::Altered { number });
            assert_eq!(report.exit_code(), 3);
            // With its leaf, too: the tree is another.
            altered[at].digest =
                altered[at].entry.as_ref().map(|entry| hex::encode(entry.digest()));
            let report = said(&altered, &all, &all, 0);
            assert_eq!(report.findings[0], Finding::Rewritten { size: 64 });
            // And what the ledger says of itself: whoever saw it before knows better.
            let report = said(&altered, &altered, &all, 0);
            assert_eq!(report.findings, [Finding::Forked { size: 64, generation: 1 }]);
            assert_eq!(report.exit_code(), 5);

            let mut removed = all.clone();
            removed[at].entry = None;
            assert_eq!(said(&removed, &all, &all, 0).findings, [Finding::Removed { number }]);
            let report = said(&removed, &all, &all, 1_000);
            let is_grant = all[at].is_grant;
            assert_eq!((report.exit_code(), report.pruned), if is_grant { (0, 1) } else { (3, 0) });
            removed.remove(at);
            let report = said(&removed, &all, &all, 0);
            assert_eq!(report.findings[0], Finding::Truncated { size: 63, seen: 64 });

            let mut added = all.clone();
            added.insert(at, Line { digest: None, ..line(number - 1) });
            let number = number - 1;
            assert_eq!(said(&added, &all, &all, 0).findings, [Finding::Added { number }]);

            let mut swapped = all.clone();
            swapped.swap(at, (at + 1) % 64);
            assert_eq!(said(&swapped, &all, &all, 0).exit_code(), 3);
            for bit in 0..64 {
                let mut flipped = all.clone();
                flipped[at].number ^= 1 << bit;
                assert_eq!(said(&flipped, &all, &all, 0).exit_code(), 3, "bit {bit} of {at}");
            }
        }
    }

    #[test]
    fn what_was_lost_by_a_refence_is_told_and_no_finding() {
        let (all, key) = (lines(64), key(1));
        let of = |size: usize| noted(&all[..size], &key).1;
        let mut goes_on = all[..60].to_vec();
        let fork = Fork { generation: 2, size: 60, former: Some((&of(64)).into()) };
        let entry = Entry::default().with("action", Some("fork")).with("reason", Some(fork));
        let digest = Some(hex::encode(entry.digest()));
        goes_on.push(Line { number: 1_000, is_grant: false, digest, entry: Some(entry) });
        for seen in [0, 30, 60, 61, 62, 63, 64] {
            let report = said(&goes_on, &goes_on, &all[..seen], 0);
            assert_eq!((report.exit_code(), &*report.forks), (0, &[fork][..]), "{seen}");
        }
        // Others than were lost.
        let mut others = all.clone();
        others[63] = line(5_000);
        assert_eq!(said(&goes_on, &goes_on, &others, 0).exit_code(), 4);
        assert_eq!(said(&goes_on, &goes_on, &lines(65), 0).exit_code(), 4);
        others[10] = line(31);
        assert_eq!(said(&goes_on, &goes_on, &others[..30], 0).exit_code(), 5);
    }

    #[test]
    fn what_is_cut_off_and_who_did_not_sign_is_found() {
        let all = lines(64);
        let report = said(&all[..60], &all[..60], &all, 0);
        assert_eq!(report.findings, [Finding::Truncated { size: 60, seen: 64 }]);
        assert_eq!(report.exit_code(), 4);
        let mut verifier = Verifier::new(noted(&all, &key(2)), Vec::new(), 0);
        all.iter().for_each(|line| verifier.take(line));
        let report = verifier.finish(&[key(1).public().clone()]);
        assert_eq!(report.findings, [Finding::Unsigned { size: 64 }]);
        assert_eq!(report.exit_code(), 6);
    }
}
