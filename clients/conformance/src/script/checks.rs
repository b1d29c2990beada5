//! Small comparisons that say what was compared.

use std::fmt::Debug;

use anyhow::{Context as _, Result, ensure};

/// Both are the same.
pub fn same<Have, Want>(what: &str, have: &Have, want: &Want) -> Result<()>
where
    Have: PartialEq<Want> + Debug + ?Sized,
    Want: Debug + ?Sized,
{
    ensure!(have == want, "{what} is {have:?}, not {want:?}");
    Ok(())
}

/// A number lies between these, inclusive.
pub fn within(what: &str, have: u64, low: u64, high: u64) -> Result<()> {
    ensure!((low..=high).contains(&have), "{what} is {have}, not from {low} to {high}");
    Ok(())
}

/// Numbers as text rise.
pub fn rises(what: &str, numbers: &[String]) -> Result<()> {
    let parsed: Vec<u64> = numbers
        .iter()
        .map(|number| number.parse().with_context(|| format!("{what}: {number} is no number")))
        .collect::<Result<_>>()?;
    ensure!(parsed.windows(2).all(|two| two[0] < two[1]), "{what} do not rise: {numbers:?}");
    Ok(())
}

/// The version of a UUID.
pub fn uuid_version(what: &str, text: &str) -> Result<usize> {
    let id = uuid::Uuid::parse_str(text).with_context(|| format!("{what} is no UUID: {text}"))?;
    Ok(id.get_version_num())
}
