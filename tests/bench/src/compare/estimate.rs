//! A ratio by many pairs, of which some were disturbed, and how sure it is.

use std::fmt;

use serde::Serialize;

/// The part of the pairs that is left out at either end.
const TRIMMED: f64 = 0.2;
/// The quantile of the normal distribution for an interval of 99 %.
const Z: f64 = 2.575_829;

/// The trimmed mean of some ratios, by their logarithms, and its 99 % interval (by Yuen: Student's t with the winsorized
/// variance). A few pairs that something else on the machine disturbed move neither.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Estimate {
    /// The ratio.
    pub ratio: f64,
    /// The lower end of the interval.
    pub lower: f64,
    /// The upper end.
    pub upper: f64,
}

impl Estimate {
    /// Estimates by at least five ratios; fewer give no number.
    pub fn of(ratios: &[f64]) -> Self {
        let mut logs: Vec<f64> = ratios.iter().map(|ratio| ratio.ln()).collect();
        logs.sort_by(f64::total_cmp);
        let cut = (logs.len() as f64 * TRIMMED) as usize;
        let kept = logs.len() - 2 * cut;
        let middle = &logs[cut..cut + kept];
        let (Some(least), Some(most)) = (middle.first(), middle.last()) else {
            return Self::unknown();
        };
        if logs.len() < 5 || logs.iter().any(|log| !log.is_finite()) {
            return Self::unknown();
        }
        let mean = mean(middle.iter().copied());
        let winsorized = || logs.iter().map(|log| log.clamp(*least, *most));
        let center = self::mean(winsorized());
        let squares: f64 = winsorized().map(|log| (log - center).powi(2)).sum();
        let freedom = (kept - 1) as f64;
        let error = (squares / (freedom * kept as f64)).sqrt();
        let reach = student(freedom) * error;
        Self { ratio: mean.exp(), lower: (mean - reach).exp(), upper: (mean + reach).exp() }
    }

    /// How far either end of the interval is from 1, whichever is farther.
    pub fn spread(&self) -> f64 {
        (1.0 - self.lower).abs().max((self.upper - 1.0).abs())
    }

    fn unknown() -> Self {
        Self { ratio: f64::NAN, lower: f64::NAN, upper: f64::NAN }
    }
}

impl fmt::Display for Estimate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.3} ({:.3}-{:.3})", self.ratio, self.lower, self.upper)
    }
}

fn mean(values: impl Iterator<Item = f64>) -> f64 {
    let (sum, count) = values.fold((0.0, 0.0), |(sum, count), value| (sum + value, count + 1.0));
    sum / count
}

/// The quantile of Student's t for an interval of 99 %, from that of the normal distribution (Abramowitz and Stegun,
/// 26.7.5): right to 3 % from 3 degrees of freedom on.
fn student(freedom: f64) -> f64 {
    let z = Z;
    let terms = [
        (z.powi(3) + z) / 4.0,
        (5.0 * z.powi(5) + 16.0 * z.powi(3) + 3.0 * z) / 96.0,
        (3.0 * z.powi(7) + 19.0 * z.powi(5) + 17.0 * z.powi(3) - 15.0 * z) / 384.0,
    ];
    terms.iter().rev().fold(0.0, |rest, term| (term + rest) / freedom) + z
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The same numbers each time, from -1 to 1, with a mean near 0.
    fn noise(count: usize) -> impl Iterator<Item = f64> {
        (0..count).map(|at| ((at * 7919 + 13) % 101) as f64 / 50.0 - 1.0)
    }

    #[test]
    fn quantiles_are_those_of_the_tables() {
        for (freedom, wanted) in
            [(3.0, 5.841), (5.0, 4.032), (8.0, 3.355), (11.0, 3.106), (30.0, 2.750)]
        {
            let quantile = student(freedom);
            assert!((quantile / wanted - 1.0).abs() < 0.035, "{freedom}: {quantile}, not {wanted}");
        }
    }

    #[test]
    fn equal_ratios_leave_no_doubt() {
        let estimate = Estimate::of(&[1.25; 10]);
        let Estimate { ratio, lower, upper } = estimate;
        assert!([ratio, lower, upper].iter().all(|it| (it - 1.25).abs() < 1e-9), "{estimate}");
        assert!((estimate.spread() - 0.25).abs() < 1e-9);
    }

    #[test]
    fn an_interval_by_hand() {
        // Of the logarithms 0 to 9 hundredths two are cut at either end: the mean of 2 to 7 is 4.5. Winsorized they are
        // 2, 2, 2, 3, 4, 5, 6, 7, 7, 7 with a sum of squares of 42.5 about 4.5. Over 5 * 6 that is 1.4167: an error of
        // 1.1902, times 4.032.
        let ratios: Vec<f64> = (0..10).map(|at| (f64::from(at) / 100.0).exp()).collect();
        let Estimate { ratio, lower, upper } = Estimate::of(&ratios);
        assert!((ratio.ln() - 0.045).abs() < 1e-9);
        assert!((ratio.ln() - lower.ln() - 0.047_99).abs() < 5e-4, "{}", ratio.ln() - lower.ln());
        assert!((upper.ln() - ratio.ln() - 0.047_99).abs() < 5e-4);
    }

    #[test]
    fn a_few_disturbed_pairs_move_it_little() {
        let mut ratios: Vec<f64> = noise(20).map(|noise| 1.0 + noise / 100.0).collect();
        let before = Estimate::of(&ratios);
        ratios[3] = 7.0;
        ratios[12] = 2.5;
        ratios[17] = 0.1;
        let after = Estimate::of(&ratios);
        assert!((before.ratio - after.ratio).abs() < 0.005, "{before}, {after}");
        assert!(after.upper < 1.02, "{after}");
    }

    #[test]
    fn more_pairs_are_surer() {
        let spread = |count| {
            let ratios: Vec<f64> = noise(count).map(|noise| 1.0 + noise / 20.0).collect();
            Estimate::of(&ratios).spread()
        };
        assert!(spread(40) < spread(10) / 2.0, "{} {}", spread(10), spread(40));
    }

    #[test]
    fn too_few_or_impossible_ratios_are_no_number() {
        for ratios in [&[][..], &[1.0], &[1.0; 4], &[1.0, 1.0, 1.0, 0.0, 1.0, 1.0]] {
            assert!(Estimate::of(ratios).ratio.is_nan(), "{ratios:?}");
        }
    }
}
