//! The load generator: callers that ask one thing after the other, or at a given rate.

use std::time::{Duration, Instant};

use anyhow::Result;
use futures::future::try_join_all;
use hdrhistogram::Histogram;

/// Somebody who asks for one thing again and again.
pub trait Caller: Send + 'static {
    /// Asks once, and waits for the answer, which must be the one that is wanted.
    fn call(&mut self) -> impl Future<Output = Result<()>> + Send;
}

/// How callers go on.
#[derive(Debug, Clone, Copy)]
pub enum Pace {
    /// Each asks again as soon as it has its answer.
    Closed,
    /// All of them together ask so many times a second, whatever the answers take.
    PerSecond(f64),
}

/// What came of it.
#[derive(Debug)]
pub struct Measured {
    /// Answers in a second.
    pub per_second: f64,
    /// How long answers took, in microseconds, as somebody would see it who asks at a steady rate.
    pub micros: Histogram<u64>,
    /// All answers, those of the warm-up as well: what the processor time was spent on.
    pub answers: u64,
    /// Answers to others who asked meanwhile and are not measured, such as refusals.
    pub beside: u64,
}

/// The longest that is told apart, in microseconds.
const LONGEST_US: u64 = 60_000_000;

/// An empty histogram.
pub fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, LONGEST_US, 3).expect("good bounds")
}

/// Lets callers go on for a while, and measures all but the first part of it.
///
/// A caller that waits for a slow answer asks nothing meanwhile, so that a stall would count once and not for
/// all whom it kept waiting. At a given rate, an answer therefore counts from the moment at which the question
/// was due. Without one, each long answer also counts for the questions that would have come meanwhile, at
/// the mean distance of that caller's (as HdrHistogram does).
///
/// # Errors
/// Any answer that is not the one wanted.
pub async fn measure<C: Caller>(
    callers: Vec<C>,
    pace: Pace,
    warm_up: Duration,
    lasts: Duration,
) -> Result<Measured> {
    let count = callers.len();
    let begin = Instant::now() + warm_up;
    let lives = callers.into_iter().enumerate().map(|(number, mut caller)| {
        let every = match pace {
            Pace::Closed => None,
            Pace::PerSecond(rate) => Some(Duration::from_secs_f64(count as f64 / rate)),
        };
        let mut due =
            Instant::now() + every.unwrap_or_default().mul_f64(number as f64 / count as f64);
        tokio::spawn(async move {
            let (mut micros, mut answers) = (histogram(), 0);
            loop {
                match every {
                    Some(every) => {
                        tokio::time::sleep_until(due.into()).await;
                        due += every;
                    }
                    None => due = Instant::now(),
                }
                let asked_at = every.map_or(due, |every| due - every);
                if asked_at >= begin + lasts {
                    return Ok::<_, anyhow::Error>((micros, answers));
                }
                caller.call().await?;
                answers += 1;
                if asked_at >= begin {
                    let took = u64::try_from(asked_at.elapsed().as_micros()).unwrap_or(LONGEST_US);
                    micros.saturating_record(took.max(1));
                }
            }
        })
    });
    let (mut micros, mut answers) = (histogram(), 0);
    for life in try_join_all(lives).await? {
        let (its_micros, its_answers) = life?;
        micros.add(its_micros)?;
        answers += its_answers;
    }
    let per_second = micros.len() as f64 / lasts.as_secs_f64();
    if matches!(pace, Pace::Closed) && per_second > 0.0 {
        let distance_us = 1e6 * count as f64 / per_second;
        micros = micros.clone_correct(distance_us as u64);
    }
    Ok(Measured { per_second, micros, answers, beside: 0 })
}
