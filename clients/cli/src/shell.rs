//! `fence completions` and `man`: what a shell and man(1) want to know of this program.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;
use clap::{Args, CommandFactory as _};
use clap_complete::Shell;

use crate::failure::Failure;
use crate::options::Cli;

/// For which shell.
#[derive(Debug, Args)]
pub struct Completions {
    /// The shell
    #[arg(value_enum, value_name = "SHELL")]
    shell: Shell,
}

impl Completions {
    /// Prints the script that the shell reads.
    ///
    /// # Errors
    /// Nobody reads it any more.
    pub fn run(&self) -> Result<ExitCode, Failure> {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut Cli::command(), "fence", &mut script);
        let mut out = std::io::stdout().lock();
        out.write_all(&script).and_then(|()| out.flush()).map_err(Failure::of_output)?;
        Ok(ExitCode::SUCCESS)
    }
}

/// Where the pages go.
#[derive(Debug, Args)]
pub struct Man {
    /// The folder
    #[arg(value_name = "FOLDER")]
    folder: PathBuf,
}

/// When the pages were last changed by hand.
const CHANGED: &str = "2026-11-26";

impl Man {
    /// Writes a page for `fence` and one for each command.
    ///
    /// # Errors
    /// They cannot be written.
    pub fn run(&self) -> Result<ExitCode, Failure> {
        let mut command = Cli::command();
        command.build();
        let written = std::fs::create_dir_all(&self.folder).and_then(|()| self.write(&command));
        written.with_context(|| format!("cannot write to {}", self.folder.display()))?;
        Ok(ExitCode::SUCCESS)
    }

    fn write(&self, command: &clap::Command) -> std::io::Result<()> {
        let name = command.get_display_name().unwrap_or_else(|| command.get_name()).to_owned();
        let page = clap_mangen::Man::new(command.clone());
        let page = page.title(name.to_uppercase()).date(CHANGED).manual("Fencegate");
        let mut text = Vec::new();
        page.render(&mut text)?;
        // A line break beside a blank line is one too many for mandoc(1).
        let text = String::from_utf8_lossy(&text).replace(".br\n\n.br\n", ".sp\n");
        std::fs::write(self.folder.join(format!("{name}.1")), text)?;
        let shown = command.get_subcommands().filter(|command| !command.is_hide_set());
        shown.into_iter().try_for_each(|command| self.write(command))
    }
}
