//! What the READMEs show of the Rust client, run as it stands there.

use std::cell::RefCell;
use std::time::Duration;

use fencegate_client::{Error, Lock, Wait};

use self::shown::Client;
use super::Dev;

/// The client of the READMEs: their gateway is not the one of the test.
mod shown {
    use fencegate_client::ClientBuilder;

    pub struct Client;

    impl Client {
        pub fn builder(url: &str) -> ClientBuilder {
            assert_eq!(url, "http://localhost:8080");
            super::GATEWAY.with_borrow(|gateway| fencegate_client::Client::builder(gateway))
        }
    }
}

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");

thread_local! {
    static GATEWAY: RefCell<String> = const { RefCell::new(String::new()) };
}

async fn gateway() -> Dev {
    let gateway = Dev::start().await;
    GATEWAY.set(gateway.url().to_owned());
    gateway
}

/// Runs code, which must stand so in that README, but for blanks.
macro_rules! shown {
    ($file:literal, $($code:tt)*) => {
        assert_shown($file, stringify!($($code)*));
        $($code)*
    };
}

fn assert_shown(file: &str, code: &str) {
    let text = std::fs::read_to_string(format!("{ROOT}/{file}")).unwrap();
    let blocks = text.split("```rust\n").skip(1).filter_map(|rest| rest.split("```").next());
    let plain = |code: &str| code.split_whitespace().collect::<String>().replace(",)", ")");
    let mut blocks = blocks.map(plain);
    assert!(blocks.any(|block| block == plain(code)), "{file} does not show this: {code}");
}

async fn long_work(lock: &Lock) -> Result<(), Error> {
    lock.on("orders:1").put("17.json", "more").await.map(drop)
}

#[tokio::test]
async fn the_first_lines_work() -> Result<(), Error> {
    let gateway = gateway().await;
    {
        use shown as fencegate_client;
        shown! { "README.md",
            let client = fencegate_client::Client::builder("http://localhost:8080").build()?;
            client.lock("invoices:2026").run(async |lock| {
                lock.update_json("total.json", |old: Option<u64>| Some(old.unwrap_or(0) + 10)).await
            }).await?;
        }
    }
    let total = gateway.client().get("invoices:2026", "total.json").await?;
    assert_eq!(total.text()?, "10");
    Ok(())
}

#[tokio::test]
async fn what_the_page_of_the_clients_shows_works() -> Result<(), Error> {
    let gateway = gateway().await;
    shown! { "clients/README.md",
        let client = Client::builder("http://localhost:8080").build()?;
        client.lock("invoices:2026").wait(Wait::UpTo(Duration::from_secs(60))).run(async |lock| {
            lock.put("total.txt", "total: 110").await
        }).await?;
    }
    let lock = client.lock("stock:1").acquire().await?;
    let boxes = lock.put("boxes", "98").await?;
    lock.release().await;
    let (order, tag) = ("one box", boxes.etag.unwrap());
    both(client, order, tag).await?;
    let boxes = gateway.client().get("stock:1", "boxes").await?;
    assert_eq!(boxes.text()?, "97");
    Ok(())
}

async fn both(
    client: fencegate_client::Client,
    order: &'static str,
    tag: String,
) -> Result<(), Error> {
    shown! { "clients/README.md",
        let lock = client.lock(["orders:1", "stock:1"]).acquire().await?;
        let done = lock.commit()
            .put("orders:1", "17.json", order).if_absent()
            .put("stock:1", "boxes", "97").if_match(tag)
            .send().await?;
        tokio::select! {
            done = long_work(&lock) => done?,
            lost = lock.lost() => return Err(Error::LockLost(lost)),
        }
        lock.release().await;
    }
    assert_eq!(done.results.len(), 2);
    Ok(())
}
