//! What a drill has to tell: a line for each step, and how it came out as a whole.

use std::fmt;

use serde::Serialize;

use super::remote::Answer;

/// How a step, or a drill as a whole, came out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// As it must.
    Held,
    /// Otherwise than it must: a fence that does not hold, or what looks like it from here.
    Failed,
    /// It could not be tried, or nobody knows what came of it.
    NotDone,
}

/// One step of a drill. It is shown as one line.
#[derive(Debug, Clone, Serialize)]
pub struct Step {
    /// A short name, the same for ever.
    pub step: &'static str,
    /// What must happen.
    pub must: &'static str,
    /// How it came out.
    pub outcome: Outcome,
    /// The status of the answer that decided.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// The error code in it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// What else there is to say.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
}

impl Step {
    /// A step that was decided by an answer, or by the lack of one.
    pub(super) fn new(
        (step, must): (&'static str, &'static str),
        outcome: Outcome,
        answer: Option<&Answer>,
        detail: Option<String>,
    ) -> Self {
        let status = answer.map(|answer| answer.status);
        let code = answer.and_then(|answer| answer.code.clone());
        Self { step, must, outcome, status, code, detail }
    }
}

impl Step {
    /// What was seen, behind a colon; empty if there is nothing to say.
    fn seen(&self) -> String {
        let status = self.status.map(|status| status.to_string());
        let seen = [status, self.code.clone(), self.detail.clone()];
        let seen: Vec<String> = seen.iter().flatten().map(|text| one_line(text)).collect();
        if seen.is_empty() { String::new() } else { format!(": {}", seen.join(", ")) }
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mark = match self.outcome {
            Outcome::Held => "ok",
            Outcome::Failed => "FAILED",
            Outcome::NotDone => "not done",
        };
        write!(f, "{mark:<9} {}{}", self.must, self.seen())
    }
}

/// Text from elsewhere, which must not move the cursor of a terminal.
fn one_line(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// What came of a drill.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// The gateway, without a password.
    pub url: String,
    /// The canary resource.
    pub resource: String,
    /// How it came out as a whole.
    pub outcome: Outcome,
    /// The steps, in order.
    pub steps: Vec<Step>,
}

impl Report {
    /// All steps of a drill, judged together.
    pub(super) fn new(url: String, resource: String, steps: Vec<Step>) -> Self {
        let any = |outcome| steps.iter().any(|step| step.outcome == outcome);
        let outcome = match (any(Outcome::Failed), any(Outcome::NotDone)) {
            (true, _) => Outcome::Failed,
            (false, true) => Outcome::NotDone,
            (false, false) => Outcome::Held,
        };
        Self { url, resource, outcome, steps }
    }

    /// One line on the whole, which names the steps that count.
    pub fn verdict(&self) -> String {
        let steps = self.steps.iter().filter(|step| step.outcome == self.outcome);
        let named: Vec<_> = steps.map(|step| format!("{}{}", step.step, step.seen())).collect();
        let named = named.join("; ");
        match self.outcome {
            Outcome::Held => "the fence holds".to_owned(),
            Outcome::Failed => format!("NOT AS IT MUST BE: {named}"),
            Outcome::NotDone => format!("the drill could not be carried out: {named}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(outcomes: &[Outcome]) -> Report {
        let step = |outcome| Step::new(("a", "this is so"), outcome, None, None);
        let steps = outcomes.iter().map(|outcome| step(*outcome)).collect();
        Report::new("http://g".into(), "r".into(), steps)
    }

    #[test]
    fn one_failed_step_outweighs_all_others() {
        use Outcome::{Failed, Held, NotDone};
        for (outcomes, whole) in [
            (&[Held, Held][..], Held),
            (&[Held, NotDone], NotDone),
            (&[Failed, Held], Failed),
            (&[Failed, NotDone], Failed),
        ] {
            assert_eq!(report(outcomes).outcome, whole, "{outcomes:?}");
        }
    }

    #[test]
    fn a_step_is_one_line_whatever_a_server_answers() {
        let step = Step {
            step: "late",
            must: "it is refused",
            outcome: Outcome::Failed,
            status: Some(200),
            code: Some("a\nb".into()),
            detail: Some("\u{1b}[2Jgone".into()),
        };
        assert_eq!(step.to_string(), "FAILED    it is refused: 200, a b,  [2Jgone");
    }
}
