//! What a signature costs: `cargo run --release -p fencegate-s3 --example signature_cost`.
//!
//! Time of the processor, so that it may be busy with other things.

use std::error::Error;
use std::hint::black_box;
use std::time::Duration;

use fencegate_s3::key::{Keys, Root};
use fencegate_s3::sign::{PayloadHash, RequestHead, Shown, Signer, SigningKey};
use fencegate_wire::{LockId, Token};
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use rustix::time::{ClockId, clock_gettime};

fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::try_from(time).unwrap_or_default()
}

const ROUNDS: u32 = 200_000;

/// The header lines that boto3 sends with a put.
const LINES: [(&str, &str); 9] = [
    ("host", "127.0.0.1:9000"),
    ("accept-encoding", "identity"),
    ("content-type", "application/octet-stream"),
    ("content-length", "1024"),
    ("x-amz-checksum-crc32", "NhCmhg=="),
    ("x-amz-sdk-checksum-algorithm", "CRC32"),
    (
        "user-agent",
        "Boto3/1.44.5 md/Botocore#1.44.5 ua/2.1 os/linux md/arch#x86_64 lang/python#3.11.7",
    ),
    ("amz-sdk-invocation-id", "c1a37a3b-7f2c-4f5e-8b8a-7a8a3f1d2b4c"),
    ("amz-sdk-request", "attempt=1"),
];

fn main() -> Result<(), Box<dyn Error>> {
    let keys = Keys::new(&[Root::generate()?])?;
    let lock = LockId::parse("67e55044-10b1-426f-9247-bb680e5fe0c8")?;
    let made = keys.of_lock(Token::LEAST, lock);
    let mut headers = HeaderMap::new();
    for (name, value) in LINES {
        headers.insert(HeaderName::from_static(name), HeaderValue::from_static(value));
    }
    let now = "2026-11-26T12:00:00Z".parse()?;
    let path = "/lake/sales/orders/part-00000-67e55044.parquet";
    let head = RequestHead {
        method: &Method::PUT,
        raw_path: path,
        raw_query: "x-id=PutObject",
        headers: &headers,
    };
    let signer = Signer { id: &made.id, secret: made.secret.reveal(), region: "us-east-1" };
    let (more, _) = signer.sign(&head, PayloadHash::Sha256([7; 32]), now)?;
    let mut signed = headers.clone();
    signed.extend(more);
    let head = RequestHead { headers: &signed, ..head };
    let shown = Shown::of(&head)?.ok_or("it is signed")?;
    let key = SigningKey::of(made.secret.reveal(), shown.day(), shown.region());

    measure("read and verify, key at hand", || {
        let shown = Shown::of(black_box(&head)).ok().flatten();
        shown.is_some_and(|shown| shown.verify(&key, now).is_ok())
    })?;
    measure("the key of a day", || {
        let key = SigningKey::of(black_box(made.secret.reveal()), shown.day(), shown.region());
        !format_args!("{key:?}").to_string().is_empty()
    })?;
    measure("whose key an id is", || keys.read(black_box(&made.id)).is_some())?;
    Ok(())
}

fn measure(what: &str, mut act: impl FnMut() -> bool) -> Result<(), Box<dyn Error>> {
    let mut rounds = Vec::new();
    for _ in 0..5 {
        let start = processor_time();
        let good = (0..ROUNDS).all(|_| act());
        rounds.push((processor_time() - start) / ROUNDS);
        if !good {
            return Err(what.into());
        }
    }
    rounds.sort_unstable();
    println!("{what}: {:?} (median of 5 rounds; {:?} to {:?})", rounds[2], rounds[0], rounds[4]);
    Ok(())
}
