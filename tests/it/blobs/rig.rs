//! What tests of large payloads share: gateways on a blob store, bodies that can be told apart, and
//! streams of any length.

use bytes::Bytes;
use fence_core::wire::Lock;
use fence_tests::client::{Answer, Client, object_path};
use fence_tests::gateway::{Gateway, Settings};
use fence_tests::stores::Store;
use futures::StreamExt as _;
use sha2::{Digest as _, Sha256};

/// What is added to a gateway so that it keeps its blobs there.
pub fn on_store(settings: Settings, store: &Store) -> Settings {
    store
        .env(None)
        .iter()
        .fold(settings.flag("--blobs", &store.url()), |settings, (name, value)| {
            settings.env(name, value)
        })
}

/// The bytes of a block, which no other seed and no other place has.
const BLOCK: usize = 64 << 10;

fn block(seed: u64, number: u64) -> Bytes {
    let mut block = vec![0; BLOCK];
    let mut state = seed ^ number.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ 0xD1B5_4A32_D192_ED03;
    for word in block.chunks_exact_mut(8) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        word.copy_from_slice(&state.to_be_bytes());
    }
    block[..8].copy_from_slice(&seed.to_be_bytes());
    block.into()
}

/// A body of this length.
pub fn body(seed: u64, length: usize) -> Bytes {
    let blocks = (0..length.div_ceil(BLOCK) as u64).map(|number| block(seed, number));
    let whole: Vec<u8> = blocks.flatten().take(length).collect();
    whole.into()
}

/// A body of this length that is never in memory as a whole.
pub fn streamed(seed: u64, length: usize) -> reqwest::Body {
    let last = length.div_ceil(BLOCK) as u64;
    let blocks = (0..last).map(move |number| {
        let block = block(seed, number);
        let left = length - usize::try_from(number).expect("a block number") * BLOCK;
        Ok::<_, std::io::Error>(block.slice(..left.min(BLOCK)))
    });
    reqwest::Body::wrap_stream(futures::stream::iter(blocks))
}

/// The SHA-256 of a body.
pub fn sha256(seed: u64, length: usize) -> String {
    let mut digest = Sha256::new();
    let mut left = length;
    for number in 0..length.div_ceil(BLOCK) as u64 {
        let block = block(seed, number);
        digest.update(&block[..left.min(BLOCK)]);
        left = left.saturating_sub(BLOCK);
    }
    hex(&digest.finalize())
}

/// The seed of a body; panics unless it is whole and as it was made.
#[track_caller]
pub fn seed_of(bytes: &[u8]) -> u64 {
    let seed = u64::from_be_bytes(bytes[..8].try_into().expect("a body has 8 bytes"));
    let same = (0..)
        .zip(bytes.chunks(BLOCK))
        .all(|(number, part)| part == &block(seed, number)[..part.len()]);
    assert!(same, "{} bytes of seed {seed} are not as they were made", bytes.len());
    seed
}

/// The length and SHA-256 of an answer that is read as it comes.
pub async fn digest_of(answer: reqwest::Response) -> (usize, String) {
    let mut digest = Sha256::new();
    let mut length = 0;
    let mut stream = answer.bytes_stream();
    while let Some(chunk) = stream.next().await {
        let chunk = chunk.expect("the answer is whole");
        length += chunk.len();
        digest.update(&chunk);
    }
    (length, hex(&digest.finalize()))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Puts an object whose body has this seed and length; it must succeed.
pub async fn put(client: &Client, lock: &Lock, key: &str, seed: u64, length: usize) -> Answer {
    let put = client.put(lock.resources[0].as_str(), key, body(seed, length)).under(lock);
    let answer = put.send().await;
    assert!(answer.status.is_success(), "{}", answer.text());
    answer
}

/// The head of a put whose body is still to be sent.
pub fn head(resource: &str, key: &str, lock: &Lock, length: usize, more: &str) -> Vec<u8> {
    format!(
        "PUT {} HTTP/1.1\r\nHost: localhost\r\nX-Fence-Token: {}\r\nX-Lock-Id: {}\r\n{more}\
         Content-Length: {length}\r\n\r\n",
        object_path(resource, key),
        lock.token,
        lock.id
    )
    .into_bytes()
}

/// Where a gateway of tests keeps blobs by default.
pub fn default_blobs(gateway: &Gateway) -> std::path::PathBuf {
    gateway.data_dir().join("blobs")
}
