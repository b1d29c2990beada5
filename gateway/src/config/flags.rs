//! The flags that set what the file and the environment can set too.

use std::path::PathBuf;
use std::sync::LazyLock;

use clap::builder::{NonEmptyStringValueParser, PossibleValuesParser};
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use regex::Regex;
use serde_json::Value;

use super::load::Layer;
use super::table::{Kind, Setting};
use super::{Config, SETTINGS};

/// Settings on the command line. Each wins over the environment, which wins over the file.
#[derive(Debug, Clone, Default)]
pub struct Flags {
    /// The file, if one was named.
    pub(super) config: Option<PathBuf>,
    /// The flags that were given, under the names of their settings.
    pub(super) values: Layer,
}

impl clap::Args for Flags {
    fn augment_args(command: Command) -> Command {
        let config = Arg::new("config").long("config").value_name("FILE");
        let config = config
            .help("Read settings from this file [default: ./fencegate.toml, if it exists]")
            .value_parser(value_parser!(PathBuf));
        let defaults = toml::Table::try_from(Config::default()).unwrap_or_default();
        let arg = |setting: &Setting| Some(arg(setting, setting.flag?, defaults.get(setting.name)));
        command.arg(config).args(SETTINGS.iter().filter_map(arg))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl clap::FromArgMatches for Flags {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let value = |setting: &Setting| match setting.kind {
            Kind::Truth => matches.get_flag(setting.name).then(|| Value::from(true)),
            kind => {
                let given = matches.get_many::<String>(setting.name)?;
                Some(kind.value(&given.map(String::as_str).collect::<Vec<_>>()))
            }
        };
        let flags = SETTINGS.iter().filter(|setting| setting.flag.is_some());
        let values = flags.filter_map(|setting| Some((setting.name.to_owned(), value(setting)?)));
        Ok(Self { config: matches.get_one("config").cloned(), values: values.collect() })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

/// The flag of a setting, which shows `shown` for its value.
fn arg(setting: &Setting, shown: &'static str, default: Option<&toml::Value>) -> Arg {
    let (action, more) = match setting.kind {
        Kind::Truth => (ArgAction::SetTrue, String::new()),
        Kind::List | Kind::Upstreams => (ArgAction::Append, " (repeatable)".into()),
        Kind::Text | Kind::Path | Kind::Number => {
            let default = default.map(toml::Value::to_string).unwrap_or_default();
            let told = if default.is_empty() {
                default
            } else {
                format!(" [default: {}]", default.trim_matches('"'))
            };
            (ArgAction::Set, told)
        }
    };
    let doc = without_links(&setting.doc());
    let first = doc.split_once(". ").map_or(doc.trim_end_matches('.'), |(first, _)| first);
    let help = format!("{first}{more}");
    let arg = Arg::new(setting.name).long(setting.flag()).help(help).long_help(doc.clone() + &more);
    // The pairs of an upstream have commas between them, too.
    let splits = setting.kind == Kind::List && shown.ends_with(",...");
    let words = (setting.words)();
    match setting.kind {
        Kind::Truth => arg,
        Kind::Text if !words.is_empty() => arg.value_parser(PossibleValuesParser::new(words)),
        Kind::Path => arg.value_parser(NonEmptyStringValueParser::new()),
        Kind::Number => arg.value_parser(|text: &str| text.parse::<u64>().map(|_| text.to_owned())),
        _ => arg.value_delimiter(splits.then_some(',')),
    }
    .value_name(shown)
    .action(action)
}

/// Markdown in which links are only their text.
fn without_links(markdown: &str) -> String {
    // It is compiled once for all settings: compiled for each of them, it took most of the time of a start.
    static LINK: LazyLock<Regex> = LazyLock::new(|| {
        // INVARIANT: the expression is a good one.
        Regex::new(r"\[([^\]]*)\]\([^)]*\)").expect("a regular expression")
    });
    LINK.replace_all(markdown, "$1").into_owned()
}
