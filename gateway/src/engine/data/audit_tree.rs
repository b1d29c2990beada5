//! The tree over the audit grows: once a second, with all entries that nothing before them is still to come. Off the path
//! of acts, which know nothing of it. Whichever gateway comes first takes the step.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use fence_core::ports::{
    AuditEntry, AuditFilter, Ledger, LedgerError, Log, Settled, Span, TILE_LEAVES, TreeGrowth,
    TreeHead, TreeLeaf, TreeTile,
};
use fencegate_audit::{
    Checkpoint, Entry, Fork, Frontier, Leaf, SignedNote, SigningKey, Tiles, root,
};

use super::audit_keep::AuditPlaces;
use crate::engine::{Base, Engine, EngineError, metrics};

/// How often it grows.
const INTERVAL: Duration = Duration::from_secs(1);
/// Entries that one step takes at most; while there are more, the next follows at once.
const STEP_MAX: i64 = 4_096;
/// Tiles of one page of an export.
const PAGE_TILES: i64 = 4;
/// The most entries of such a page: those of its leaves, and as many that have none.
const PAGE_ENTRIES_MAX: i64 = 2 * PAGE_TILES * TILE_LEAVES as i64;

/// The secret that checkpoints are signed with.
#[derive(Clone)]
pub struct AuditKey(pub [u8; 32]);

impl std::fmt::Debug for AuditKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("AuditKey(..)")
    }
}

impl AuditKey {
    fn of(&self, head: &TreeHead) -> Result<SigningKey, EngineError> {
        let key = SigningKey::of_log(&origin(head), &self.0);
        key.ok_or_else(|| EngineError::Defect("the key of the audit cannot sign".into()))
    }
}

/// What the audit of a ledger is called.
pub(super) fn origin(head: &TreeHead) -> String {
    format!("fencegate/{}/audit", head.ledger)
}

/// An entry, as it is hashed.
pub fn hashed(entry: &AuditEntry) -> Entry {
    let grant = entry.grant.as_ref();
    Entry::default()
        .with("at", Some(entry.at))
        .with("action", Some(entry.action.as_str()))
        .with("resource", entry.resource.as_ref())
        .with("owner", entry.owner.as_ref())
        .with("previous_owner", entry.previous_owner.as_ref())
        .with("previous_end", entry.previous_end.map(|end| end.as_str()))
        .with("previous_ended_at", entry.previous_ended_at)
        .with("token", entry.token)
        .with("reason", entry.reason.as_ref())
        .with("request_id", entry.request_id.as_ref())
        .with("asked", entry.asked.as_ref())
        .with("lock", grant.map(|grant| &grant.lock))
        .with("ordinal", grant.map(|grant| grant.ordinal))
        .with("leads", grant.map(|grant| grant.leads))
        .with("principal", grant.and_then(|grant| grant.principal.as_ref()))
        .with("writers", grant.and_then(|grant| grant.writers.as_ref()))
}

fn leaf(number: i64, entry: &AuditEntry) -> TreeLeaf {
    TreeLeaf { number, is_grant: entry.action.is_of_grant(), digest: hashed(entry).digest() }
}

fn hash(leaf: &TreeLeaf) -> [u8; 32] {
    Leaf { number: leaf.number, is_grant: leaf.is_grant, digest: leaf.digest }.hash()
}

/// Starts the task that lets it grow.
pub(in crate::engine) fn start(base: &Base) {
    let (ledger, closing) = (Arc::clone(&base.ledger), base.closing.clone());
    let (clock, key) = (Arc::clone(&base.runtime.clock), base.settings.audit_key.clone());
    let places = base.settings.audit_places.clone();
    let task = async move {
        let mut settled = Settled::default();
        loop {
            let more = match step(&*ledger, (key.as_ref(), &places), &mut settled).await {
                Ok(more) => more,
                Err(error) => {
                    tracing::debug!(%error, "the tree of the audit does not grow now");
                    false
                }
            };
            if !more && closing.run_until_cancelled(clock.sleep(INTERVAL)).await.is_none() {
                return;
            }
        }
    };
    base.runtime.spawn.spawn_lasting("audit_tree", Box::pin(task));
}

/// One step; says whether there is more to do.
///
/// 1. How far the audit is settled: nothing up to there is still to come.
/// 2. How far the tree has come. If that is as far, only a checkpoint that is missing, or was not signed, is made.
/// 3. What is between, in order: a leaf of each.
/// 4. If it is the first of a generation, the audit says from where the tree goes on, and what is known of what was lost.
/// 5. The step is stored if the tree is still as it was; else another gateway has taken it.
async fn step(
    ledger: &dyn Ledger,
    (key, places): (Option<&AuditKey>, &AuditPlaces),
    settled: &mut Settled,
) -> Result<bool, EngineError> {
    // Step 1.
    *settled = ledger.settled(Log::Audit, settled).await?;
    // Step 2.
    let head = ledger.tree_head().await?;
    ::metrics::gauge!(metrics::AUDIT_SIZE).set(head.size as f64);
    ::metrics::gauge!(metrics::AUDIT_UNSEALED).set((settled.upto - head.upto).max(0) as f64);
    let is_noted = head.note.as_ref().is_some_and(|note| is_by(note, &head, key));
    if head.upto >= settled.upto && is_noted {
        return Ok(false);
    }
    // Step 3.
    let span = Span { after: head.upto, upto: settled.upto.max(head.upto) };
    let entries = ledger.audit(between(span, STEP_MAX)).await?;
    if entries.is_empty() && is_noted {
        return Ok(false);
    }
    let has_more = entries.len() as i64 == STEP_MAX;
    let upto = match entries.last() {
        Some((number, _)) if has_more => *number,
        _ => span.upto,
    };
    let leaves = entries.iter().map(|(number, entry)| leaf(*number, entry)).collect();
    let growth = grown(&head, leaves, upto, key)?;
    // Step 4.
    let is_fork = head.note.as_deref().is_some_and(|note| is_of_former(note, &head));
    let fork = match is_fork {
        true => {
            let former = places.former(&head).await?;
            Some(Fork { generation: head.generation, size: head.size as u64, former }.to_string())
        }
        false => None,
    };
    let growth = TreeGrowth { fork, ..growth };
    // Step 5.
    let took = ledger.grow_tree(&growth).await?;
    Ok(took && has_more)
}

/// Whether a checkpoint is of this generation, and signed if it can be.
fn is_by(note: &str, head: &TreeHead, key: Option<&AuditKey>) -> bool {
    let Ok(note) = note.parse::<SignedNote>() else { return false };
    let is_of_now =
        note.checkpoint().is_ok_and(|checkpoint| checkpoint.generation == head.generation);
    let key = key.and_then(|key| key.of(head).ok());
    is_of_now && key.is_none_or(|key| note.is_signed_by(key.public()))
}

fn is_of_former(note: &str, head: &TreeHead) -> bool {
    let checkpoint = note.parse::<SignedNote>().ok().and_then(|note| note.checkpoint().ok());
    checkpoint.is_some_and(|checkpoint| checkpoint.generation < head.generation)
}

fn between(span: Span, limit: i64) -> AuditFilter {
    AuditFilter { resource: None, action: None, before: None, between: Some(span), limit }
}

/// The tree with these leaves more.
fn grown(
    head: &TreeHead,
    leaves: Vec<TreeLeaf>,
    upto: i64,
    key: Option<&AuditKey>,
) -> Result<TreeGrowth, EngineError> {
    let torn = || EngineError::Defect("the tree of the audit is torn".into());
    let size = u64::try_from(head.size).map_err(|_| torn())?;
    let mut tree = Frontier::stored(size, head.roots.clone()).ok_or_else(torn)?;
    leaves.iter().for_each(|leaf| tree.push(hash(leaf)));

    let first = head.size / TILE_LEAVES as i64;
    let mut all = head.last.as_ref().map(|tile| tile.leaves.clone()).unwrap_or_default();
    if all.len() as i64 != head.size % TILE_LEAVES as i64 {
        return Err(torn());
    }
    let is_new = !leaves.is_empty();
    all.extend(leaves);
    let tile = |(tile, leaves): (i64, &[TreeLeaf])| {
        let root = (leaves.len() == TILE_LEAVES)
            .then(|| root(&leaves.iter().map(hash).collect::<Vec<_>>()));
        TreeTile { tile, leaves: leaves.to_vec(), root }
    };
    let tiles = (first..).zip(all.chunks(TILE_LEAVES)).filter(|_| is_new).map(tile).collect();

    let checkpoint = Checkpoint {
        origin: origin(head),
        size: tree.size(),
        root: tree.root(),
        generation: head.generation,
    };
    let note = match key {
        Some(key) => key.of(head)?.sign(&checkpoint),
        None => SignedNote::unsigned(&checkpoint),
    };
    Ok(TreeGrowth {
        from: head.size,
        generation: head.generation,
        size: i64::try_from(tree.size()).map_err(|_| torn())?,
        upto,
        roots: tree.roots().to_vec(),
        note: note.to_string(),
        tiles,
        fork: None,
    })
}

/// What the ledger says of its audit.
#[derive(Debug, Clone)]
pub struct Sealed {
    /// The checkpoint, as a note.
    pub note: String,
    /// The newest one that an outside witness has signed, too.
    pub witnessed: Option<String>,
    /// The key that this gateway signs with, as others know it.
    pub key: Option<String>,
    /// How many leaves there are.
    pub size: i64,
}

/// The proof that an entry is in the tree of a checkpoint.
#[derive(Debug, Clone)]
pub struct Inclusion {
    /// Its leaf, and at which place it is.
    pub leaf: TreeLeaf,
    /// The place, from 0.
    pub index: i64,
    /// The hashes.
    pub hashes: Vec<[u8; 32]>,
    /// The checkpoint.
    pub sealed: Sealed,
}

/// A page of an export.
#[derive(Debug, Clone)]
pub struct Exported {
    /// The leaves from the place asked for on, each with its entry, if that is there; and entries that have no leaf.
    pub lines: Vec<(i64, Option<TreeLeaf>, Option<AuditEntry>)>,
    /// From where the next page goes on, if there is one.
    pub next: Option<i64>,
    /// Up to which number grants were let go.
    pub let_go: i64,
    /// The checkpoint.
    pub sealed: Sealed,
}

impl Engine {
    /// What the ledger says of its audit; none before the first checkpoint.
    ///
    /// # Errors
    /// The ledger does not answer.
    pub async fn audit_sealed(&self) -> Result<Option<Sealed>, EngineError> {
        let head = self.inner.ledger.tree_head().await?;
        self.sealed(&head)
    }

    fn sealed(&self, head: &TreeHead) -> Result<Option<Sealed>, EngineError> {
        sealed(head, self.inner.settings.audit_key.as_ref())
    }

    /// The proof that the entry with this number is in the tree; none if it has no leaf yet, or never had one.
    ///
    /// # Errors
    /// The ledger does not answer.
    pub async fn audit_inclusion(&self, number: i64) -> Result<Option<Inclusion>, EngineError> {
        let ledger = &self.inner.ledger;
        let head = ledger.tree_head().await?;
        let Some(sealed) = self.sealed(&head)? else { return Ok(None) };
        let Some(tile) = self.tile_of(&head, number).await? else { return Ok(None) };
        let Some(at) = tile.leaves.iter().position(|leaf| leaf.number == number) else {
            return Ok(None);
        };
        let index = tile.tile * TILE_LEAVES as i64 + at as i64;
        let leaf = tile.leaves[at];
        let tiles = tiles(&**ledger, &head, [tile.tile, last_tile(head.size)]).await?;
        let hashes =
            fencegate_audit::inclusion_proof(head.size as usize, index as usize, |range| {
                tiles.root_of(range)
            });
        Ok(hashes.map(|hashes| Inclusion { leaf, index, hashes, sealed }))
    }

    /// The proof that the tree of so many leaves is the beginning of that of so many; none if there are not so many.
    ///
    /// # Errors
    /// The ledger does not answer.
    pub async fn audit_consistency(
        &self,
        from: i64,
        to: i64,
    ) -> Result<Option<Vec<[u8; 32]>>, EngineError> {
        let ledger = &*self.inner.ledger;
        let head = ledger.tree_head().await?;
        Ok(consistency(ledger, &head, from, to).await?)
    }

    /// The tile that has the leaf of an entry, if one has: their numbers rise.
    async fn tile_of(&self, head: &TreeHead, number: i64) -> Result<Option<TreeTile>, EngineError> {
        let ledger = &self.inner.ledger;
        let (mut low, mut high) = (0, last_tile(head.size) + 1);
        while low < high {
            let middle = low.midpoint(high);
            let Some(tile) = ledger.tree_tiles(middle, 1).await?.into_iter().next() else {
                return Ok(None);
            };
            let first = tile.leaves.first().map_or(0, |leaf| leaf.number);
            let last = tile.leaves.last().map_or(0, |leaf| leaf.number);
            match (number < first, number > last) {
                (true, _) => high = middle,
                (_, true) => low = middle + 1,
                _ => return Ok(Some(tile)),
            }
        }
        Ok(None)
    }

    /// A page of the leaves from this tile on, each with its entry.
    ///
    /// # Errors
    /// The ledger does not answer.
    pub async fn audit_export(&self, tile: i64) -> Result<Option<Exported>, EngineError> {
        let inner = &self.inner;
        audit_page(&*inner.ledger, inner.settings.audit_key.as_ref(), tile).await
    }
}

/// A page of the leaves in this ledger from this tile on, each with its entry; none before the first checkpoint.
///
/// # Errors
/// The ledger does not answer.
pub async fn audit_page(
    ledger: &dyn Ledger,
    key: Option<&AuditKey>,
    tile: i64,
) -> Result<Option<Exported>, EngineError> {
    let (head, let_go) = (ledger.tree_head().await?, ledger.grants_let_go().await?);
    let Some(sealed) = sealed(&head, key)? else { return Ok(None) };
    // The one before says where the entries of the first begin.
    let mut tiles = ledger.tree_tiles((tile - 1).max(0), PAGE_TILES + 1).await?;
    let before = match tiles.first() {
        Some(first) if first.tile < tile => tiles.remove(0).leaves.last().map(|it| it.number),
        _ => None,
    };
    tiles.truncate(PAGE_TILES as usize);
    let next = tile + tiles.len() as i64;
    let next = (!tiles.is_empty() && next * (TILE_LEAVES as i64) < head.size).then_some(next);
    let most = usize::try_from(head.size - tile * TILE_LEAVES as i64).unwrap_or_default();
    let leaves: Vec<_> = tiles.into_iter().flat_map(|tile| tile.leaves).take(most).collect();
    let Some(last) = leaves.last() else {
        return Ok(Some(Exported { lines: Vec::new(), next: None, let_go, sealed }));
    };
    // On the first page from the smallest number there is: what was put in below the first leaf has none.
    let span = Span { after: before.unwrap_or(i64::MIN), upto: last.number };
    let entries = ledger.audit(between(span, PAGE_ENTRIES_MAX)).await?;
    let mut entries: BTreeMap<_, _> = entries.into_iter().collect();
    let with_entry = |leaf: TreeLeaf| (leaf.number, Some(leaf), entries.remove(&leaf.number));
    let mut lines: Vec<_> = leaves.into_iter().map(with_entry).collect();
    lines.extend(entries.into_iter().map(|(number, entry)| (number, None, Some(entry))));
    // In their order, but for those that have no leaf, which come where they would be.
    lines.sort_by_key(|(number, ..)| *number);
    Ok(Some(Exported { lines, next, let_go, sealed }))
}

fn sealed(head: &TreeHead, key: Option<&AuditKey>) -> Result<Option<Sealed>, EngineError> {
    let key = key.map(|key| key.of(head)).transpose()?;
    let key = key.map(|key| key.public().to_string());
    Ok(head.note.clone().map(|note| Sealed {
        note,
        witnessed: head.witnessed.clone(),
        key,
        size: head.size,
    }))
}

fn last_tile(size: i64) -> i64 {
    (size - 1).max(0) / TILE_LEAVES as i64
}

/// The proof that the tree of so many leaves is the beginning of that of so many; none if there are not so many.
pub(super) async fn consistency(
    ledger: &dyn Ledger,
    head: &TreeHead,
    from: i64,
    to: i64,
) -> Result<Option<Vec<[u8; 32]>>, LedgerError> {
    if from < 1 || from > to || to > head.size {
        return Ok(None);
    }
    let tiles = tiles(ledger, head, [last_tile(from), last_tile(to)]).await?;
    let root_of = |range| tiles.root_of(range);
    Ok(fencegate_audit::consistency_proof(to as usize, from as usize, root_of))
}

/// What is known of the tiles: the roots of all, and the leaves of these.
async fn tiles(
    ledger: &dyn Ledger,
    head: &TreeHead,
    wanted: [i64; 2],
) -> Result<Tiles, LedgerError> {
    let mut open = BTreeMap::new();
    for tile in wanted {
        for found in ledger.tree_tiles(tile, 1).await?.into_iter().filter(|it| it.tile == tile) {
            // It may have grown since.
            let most = head.size - tile * TILE_LEAVES as i64;
            let leaves = found.leaves.iter().take(usize::try_from(most).unwrap_or_default());
            open.insert(tile as usize, leaves.map(hash).collect());
        }
    }
    let mut roots = ledger.tree_roots().await?;
    roots.truncate(head.size as usize / TILE_LEAVES);
    Ok(Tiles { roots, open })
}
