//! First contact with a gateway: short for people, long for what starts unattended, and none where work is under way.

use std::time::Duration;

use fencegate_client::{Client, Error, Unreached};

use crate::durations;
use crate::failure::Failure;
use crate::settings::Settings;

/// Time that a command waits for a first answer; none waits longer without a word.
const SHORT: Duration = Duration::from_millis(1_900);
/// The same of what cron, systemd or Kubernetes starts: the gateway may be starting, too, and nobody calls again soon.
const LONG: Duration = Duration::from_secs(30);

/// Patience of a command with a first answer, unless `--wait-for-gateway` sets it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Patience {
    /// As people wait.
    Short,
    /// As what starts unattended.
    Long,
    /// Not at all: it goes on whether a gateway is there or not.
    Unasked,
}

impl Patience {
    /// The wait, with what the caller has set; `None`: no first contact is made. Under a lock that is held a command is
    /// part of a job, which rides out a gateway that starts anew.
    fn within(self, said: Option<Duration>, holds_a_lock: bool) -> Option<Duration> {
        match (self, said) {
            (Self::Unasked, _) => None,
            (_, Some(said)) => Some(said),
            (_, None) if holds_a_lock => None,
            (Self::Short, None) => Some(SHORT),
            (Self::Long, None) => Some(LONG),
        }
    }
}

/// Waits until a gateway has answered; `tell` says what is waited for.
///
/// # Errors
/// None answers in that time, or none can be reached whatever the wait.
pub async fn make(
    client: &Client,
    settings: &Settings,
    patience: Patience,
    tell: impl Fn(&str),
) -> Result<(), Failure> {
    let holds_a_lock = std::env::var_os("FENCE_LOCK_ID").is_some_and(|id| !id.is_empty());
    let said = settings.wait_for_gateway;
    let Some(within) = patience.within(said, holds_a_lock) else { return Ok(()) };
    let within = within.min(settings.timeout.unwrap_or(within).max(said.unwrap_or_default()));
    // A name may be made known, too, while whoever said so waits.
    let awaits_name = said.is_some();
    let first = within.min(SHORT);
    match client.first_contact(first, awaits_name).await {
        Err(error) if within > first && may_pass(&error, awaits_name) => {
            let left = durations::show(within - first);
            tell(&format!("{error}; waiting for it for another {left}"));
        }
        contact => return Ok(contact?),
    }
    Ok(client.first_contact(within - first, awaits_name).await?)
}

fn may_pass(error: &Error, awaits_name: bool) -> bool {
    error.details().is_some_and(|details| {
        details.retryable && (awaits_name || details.unreached != Some(Unreached::Name))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_under_way_is_not_cut_short() {
        let said = Some(Duration::from_secs(5));
        assert_eq!(Patience::Short.within(None, false), Some(SHORT));
        assert_eq!(Patience::Long.within(None, false), Some(LONG));
        for patience in [Patience::Short, Patience::Long] {
            assert_eq!(patience.within(None, true), None);
            assert_eq!(patience.within(said, true), said);
            assert_eq!(patience.within(said, false), said);
        }
        assert_eq!(Patience::Unasked.within(said, false), None);
    }
}
