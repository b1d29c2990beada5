//! Which mistake this process makes.

use std::sync::OnceLock;

static CHOSEN: OnceLock<String> = OnceLock::new();

/// Makes this process the wrong client of this name, for good.
pub fn choose(name: &str) {
    CHOSEN.get_or_init(|| name.to_owned());
}

/// Whether this process is that wrong client.
pub(crate) fn is(name: &str) -> bool {
    CHOSEN.get().is_some_and(|chosen| chosen == name)
}
