//! Files that are written whole or not at all: whoever reads them sees the old one or the new one.

use std::fs::Permissions;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use anyhow::Context as _;

/// Puts these bytes in the place of what a file has. With a mode, it gets that; else it is its owner's alone.
///
/// # Errors
/// The folder takes no file.
pub fn replace(path: &Path, bytes: &[u8], mode: Option<u32>) -> anyhow::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let written = || -> anyhow::Result<()> {
        let mut file = tempfile::NamedTempFile::new_in(folder.unwrap_or(Path::new(".")))?;
        file.write_all(bytes)?;
        if let Some(mode) = mode {
            file.as_file().set_permissions(Permissions::from_mode(mode))?;
        }
        file.persist(path)?;
        Ok(())
    };
    written().with_context(|| format!("cannot write {}", path.display()))
}
