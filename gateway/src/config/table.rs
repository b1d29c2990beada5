//! What makes one table of all settings: the macro that `settings.rs` writes it with, and what follows from the type of
//! a setting.

use std::fmt;
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use clap::ValueEnum;
use clap::builder::PossibleValue;
use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserializer, Serialize, Serializer};
use serde_json::Value;

use super::names::ENV_PREFIX;
use super::upstreams::from_pairs;
use super::{
    AdminAddress, ClientAuth, Failover, HostName, LogFormat, Network, PostgresUrl, RefenceMode,
    RequireLockId, S3Anonymous, S3Once, S3Root, Secret, TlsBy, Ui, Upstream,
};
use crate::blobs::BlobsUrl;

/// All that is known of a setting but its value.
#[derive(Debug)]
pub struct Setting {
    /// Its name in files; in capitals that in the environment.
    pub name: &'static str,
    /// The section of `docs/config.md` that it stands in.
    pub section: &'static str,
    /// How it is written where there is only text.
    pub kind: Kind,
    /// Whether no error may quote it.
    pub is_secret: bool,
    /// The words that it takes, if it takes no others.
    pub words: fn() -> Vec<PossibleValue>,
    /// What its flag shows for the value; `None` if it has no flag.
    pub flag: Option<&'static str>,
    /// Which values it takes, in words.
    pub allowed: fn() -> String,
    pub(super) doc: &'static str,
}

impl Setting {
    /// What it is, on one line of Markdown.
    pub fn doc(&self) -> String {
        self.doc.trim().replace("\n ", " ")
    }

    /// Its flag, without the dashes before it.
    pub fn flag(&self) -> String {
        match self.kind {
            Kind::Upstreams => "upstream".into(),
            _ => self.name.replace('_', "-"),
        }
    }

    /// Its variable of the environment.
    pub(super) fn variable(&self) -> String {
        format!("{ENV_PREFIX}{}", self.name.to_ascii_uppercase())
    }

    /// The setting of this name.
    pub(super) fn named(name: &str) -> Option<&'static Self> {
        super::SETTINGS.iter().find(|setting| setting.name == name)
    }
}

/// How a setting is written in a variable of the environment, or a flag.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// As it is.
    Text,
    /// As it is, and not empty.
    Path,
    /// In digits.
    Number,
    /// `true` or `false`.
    Truth,
    /// Its parts separated by commas.
    List,
    /// Upstreams separated by semicolons, each as pairs.
    Upstreams,
}

impl Kind {
    /// The parts of what a variable holds.
    pub(super) fn split(self, text: &str) -> Vec<&str> {
        let between = match self {
            Self::List => ',',
            Self::Upstreams => ';',
            Self::Text | Self::Path | Self::Number | Self::Truth => return vec![text],
        };
        text.split(between).map(str::trim).filter(|part| !part.is_empty()).collect()
    }

    /// The value that these parts are. What is not a number is refused later, with the text for a wrong type.
    pub(super) fn value(self, parts: &[&str]) -> Value {
        let text = parts.first().copied().unwrap_or_default();
        match self {
            Self::Text | Self::Path => Value::from(text),
            Self::Number => match (text.trim().parse::<u64>(), text.trim().parse::<i64>()) {
                (Ok(number), _) => Value::from(number),
                (_, Ok(number)) => Value::from(number),
                _ => Value::from(text),
            },
            Self::Truth => text.trim().parse::<bool>().map_or_else(|_| text.into(), Value::from),
            Self::List => Value::from(parts.to_vec()),
            Self::Upstreams => parts.iter().map(|part| from_pairs(part)).collect::<Vec<_>>().into(),
        }
    }
}

/// What the type of a setting says of how it is written.
pub(super) trait Form: Serialize + DeserializeOwned {
    const KIND: Kind = Kind::Text;
    /// The kind of a list of these.
    const LISTED: Kind = Kind::List;
    const IS_SECRET: bool = false;

    fn words() -> Vec<PossibleValue> {
        Vec::new()
    }

    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        Serialize::serialize(self, to)
    }

    fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        serde::Deserialize::deserialize(from)
    }
}

macro_rules! forms {
    ($($type:ty { $($item:item)* })+) => {$(impl Form for $type { $($item)* })+};
}

forms! {
    String {}
    PathBuf { const KIND: Kind = Kind::Path; }
    BlobsUrl {}
    AdminAddress {}
    HostName {}
    Network {}
    Upstream { const LISTED: Kind = Kind::Upstreams; }
    Secret { const IS_SECRET: bool = true; }
    S3Root { const IS_SECRET: bool = true; }
    PostgresUrl { const IS_SECRET: bool = true; }
    bool {
        const KIND: Kind = Kind::Truth;
        fn words() -> Vec<PossibleValue> { ["true", "false"].map(PossibleValue::new).into() }
    }
    u64 { const KIND: Kind = Kind::Number; }
    usize { const KIND: Kind = Kind::Number; }
    i64 { const KIND: Kind = Kind::Number; }
    LogFormat { fn words() -> Vec<PossibleValue> { variants::<Self>() } }
    RefenceMode { fn words() -> Vec<PossibleValue> { variants::<Self>() } }
    Failover { fn words() -> Vec<PossibleValue> { variants::<Self>() } }
    RequireLockId { fn words() -> Vec<PossibleValue> { variants::<Self>() } }
    ClientAuth { fn words() -> Vec<PossibleValue> { variants::<Self>() } }
    TlsBy { fn words() -> Vec<PossibleValue> { variants::<Self>() } }
    Ui { fn words() -> Vec<PossibleValue> { variants::<Self>() } }
    S3Anonymous { fn words() -> Vec<PossibleValue> { variants::<Self>() } }
    S3Once { fn words() -> Vec<PossibleValue> { variants::<Self>() } }
}

fn variants<T: ValueEnum>() -> Vec<PossibleValue> {
    T::value_variants().iter().filter_map(T::to_possible_value).collect()
}

impl Form for SocketAddr {
    /// With a text that shows what one looks like.
    fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = <String as Form>::deserialize(from)?;
        let such = "an IP address and port such as 127.0.0.1:8080 or [::1]:8080";
        text.parse().map_err(|_| D::Error::custom(format!("{text:?} is not {such}")))
    }
}

/// As text such as `500ms`, `30s` or `7days`.
impl Form for Duration {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(&humantime::format_duration(*self))
    }

    fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        fence_core::lock::duration_text(from)
    }
}

impl<T: Form> Form for Vec<T> {
    const KIND: Kind = T::LISTED;
}

impl<T: Form> Form for Option<T> {
    const KIND: Kind = T::KIND;
    const IS_SECRET: bool = T::IS_SECRET;

    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self {
            Some(value) => Form::serialize(value, to),
            None => to.serialize_none(),
        }
    }

    fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        <T as Form>::deserialize(from).map(Some)
    }
}

/// A value as it stands in a file, without quotation marks.
pub(super) struct Written<'v, T>(pub(super) &'v T);

impl<T: Form> fmt::Display for Written<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Form::serialize(self.0, f)
    }
}

pub(super) fn span<T: Form>(bounds: &RangeInclusive<T>) -> String {
    format!("{} to {}", Written(bounds.start()), Written(bounds.end()))
}

/// Why a value is refused, if it is out of its bounds.
pub(super) fn outside<T: Form + PartialOrd>(
    value: &T,
    bounds: &RangeInclusive<T>,
) -> Option<String> {
    (!bounds.contains(value)).then(|| format!("{} is not from {}", Written(value), span(bounds)))
}

/// Makes `Config` and `SETTINGS` from one entry for each setting: what it is, then `name: type`, and perhaps its default
/// (else that of the type), its bounds or what it takes in words, and what its flag shows for the value.
macro_rules! settings {
    ($($section:literal { $(
        $(#[doc = $doc:literal])+
        $name:ident: $type:ty $(= $default:expr)? $(, in $bounds:expr)? $(, takes $takes:literal)?
        $(, flag $($shown:literal)?)?;
    )+ })+) => {
        /// All settings, checked.
        #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
        #[serde(default, deny_unknown_fields)]
        pub struct Config {$($(
            $(#[doc = $doc])+
            #[serde(with = "Form")]
            pub $name: $type,
        )+)+}

        impl Default for Config {
            fn default() -> Self {
                Self {$($($name: settings!(@default $($default)?),)+)+}
            }
        }

        /// All settings, in the order of `docs/config.md`.
        pub const SETTINGS: &[Setting] = &[$($(Setting {
            name: stringify!($name),
            section: $section,
            kind: <$type as Form>::KIND,
            is_secret: <$type as Form>::IS_SECRET,
            words: <$type as Form>::words,
            flag: settings!(@flag $(flag $($shown)?)?),
            doc: concat!($($doc, "\n"),+),
            allowed: || settings!(@allowed $type $(, in $bounds)? $(, takes $takes)?),
        },)+)+];

        impl Config {
            /// The first setting that is out of its bounds, and why.
            pub(super) fn out_of_bounds(&self) -> Option<(&'static str, String)> {
                $($($(if let Some(why) = outside(&self.$name, &$bounds) {
                    return Some((stringify!($name), why));
                })?)+)+
                None
            }
        }
    };
    (@default) => { Default::default() };
    (@default $default:expr) => { $default };
    (@flag) => { None };
    (@flag flag) => { Some("") };
    (@flag flag $shown:literal) => { Some($shown) };
    (@allowed $type:ty, in $bounds:expr) => { span::<$type>(&$bounds) };
    (@allowed $type:ty, takes $takes:literal) => { $takes.to_owned() };
    (@allowed $type:ty) => {{
        let words = <$type as Form>::words();
        words.iter().map(|word| format!("`{}`", word.get_name())).collect::<Vec<_>>().join(", ")
    }};
}

pub(super) use settings;
