//! `fence job check`: whether jobs are well, in the codes of Nagios.

use std::process::ExitCode;

use clap::Args;
use fencegate_client::jobs::{Cut, JobStatus, JobView};
use futures::TryStreamExt as _;
use serde_json::json;

use crate::app::{App, with_app};
use crate::contact::{self, Patience};
use crate::durations;
use crate::failure::Failure;
use crate::options::Common;

/// Which jobs to look at.
#[derive(Debug, Args)]
#[command(
    after_long_help = "Exit status:\n  0  all are well\n  1  a warning: the last run of one failed\n  \
    2  critical: one is overdue, stuck, or lost\n  3  not known: there is no such job, or no gateway"
)]
pub struct Check {
    /// The jobs; with parts, all of them are looked at
    #[arg(value_name = "NAME", required = true)]
    names: Vec<String>,
}

/// How bad it is. The worst counts; that nothing is known is worse than a warning and better than what is critical.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Level {
    Ok,
    Warning,
    Unknown,
    Critical,
}

impl Level {
    fn code(self) -> u8 {
        match self {
            Self::Ok => 0,
            Self::Warning => 1,
            Self::Critical => 2,
            Self::Unknown => 3,
        }
    }

    fn word(self) -> &'static str {
        match self {
            Self::Ok => "OK",
            Self::Warning => "WARNING",
            Self::Critical => "CRITICAL",
            Self::Unknown => "UNKNOWN",
        }
    }
}

impl Check {
    /// Looks at them.
    pub fn run(&self, common: &Common) -> ExitCode {
        // Whatever keeps it from knowing has a code of its own: also that no gateway is there.
        with_app(common, Patience::Unasked, async |app| match self.reach_and_look(app).await {
            Ok(found) => tell(app, &found),
            // Whatever keeps it from knowing has this code.
            Err(failure) => {
                let _told = failure.tell(app.out.is_json());
                Ok(ExitCode::from(Level::Unknown.code()))
            }
        })
    }

    async fn reach_and_look(&self, app: &App) -> Result<Vec<Finding>, Failure> {
        contact::make(&app.client, &app.settings, Patience::Short, |text| app.out.say(text))
            .await?;
        self.look(app).await
    }

    async fn look(&self, app: &App) -> Result<Vec<Finding>, Failure> {
        let mut found = Vec::new();
        for name in &self.names {
            let name = super::named(name)?;
            let views = app.client.jobs(name.name());
            let is_meant = |view: &JobView| {
                view.name.name() == name.name()
                    && (name.which().is_none() || view.name.which() == name.which())
            };
            let views: Vec<JobView> =
                views.try_filter(|view| std::future::ready(is_meant(view))).try_collect().await?;
            if views.is_empty() {
                found.push(Finding {
                    job: name.to_string(),
                    level: Level::Unknown,
                    text: "it has never run".to_owned(),
                });
            }
            for view in &views {
                found.push(judged(view, super::cut_of(app, view).await?.as_ref()));
            }
        }
        Ok(found)
    }
}

struct Finding {
    job: String,
    level: Level,
    text: String,
}

fn judged(view: &JobView, cut: Option<&Cut>) -> Finding {
    let state = &view.state;
    let finding = |level, text: String| Finding { job: view.name.to_string(), level, text };
    let status = view.status();
    if status == JobStatus::Lost {
        let owner = state.running.as_ref().map_or("-", |run| run.owner.as_str());
        let how = cut.map_or("its lock has ended without a word".to_owned(), Cut::to_string);
        return finding(Level::Critical, format!("the run of {owner} is lost: {how}"));
    }
    if view.is_overdue() {
        let last = state.last_success.as_ref().map_or("never".to_owned(), |it| it.slot.to_string());
        return finding(
            Level::Critical,
            format!("it is overdue: the last success was slot {last}"),
        );
    }
    if view.is_stuck() {
        let running =
            durations::show(std::time::Duration::from_millis(view.running_ms().unwrap_or(0)));
        return finding(Level::Critical, format!("it is stuck: it has been running for {running}"));
    }
    if state.failures_in_row > 0 {
        let count = state.failures_in_row;
        let reason = state
            .last
            .as_ref()
            .and_then(|it| it.reason.clone())
            .map_or(String::new(), |it| format!(": {it}"));
        let times =
            if count == 1 { "the last run".to_owned() } else { format!("the last {count} runs") };
        return finding(Level::Warning, format!("{times} failed{reason}"));
    }
    finding(Level::Ok, status.as_str().to_owned())
}

fn tell(app: &App, found: &[Finding]) -> Result<ExitCode, Failure> {
    let worst = found.iter().map(|it| it.level).max().unwrap_or(Level::Unknown);
    if app.out.is_json() {
        let items = found
            .iter()
            .map(|it| json!({"job": it.job, "level": it.level.word(), "text": it.text}));
        app.out.one(
            &json!({"level": worst.word(), "items": items.collect::<Vec<_>>()}),
            worst.word(),
            "",
        )?;
    } else {
        // One line is what is shown: the worst first.
        let mut lines: Vec<&Finding> = found.iter().collect();
        lines.sort_by_key(|it| std::cmp::Reverse(it.level));
        let texts: Vec<_> = lines.iter().map(|it| format!("{}: {}", it.job, it.text)).collect();
        app.out.line(&format!("{} - {}", worst.word(), texts.join("; ")))?;
    }
    Ok(ExitCode::from(worst.code()))
}
