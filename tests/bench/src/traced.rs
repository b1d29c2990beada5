//! What traces cost a write: where nothing is exported, beside another gateway; and where all of it is.

use std::path::PathBuf;

use anyhow::Result;
use fence_tests::collector::Collector;
use fence_tests::etcd::Etcd;
use fence_tests::gateway::{Gateway, Settings};
use fence_tests::postgres::Postgres;

use crate::pairs::{Pairs, Site, tidied_often};
use crate::servers::logging;

/// How much longer the median answer of a caller alone may take where nothing is exported, in microseconds.
const MORE_MAX_US: f64 = 20.0;

/// How it is measured.
#[derive(Debug, clap::Args)]
pub struct Traced {
    /// A gateway that knows no traces, or was built without them: measured beside this one, with nothing exported.
    /// Without it, this one beside itself with all requests recorded, by which nothing is judged
    #[arg(long)]
    beside: Option<PathBuf>,
    /// Pairs of measurements
    #[arg(long, default_value_t = 20)]
    pairs: usize,
    /// How long each of the two lasts in a pair, in seconds, which go in turn
    #[arg(long, default_value_t = 9)]
    seconds: u64,
}

impl Traced {
    /// Measures, and prints what comes out. Says whether it costs no more than it may.
    ///
    /// # Errors
    /// What could not be measured.
    pub async fn run(self) -> Result<bool> {
        let (postgres, etcd) = tokio::join!(Postgres::dedicated(), Etcd::dedicated());
        tidied_often(&postgres).await;
        let of = async |prefix: &str, adjust: &dyn Fn(Settings) -> Settings| {
            let prefix = format!("{}{prefix}", etcd.prefix());
            let settings =
                Gateway::clustered(&postgres.database().await, &etcd.endpoint(), &prefix);
            adjust(logging(settings, "warn")).start().await
        };
        let pairs = Pairs { pairs: self.pairs, seconds: self.seconds };
        let now = Site::new(of("now", &|settings| settings).await, None).await?;
        if let Some(beside) = self.beside {
            let other = of("beside", &|settings| settings.binary(beside.clone())).await;
            let other = Site::new(other, None).await?;
            let cost = pairs.run([&other, &now], ["beside", "now"]).await?;
            let [without, with] = &cost.spent;
            println!(
                "processor time of the gateway for a write, in us: {without} beside, {with} now"
            );
            return Ok(cost.told(MORE_MAX_US));
        }
        let collector = Collector::start().await;
        let endpoint = collector.url();
        let export = |settings: Settings| settings.env("OTEL_EXPORTER_OTLP_ENDPOINT", &endpoint);
        let exported = Site::new(of("exported", &export).await, None).await?;
        let cost = pairs.run([&now, &exported], ["off", "exported"]).await?;
        cost.told(MORE_MAX_US);
        let [without, with] = &cost.spent;
        println!(
            "processor time of the gateway for a write, in us: {without} off, {with} exported"
        );
        Ok(true)
    }
}
