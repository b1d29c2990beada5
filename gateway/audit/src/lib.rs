//! An audit that shows tampering: entries as they are hashed, a Merkle tree over them, and signed checkpoints of it.
//!
//! Whoever has seen a checkpoint can tell ever after whether an entry below it was changed, removed, or added: its tree says
//! so. Nothing here does any I/O.
//!
//! ```
//! use fencegate_audit::{Checkpoint, Entry, Frontier, Leaf, SigningKey};
//!
//! let mut tree = Frontier::default();
//! let digest = Entry::default().with("action", Some("freeze")).digest();
//! tree.push(Leaf { number: 1, is_grant: false, digest }.hash());
//! let key = SigningKey::of_log("fencegate/1/audit", &[7; 32]).unwrap();
//! let (origin, generation) = ("fencegate/1/audit".to_owned(), 1);
//! let note = key.sign(&Checkpoint { origin, size: tree.size(), root: tree.root(), generation });
//! assert!(note.is_signed_by(key.public()));
//! ```

mod checkpoint;
mod entry;
mod fork;
mod tiles;
mod tree;
mod verify;

pub use checkpoint::{
    BadKey, BadNote, Checkpoint, NOTE_BYTES_MAX, SignedNote, SigningKey, VerifierKey,
};
pub use entry::{Entry, Leaf};
pub use fork::{Fork, Former, NoFork};
pub use tiles::{TILE_LEAVES, Tiles};
pub use tree::{
    Frontier, Hash, consistency_proof, inclusion_proof, is_beginning, is_included, root, roots_of,
};
pub use verify::{FINDINGS_MAX, Finding, Line, Report, Verifier};
