//! Deliberately wrong clients, to see that the conformance scenarios notice. Nothing is wrong unless a program
//! that was built with the feature `mutants` chooses so.

#[cfg(feature = "mutants")]
static CHOSEN: std::sync::OnceLock<String> = std::sync::OnceLock::new();

/// Makes this process the wrong client of this name, for good.
#[cfg(feature = "mutants")]
pub fn choose(name: &str) {
    CHOSEN.get_or_init(|| name.to_owned());
}

/// Whether this process is that wrong client.
#[cfg(feature = "mutants")]
pub(crate) fn is(name: &str) -> bool {
    CHOSEN.get().is_some_and(|chosen| chosen == name)
}

/// Whether this process is that wrong client: never.
#[cfg(not(feature = "mutants"))]
pub(crate) const fn is(_name: &str) -> bool {
    false
}
