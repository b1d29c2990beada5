//! What a command works with: a client, and somewhere to say what it found. Ends it cleanly when it is interrupted.

use std::process::ExitCode;
use std::time::Duration;

use fencegate_client::Client;
use tokio::signal::unix::{SignalKind, signal};

use crate::contact::{self, Patience};
use crate::ending::End;
use crate::failure::Failure;
use crate::options::Common;
use crate::output::Out;
use crate::settings::Settings;

/// How long locks that were taken for a call may take to be given back.
const GIVEN_BACK: Duration = Duration::from_secs(2);

/// What a command works with.
pub struct App {
    /// The gateway.
    pub client: Client,
    /// How it is reached.
    pub settings: Settings,
    /// Where its findings go.
    pub out: Out,
}

/// Does something, with a client that has reached a gateway in this time.
pub fn with_app(
    common: &Common,
    patience: Patience,
    work: impl AsyncFnOnce(&App) -> Result<ExitCode, Failure>,
) -> ExitCode {
    let out = Out::new(common);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(error) => return Failure::Here(error.into()).tell(out.is_json()),
    };
    let ended = runtime.block_on(async {
        let settings = Settings::of(common)?;
        let client = settings.builder()?.build()?;
        let app = App { client, settings, out: out.clone() };
        let reached = async {
            contact::make(&app.client, &app.settings, patience, |text| app.out.say(text)).await?;
            work(&app).await
        };
        let ended = tokio::select! {
            ended = reached => Ok(ended),
            signal = interrupted() => Err(signal),
        };
        // Guards that were dropped give their locks back in the background.
        app.client.close(GIVEN_BACK).await;
        match ended {
            Ok(ended) => ended.map_err(|failure| failure.having_shown(app.settings.shown())),
            Err(signal) => Ok(End::Signal(signal).carry_out()),
        }
    });
    // Whoever reads standard input on a thread of its own is not waited for.
    runtime.shutdown_background();
    ended.unwrap_or_else(|failure: Failure| failure.tell(out.is_json()))
}

/// Waits for a signal that asks for the end.
async fn interrupted() -> i32 {
    let kinds = [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()];
    let heard = kinds.map(|kind| async move {
        match signal(kind) {
            Ok(mut stream) => {
                stream.recv().await;
                kind.as_raw_value()
            }
            // Then it ends in the usual way.
            Err(_) => std::future::pending().await,
        }
    });
    futures::future::select_all(heard.map(Box::pin)).await.0
}
