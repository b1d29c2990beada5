//! Tests of the embedded mint.

use std::sync::atomic::{AtomicU32, Ordering};

use super::*;

/// A directory of its own that goes when the test ends.
struct Directory(PathBuf);

impl Directory {
    fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!(
            "fencegate-mint-{}-{}",
            std::process::id(),
            COUNT.fetch_add(1, Ordering::Relaxed)
        );
        let path = std::env::temp_dir().join(name);
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn open(&self) -> EmbeddedMint {
        EmbeddedMint::open(&self.0).unwrap()
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

const NONCE: Uuid = Uuid::from_u128(7);

async fn next(mint: &EmbeddedMint) -> Result<i64, MintError> {
    mint.mint(NONCE, &[item()], &[]).await.map(|numbers| numbers[0])
}

fn item() -> MintItem {
    MintItem { resources: Vec::new(), owner: String::new() }
}

#[tokio::test]
async fn a_restart_skips_ahead() {
    let directory = Directory::new();
    assert!(!EmbeddedMint::exists(&directory.0).unwrap());
    let mint = directory.open();
    assert!(EmbeddedMint::exists(&directory.0).unwrap());
    assert_eq!(mint.adopt(NONCE, Uuid::nil()).await, Ok(NONCE));
    assert_eq!(next(&mint).await, Ok(1));
    assert_eq!(next(&mint).await, Ok(2));
    assert_eq!(mint.reserved_until(), BLOCK);
    drop(mint);

    let mint = directory.open();
    assert_eq!((mint.reserved_until(), mint.nonce()), (BLOCK, Some(NONCE)));
    assert_eq!(next(&mint).await, Ok(BLOCK + 1));
    assert_eq!(mint.reserved_until(), 2 * BLOCK);
}

#[tokio::test]
async fn an_unused_start_skips_nothing() {
    let directory = Directory::new();
    for _ in 0..3 {
        assert_eq!(directory.open().reserved_until(), 0);
    }
}

#[tokio::test]
async fn every_number_lies_within_what_the_file_reserves() {
    let directory = Directory::new();
    let mint = directory.open();
    mint.adopt(NONCE, Uuid::nil()).await.unwrap();
    for expected in 1..=2 * BLOCK + 1 {
        assert_eq!(next(&mint).await, Ok(expected));
        if expected % BLOCK <= 1 {
            let text = fs::read_to_string(directory.0.join(FILE)).unwrap();
            assert!(Saved::parse(&text).unwrap().reserved_until >= expected);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn concurrent_calls_get_distinct_rising_numbers() {
    let directory = Directory::new();
    let mint = Arc::new(directory.open());
    mint.adopt(NONCE, Uuid::nil()).await.unwrap();
    // The highest number of any call that has ended.
    let ended = Arc::new(Mutex::new(0));
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..8 {
        let (mint, ended) = (Arc::clone(&mint), Arc::clone(&ended));
        tasks.spawn(async move {
            let mut numbers = Vec::new();
            for _ in 0..2000 {
                let before = *ended.lock();
                let number = next(&mint).await.unwrap();
                assert!(number > before, "{number} after {before}");
                let mut ended = ended.lock();
                *ended = number.max(*ended);
                numbers.push(number);
            }
            numbers
        });
    }
    let mut all = tasks.join_all().await.concat();
    all.sort_unstable();
    assert_eq!(all, (1..=16_000).collect::<Vec<_>>());
}

#[tokio::test]
async fn another_nonce_gets_no_number() {
    let directory = Directory::new();
    let mint = directory.open();
    assert_eq!(mint.incarnation().await, Ok(None));
    assert_eq!(next(&mint).await, Err(MintError::OtherIncarnation { found: None }));
    let other = Uuid::from_u128(8);
    assert_eq!(mint.adopt(NONCE, Uuid::nil()).await, Ok(NONCE));
    assert_eq!(mint.adopt(other, Uuid::nil()).await, Ok(NONCE));
    assert_eq!(mint.incarnation().await, Ok(Some(NONCE)));
    assert_eq!(
        mint.mint(other, &[item()], &[]).await,
        Err(MintError::OtherIncarnation { found: Some(NONCE) })
    );
}

#[tokio::test]
async fn a_damaged_file_is_refused_and_left_alone() {
    let directory = Directory::new();
    let mint = directory.open();
    mint.adopt(NONCE, Uuid::nil()).await.unwrap();
    next(&mint).await.unwrap();
    let path = directory.0.join(FILE);
    let good = fs::read_to_string(&path).unwrap();
    let damaged = [
        String::new(),
        "\0".repeat(good.len()),
        good.replace("4096", "8192"),
        good.replace("4096", "-1"),
        good.replace("mint 1", "mint 2"),
        good.trim_end().to_owned(),
        format!("{good}\n"),
        good[..good.len() / 2].to_owned(),
    ];
    for text in damaged {
        fs::write(&path, &text).unwrap();
        let error = EmbeddedMint::open(&directory.0).err().expect("a damaged file is refused");
        assert!(format!("{error:#}").contains("is damaged"), "{error:#}");
        assert_eq!(fs::read_to_string(&path).unwrap(), text);
    }
    fs::write(&path, &good).unwrap();
    assert_eq!(directory.open().reserved_until(), BLOCK);
}

#[tokio::test]
async fn a_block_that_cannot_be_saved_yields_no_number() {
    let directory = Directory::new();
    let mint = directory.open();
    mint.adopt(NONCE, Uuid::nil()).await.unwrap();
    // A directory in the place of the temporary file makes the write fail.
    fs::create_dir(directory.0.join(TEMPORARY)).unwrap();
    let refused = next(&mint).await;
    assert!(matches!(refused, Err(MintError::Unavailable(_))));
    assert_eq!(mint.reserved_until(), 0);
    fs::remove_dir(directory.0.join(TEMPORARY)).unwrap();
    assert_eq!(next(&mint).await, Ok(1));
}
