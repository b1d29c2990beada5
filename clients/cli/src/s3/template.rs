//! Variables that the caller names, with places in them for a key of S3: `--set NAME={s3_key}`.

use std::str::FromStr;

use fencegate_client::S3Access;

use super::endpoint::Endpoint;

/// What the variables of `fence run` itself begin with. Its processes are found by one of them.
const OWN: &str = "FENCE_";

/// A variable, and the text that it gets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Setting {
    /// Its name.
    pub name: String,
    parts: Vec<Part>,
}

/// A part of a text.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    Text(String),
    Place(Place),
}

/// What stands for a part of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Key,
    Secret,
    Endpoint,
    Host,
    Region,
}

impl Place {
    fn named(name: &str) -> Option<Self> {
        Some(match name {
            "s3_key" => Self::Key,
            "s3_secret" => Self::Secret,
            "s3_endpoint" => Self::Endpoint,
            "s3_host" => Self::Host,
            "s3_region" => Self::Region,
            _ => return None,
        })
    }

    fn filled(self, access: &S3Access, endpoint: &Endpoint) -> String {
        match self {
            Self::Key => access.access_key_id.clone(),
            Self::Secret => access.secret_access_key.clone(),
            Self::Endpoint => endpoint.url(),
            Self::Host => endpoint.host().to_owned(),
            Self::Region => access.region.clone(),
        }
    }
}

impl FromStr for Setting {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, value) = text.split_once('=').ok_or("it is NAME=VALUE")?;
        let is_name = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
        if name.is_empty() || !name.bytes().all(is_name) {
            return Err(format!("{name:?} is no name of a variable"));
        }
        if name.starts_with(OWN) {
            return Err(format!("variables that begin with {OWN} are set by `fence run` itself"));
        }
        Ok(Self { name: name.to_owned(), parts: parts(value)? })
    }
}

/// The parts of a text. A brace of its own stands there twice.
fn parts(value: &str) -> Result<Vec<Part>, String> {
    let (mut parts, mut text, mut rest) = (Vec::new(), String::new(), value);
    while let Some(at) = rest.find(['{', '}']) {
        let (before, from) = rest.split_at(at);
        text.push_str(before);
        if let Some(after) = from.strip_prefix("{{") {
            text.push('{');
            rest = after;
        } else if let Some(after) = from.strip_prefix("}}") {
            text.push('}');
            rest = after;
        } else {
            let named = from.strip_prefix('{').and_then(|from| from.split_once('}'));
            let (name, after) = named.ok_or("a brace of its own stands there twice: {{ or }}")?;
            let place = Place::named(name).ok_or_else(|| {
                format!(
                    "{{{name}}} stands for nothing; there are {{s3_key}}, {{s3_secret}}, {{s3_endpoint}}, \
                     {{s3_host}} and {{s3_region}}"
                )
            })?;
            parts.extend([Part::Text(std::mem::take(&mut text)), Part::Place(place)]);
            rest = after;
        }
    }
    text.push_str(rest);
    parts.push(Part::Text(text));
    Ok(parts)
}

impl Setting {
    /// Whether it wants a key.
    pub fn wants_key(&self) -> bool {
        self.parts.iter().any(|part| matches!(part, Part::Place(_)))
    }

    /// Its text for this key; `None`: it wants one, and there is none.
    pub fn value(&self, key: Option<(&S3Access, &Endpoint)>) -> Option<String> {
        let part = |part: &Part| match part {
            Part::Text(text) => Some(text.clone()),
            Part::Place(place) => key.map(|(access, endpoint)| place.filled(access, endpoint)),
        };
        self.parts.iter().map(part).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn places_are_filled_and_braces_are_kept() {
        let endpoint = Endpoint::of("http://127.0.0.1:9000").await.expect("an endpoint");
        let text = str::to_owned;
        let access = S3Access {
            endpoint: text("http://gateway:9000"),
            region: text("eu-1"),
            access_key_id: text("FG1A"),
            secret_access_key: text("se{s3_key}cret"),
        };
        for (set, value) in [
            ("A={s3_key}", "FG1A"),
            ("A={s3_secret}", "se{s3_key}cret"),
            ("A=http://{s3_key}:x@{s3_host}/", "http://FG1A:x@127.0.0.1:9000/"),
            ("A=s3:{s3_endpoint}/lake", "s3:http://127.0.0.1:9000/lake"),
            (
                "A={{\"k\": \"{s3_key}\", \"r\": \"{s3_region}\"}}",
                "{\"k\": \"FG1A\", \"r\": \"eu-1\"}",
            ),
            ("A=b=c", "b=c"),
            ("A=", ""),
        ] {
            let setting: Setting = set.parse().expect(set);
            let filled = setting.value(Some((&access, &endpoint)));
            assert_eq!((setting.name.as_str(), filled.as_deref()), ("A", Some(value)));
            let without = setting.value(None);
            assert_eq!(without.is_none(), setting.wants_key(), "{set}");
        }
    }

    #[test]
    fn mistakes_are_told() {
        for (set, why) in [
            ("A", "NAME=VALUE"),
            ("=x", "no name"),
            ("A B=x", "no name"),
            ("A={token}", "{token} stands for nothing"),
            ("A={}", "stands for nothing"),
            ("A={s3_key", "twice"),
            ("A=}", "twice"),
            ("FENCE_RUN=x", "FENCE_"),
        ] {
            let error = set.parse::<Setting>().expect_err(set);
            assert!(error.contains(why), "{set}: {error}");
        }
    }
}
