//! What commands print: tables for people, and the API's own words as JSON.

use std::io::{IsTerminal as _, Write};

use clap::ValueEnum;
use fencegate_client::reading::Listing;
use fencegate_client::wire::json::Resource;
use fencegate_client::wire::shown::escaped;
use futures::TryStreamExt as _;
use indicatif::MultiProgress;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::durations;
use crate::failure::Failure;
use crate::options::Common;
use crate::terminal;

/// So many rows are laid out together.
const ROWS: usize = 1000;

/// How findings are printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum Format {
    /// For people; may change
    #[default]
    Table,
    /// For people, with all columns
    Wide,
    /// One document, in the words of the API
    Json,
    /// One document a line
    Jsonl,
    /// Names alone, one a line
    Name,
}

/// Where findings go.
#[derive(Debug, Clone)]
pub struct Out {
    format: Format,
    is_quiet: bool,
    /// Transfers under way, as a terminal shows them.
    bars: MultiProgress,
}

/// A column of a table.
pub struct Column<T> {
    /// Its head.
    pub title: &'static str,
    /// Whether it is only shown in wide tables.
    pub is_wide: bool,
    /// A cell.
    pub cell: fn(&T) -> String,
}

/// A column that is always shown.
pub const fn column<T>(title: &'static str, cell: fn(&T) -> String) -> Column<T> {
    Column { title, is_wide: false, cell }
}

/// A column of wide tables.
pub const fn wide<T>(title: &'static str, cell: fn(&T) -> String) -> Column<T> {
    Column { title, is_wide: true, cell }
}

impl Out {
    /// As the command line says.
    pub fn new(common: &Common) -> Self {
        let format = if common.json { Format::Json } else { common.output };
        Self { format, is_quiet: common.quiet, bars: MultiProgress::new() }
    }

    /// The same for what has no end: a line for each document.
    #[must_use]
    pub fn endless(&self) -> Self {
        let format = if self.format == Format::Json { Format::Jsonl } else { self.format };
        Self { format, ..self.clone() }
    }

    /// Where transfers under way are shown.
    pub fn bars(&self) -> &MultiProgress {
        &self.bars
    }

    /// Whether programs read it.
    pub fn is_json(&self) -> bool {
        matches!(self.format, Format::Json | Format::Jsonl)
    }

    /// Whether one document is wanted.
    pub fn is_document(&self) -> bool {
        self.format == Format::Json
    }

    /// Whether all columns are wanted.
    pub fn is_wide(&self) -> bool {
        self.format == Format::Wide
    }

    /// Prints a document, or a line for people.
    ///
    /// # Errors
    /// Nobody reads it any more.
    pub fn one<T: Serialize>(&self, value: &T, name: &str, text: &str) -> Result<(), Failure> {
        self.lines(value, name, &[text.to_owned()])
    }

    /// Prints a document, or lines for people.
    ///
    /// # Errors
    /// Nobody reads it any more.
    pub fn lines<T: Serialize>(
        &self,
        value: &T,
        name: &str,
        lines: &[String],
    ) -> Result<(), Failure> {
        match self.format {
            Format::Json | Format::Jsonl => self.exact(&json(value)?),
            Format::Name => self.line(name),
            Format::Table | Format::Wide if self.is_quiet => Ok(()),
            Format::Table | Format::Wide => lines.iter().try_for_each(|line| self.line(line)),
        }
    }

    /// Prints a line, whose hidden characters are escaped.
    ///
    /// # Errors
    /// Nobody reads it any more.
    pub fn line(&self, text: &str) -> Result<(), Failure> {
        self.exact(&escaped(text))
    }

    /// Prints a text as it is, and a line end, for programs.
    ///
    /// # Errors
    /// Nobody reads it any more.
    pub fn exact(&self, text: &str) -> Result<(), Failure> {
        // What shows transfers under way makes room for it.
        self.bars.suspend(|| {
            let mut out = std::io::stdout().lock();
            writeln!(out, "{text}").and_then(|()| out.flush()).map_err(Failure::of_output)
        })
    }

    /// Says something on standard error, unless it was asked to be quiet.
    pub fn say(&self, text: &str) {
        if !self.is_quiet && !self.is_json() {
            self.bars.suspend(|| terminal::write(&format!("{}\n", escaped(text))));
        }
    }

    /// Prints a list as it comes, page by page.
    ///
    /// # Errors
    /// The gateway cannot give it, or nobody reads it any more.
    pub async fn list<T: Serialize + DeserializeOwned + Send + 'static>(
        &self,
        list: Listing<T>,
        most: Option<usize>,
        name: fn(&T) -> String,
        columns: &[Column<T>],
    ) -> Result<(), Failure> {
        let mut items = list.stream();
        let mut printer = Printer::new(self, name, columns);
        let mut left = most.unwrap_or(usize::MAX);
        while left > 0
            && let Some(item) = items.try_next().await?
        {
            printer.add(item)?;
            left -= 1;
        }
        printer.end()
    }

    /// Prints a list that is at hand.
    ///
    /// # Errors
    /// Nobody reads it any more.
    pub fn items<T: Serialize>(
        &self,
        items: impl IntoIterator<Item = T>,
        name: fn(&T) -> String,
        columns: &[Column<T>],
    ) -> Result<(), Failure> {
        let mut printer = Printer::new(self, name, columns);
        items.into_iter().try_for_each(|item| printer.add(item))?;
        printer.end()
    }
}

/// Prints items one after another.
pub struct Printer<'a, T> {
    out: &'a Out,
    name: fn(&T) -> String,
    columns: Vec<&'a Column<T>>,
    rows: Vec<Vec<String>>,
    has_begun: bool,
}

impl<'a, T: Serialize> Printer<'a, T> {
    /// Prints in this way.
    pub fn new(out: &'a Out, name: fn(&T) -> String, columns: &'a [Column<T>]) -> Self {
        let shown = |column: &&Column<T>| out.is_wide() || !column.is_wide;
        let columns = columns.iter().filter(shown).collect();
        Self { out, name, columns, rows: Vec::new(), has_begun: false }
    }

    /// Takes the next item. Tables come out when there are enough of them.
    ///
    /// # Errors
    /// Nobody reads it any more.
    pub fn add(&mut self, item: T) -> Result<(), Failure> {
        match self.out.format {
            Format::Json => {
                let before = if self.has_begun { "," } else { "{\"items\":[" };
                self.has_begun = true;
                self.write(&format!("{before}{}", json(&item)?))
            }
            Format::Jsonl => self.out.exact(&json(&item)?),
            Format::Name => self.out.line(&(self.name)(&item)),
            Format::Table | Format::Wide => {
                // As wide as they are shown.
                let cell = |column: &&Column<T>| escaped(&(column.cell)(&item)).into_owned();
                self.rows.push(self.columns.iter().map(cell).collect());
                if self.rows.len() == ROWS { self.flush() } else { Ok(()) }
            }
        }
    }

    /// Prints the rows that have come.
    ///
    /// # Errors
    /// Nobody reads it any more.
    pub fn flush(&mut self) -> Result<(), Failure> {
        let titles = self.columns.iter().map(|column| column.title.to_owned()).collect();
        let mut rows = std::mem::take(&mut self.rows);
        if rows.is_empty() {
            return Ok(());
        }
        if !std::mem::replace(&mut self.has_begun, true) && !self.out.is_quiet {
            rows.insert(0, titles);
        }
        let width = |at: usize| {
            rows.iter().filter_map(|row| row.get(at)).map(|it| it.chars().count()).max()
        };
        let widths: Vec<_> = (0..self.columns.len()).map(|at| width(at).unwrap_or(0)).collect();
        for row in &rows {
            let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}"));
            self.out.line(cells.collect::<Vec<_>>().join("  ").trim_end())?;
        }
        Ok(())
    }

    /// Prints what is left.
    ///
    /// # Errors
    /// Nobody reads it any more.
    pub fn end(mut self) -> Result<(), Failure> {
        match self.out.format {
            Format::Json if self.has_begun => self.out.line("]}"),
            Format::Json => self.out.line("{\"items\":[]}"),
            _ => self.flush(),
        }
    }

    fn write(&self, text: &str) -> Result<(), Failure> {
        std::io::stdout().lock().write_all(text.as_bytes()).map_err(Failure::of_output)
    }
}

/// In the words of the API.
///
/// # Errors
/// None, for what the API has.
pub fn json<T: Serialize>(value: &T) -> Result<String, Failure> {
    serde_json::to_string(value).map_err(|error| Failure::Here(error.into()))
}

/// A time as people read it: where a terminal shows it, in their own zone.
pub fn time(at: jiff::Timestamp) -> String {
    if std::io::stdout().is_terminal() {
        at.to_zoned_datetime(jiff::tz::TimeZone::system()).strftime("%F %T").to_string()
    } else {
        at.strftime("%FT%TZ").to_string()
    }
}

/// State of a resource's lock, as people call it.
pub fn state(resource: &Resource) -> String {
    match (resource.state.as_str(), resource.breaks_in_ms) {
        ("leased", _) => "held".to_owned(),
        ("breaking", Some(due_ms)) => format!("held, broken in {}", durations::show_ms(due_ms)),
        ("expired", _) => "expired, may come back".to_owned(),
        ("released", _) => "free".to_owned(),
        (word, _) => word.to_owned(),
    }
}

/// A number of bytes as people read it.
pub fn bytes(count: i64) -> String {
    let units = ["B", "KiB", "MiB", "GiB", "TiB"];
    let (mut value, mut unit) = (count as f64, 0);
    while value >= 1024.0 && unit + 1 < units.len() {
        (value, unit) = (value / 1024.0, unit + 1);
    }
    let name = units.get(unit).copied().unwrap_or_default();
    if unit == 0 { format!("{count} {name}") } else { format!("{value:.1} {name}") }
}

/// What is there, or a dash.
pub fn or_dash(value: Option<impl ToString>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| value.to_string())
}
