//! `fence s3-key`: the key of S3 of a lock, in the forms that tools read.

use std::process::ExitCode;

use clap::{Args, ValueEnum};
use serde::Serialize;

use super::endpoint::Endpoint;
use super::environment::Environment;
use crate::app::App;
use crate::failure::Failure;
use crate::locks::meant;

/// Of which lock, and in which form.
#[derive(Debug, Args)]
#[command(after_long_help = crate::help::S3_KEY)]
pub struct S3Key {
    /// The id of the lock; by default that of `fence run`
    #[arg(value_name = "ID")]
    id: Option<String>,
    /// The form
    #[arg(long = "as", value_enum, value_name = "FORM", default_value_t = Form::Process)]
    form: Form,
}

/// Who reads it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Form {
    /// For a `credential_process` of the AWS tools
    Process,
    /// As from an address of container credentials
    Container,
    /// Variables for `eval`, as `fence run` sets them
    Env,
    /// All of it, in the words of the API
    Json,
}

impl S3Key {
    /// Prints it.
    ///
    /// # Errors
    /// The lock has ended, there is none of this id, or it has no key.
    pub async fn run(&self, app: &App) -> Result<ExitCode, Failure> {
        let (id, client) = (meant(self.id.as_deref())?, &app.client);
        let text = match self.form {
            Form::Process => json(&client.s3_process_credentials(id).await?)?,
            Form::Container => json(&client.s3_container_credentials(id).await?)?,
            Form::Json => json(&client.s3_access(id).await?)?,
            Form::Env => {
                let access = client.s3_access(id).await?;
                let endpoint = Endpoint::of(&access.endpoint).await?;
                let ca_file = app.settings.files.ca_file.as_deref();
                script(&Environment::of(&access, &endpoint, ca_file))
            }
        };
        app.out.exact(&text)?;
        Ok(ExitCode::SUCCESS)
    }
}

fn json(value: &impl Serialize) -> Result<String, Failure> {
    Ok(serde_json::to_string(value).map_err(anyhow::Error::from)?)
}

/// What a shell evaluates.
fn script(environment: &Environment) -> String {
    let set =
        environment.set.iter().map(|(name, value)| format!("export {name}={}", quoted(value)));
    let unset = format!("unset {}", environment.unset.join(" "));
    [unset].into_iter().chain(set).collect::<Vec<_>>().join("\n")
}

/// A text as a shell reads it.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests {
    use super::quoted;

    #[test]
    fn a_shell_reads_what_is_quoted() {
        assert_eq!(quoted("a b$c"), "'a b$c'");
        assert_eq!(quoted("it's"), "'it'\\''s'");
    }
}
