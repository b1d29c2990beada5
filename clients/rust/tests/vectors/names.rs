//! Names and durations: what is refused before anything is sent.

use fencegate_client::encoding::path;
use fencegate_wire::{MaxHold, NameError, ObjectKey, ResourceName, Ttl};
use serde::Deserialize;
use serde_json::Value;
use std::time::Duration;

use super::{Case, case, replay, same};

case!(NameCase {
    kind: String,
    name: String,
    path: Option<String>,
    refused: Option<String>,
});

#[test]
fn names() {
    fn word(error: NameError) -> String {
        let word = match error {
            NameError::Length(_) => "length",
            NameError::Alphabet => "alphabet",
            NameError::Dots => "dots",
            NameError::EmptySegment => "empty-segment",
            NameError::Control => "control",
            NameError::NotNfc => "not-nfc",
        };
        word.to_owned()
    }
    replay("names", |case: &NameCase, _| {
        let got = match case.kind.as_str() {
            "resource" => ResourceName::new(case.name.clone()).map(|name| {
                let path = path::resource(&name);
                path.strip_prefix("/resources/").unwrap().to_owned()
            }),
            _ => ObjectKey::new(case.name.clone()).map(|key| {
                let path = path::object(&ResourceName::new("r").unwrap(), &key);
                path.strip_prefix("/resources/r/objects/").unwrap().to_owned()
            }),
        };
        let expected = match (&case.path, &case.refused) {
            (Some(path), None) => Ok(path.clone()),
            (None, Some(refused)) => Err(refused.clone()),
            _ => return Err("path or refused".into()),
        };
        same("path", expected, got.map_err(word))
    });
}

case!(DurationCase {
    kind: String,
    given: Value,
    sent: Option<String>,
    refused: Option<bool>,
});

#[derive(Deserialize)]
struct Asked(#[serde(deserialize_with = "fencegate_wire::lock::requested_duration")] Duration);

#[test]
fn durations() {
    fn read(kind: &str, given: &Value) -> Option<String> {
        let ms = |duration: Duration| format!("{}ms", duration.as_millis());
        if let Value::Number(number) = given {
            let duration = Duration::from_millis(number.as_u64()?);
            return match kind {
                "ttl" => Ttl::new(duration).is_ok(),
                "max_hold" => MaxHold::new(duration).is_ok(),
                _ => true,
            }
            .then(|| ms(duration));
        }
        match kind {
            "ttl" => {
                let ttl: Ttl = serde_json::from_value(given.clone()).ok()?;
                Some(if ttl.is_infinite() {
                    "infinite".into()
                } else {
                    format!("{}ms", ttl.as_ms())
                })
            }
            "max_hold" => {
                let max_hold: MaxHold = serde_json::from_value(given.clone()).ok()?;
                Some(format!("{}ms", max_hold.as_ms()))
            }
            _ if given == "forever" => Some("forever".into()),
            _ => serde_json::from_value::<Asked>(given.clone()).ok().map(|asked| ms(asked.0)),
        }
    }
    replay("durations", |case: &DurationCase, _| {
        if case.sent.is_none() != (case.refused == Some(true)) {
            return Err("sent or refused".into());
        }
        same("sent", case.sent.clone(), read(&case.kind, &case.given))
    });
}
