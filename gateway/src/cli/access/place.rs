//! Where rules, buckets and keys are: in a ledger that this command uses itself, or behind a gateway.

use std::path::PathBuf;

use anyhow::Context as _;
use fence_core::wire;
use fencegate_s3::bucket::{BucketName, Depth};

use super::remote::Remote;
use crate::config::{AdminAddress, Config};
use crate::wiring;

/// What says where, beside the settings.
#[derive(Debug, Default, clap::Args)]
pub(in crate::cli) struct Where {
    /// Ask this gateway, in place of the ledger: http://HOST:PORT, https://HOST:PORT or unix:PATH
    ///
    /// With the key in --auth-token-file, FENCE_AUTH_TOKEN_FILE or FENCE_AUTH_TOKEN; whom to trust beside this machine's
    /// own authorities says FENCE_CA_FILE.
    #[arg(long, value_name = "URL")]
    pub(in crate::cli) url: Option<String>,

    /// A file with the key to show to the gateway of --url
    #[arg(long, value_name = "FILE", requires = "url")]
    auth_token_file: Option<PathBuf>,
}

/// Leave to make what there is to work on.
#[derive(Debug, Default, clap::Args)]
pub(in crate::cli) struct Making {
    /// Make the data directory and its ledger if they are not there yet
    ///
    /// Without it a command that finds no ledger names the directory that it looked in, and changes nothing.
    #[arg(long)]
    pub(in crate::cli) create: bool,
}

impl Making {
    /// The place, which may be new if that was said.
    ///
    /// # Errors
    /// Those of [`Place::of`].
    pub(in crate::cli) fn place(&self, at: Where, config: Config) -> anyhow::Result<Place> {
        match self.create {
            true => Place::making(at, config),
            false => Place::of(at, config),
        }
    }
}

/// Where the rules are.
pub(in crate::cli) enum Place {
    /// In the ledger of these settings: whoever may use it needs no right.
    Ledger(Box<Config>),
    /// Behind a gateway, which asks who wants it.
    Gateway(Remote),
}

impl Place {
    /// 1. Behind the URL that is named.
    /// 2. Behind the socket of the gateway that uses the data directory, if one does.
    /// 3. In the ledger, which has to be there.
    pub(in crate::cli) fn of(at: Where, config: Config) -> anyhow::Result<Self> {
        let place = Self::making(at, config)?;
        if let Self::Ledger(config) = &place {
            wiring::require_ledger(config)?;
        }
        Ok(place)
    }

    /// The same, for a command that was told to make the ledger if there is none yet.
    pub(in crate::cli) fn making(at: Where, config: Config) -> anyhow::Result<Self> {
        // Step 1.
        if let Some(url) = at.url {
            return Ok(Self::Gateway(Remote::named(&url, at.auth_token_file.as_deref())?));
        }
        // Step 2.
        let sockets = config.admin_listen.iter().filter_map(|at| match at {
            AdminAddress::Unix(path) => Some(path),
            AdminAddress::Tcp(_) => None,
        });
        let answers = |path: &&PathBuf| std::os::unix::net::UnixStream::connect(path).is_ok();
        if !config.is_shared()
            && let Some(path) = sockets.clone().find(answers)
        {
            return Ok(Self::Gateway(Remote::at_socket(path, None)?));
        }
        // Step 3.
        Ok(Self::Ledger(Box::new(config)))
    }

    /// A page of the audit with its leaves, from this one on.
    ///
    /// # Errors
    /// It cannot be had, or there is no checkpoint yet.
    pub(in crate::cli) async fn audit_page(&self, from: i64) -> anyhow::Result<wire::AuditExport> {
        match self {
            Self::Gateway(gateway) => gateway.audit_page(from).await,
            Self::Ledger(config) => {
                let page = wiring::audit_in_ledger(config, from / wire::AUDIT_TILE).await?;
                Ok(page
                    .context("there is no checkpoint yet: a gateway makes the first one")?
                    .into())
            }
        }
    }

    /// A new key of S3: with these rights, or else of a principal.
    ///
    /// # Errors
    /// It cannot be had.
    pub(super) async fn new_s3_key(
        &self,
        rights: Option<wire::S3Rights>,
    ) -> anyhow::Result<wire::S3Key> {
        match self {
            Self::Gateway(gateway) => gateway.new_s3_key(wire::S3KeyRequest { rights }).await,
            Self::Ledger(config) => wiring::new_s3_key(config, rights).await,
        }
    }

    /// All buckets.
    ///
    /// # Errors
    /// They cannot be had.
    pub(in crate::cli) async fn buckets(&self) -> anyhow::Result<Vec<wire::Bucket>> {
        match self {
            Self::Gateway(gateway) => gateway.buckets().await,
            Self::Ledger(config) => wiring::buckets(config).await,
        }
    }

    /// Makes a bucket.
    ///
    /// # Errors
    /// It has another depth; or that cannot be done, or is not known to be.
    pub(in crate::cli) async fn make_bucket(
        &self,
        name: &BucketName,
        depth: Depth,
    ) -> anyhow::Result<wire::Bucket> {
        match self {
            Self::Gateway(gateway) => gateway.make_bucket(name, depth).await,
            Self::Ledger(config) => wiring::make_bucket(config, name, depth).await,
        }
    }

    /// Deletes a bucket that is empty.
    ///
    /// # Errors
    /// It is not empty, or there is none; or that cannot be done, or is not known to be.
    pub(in crate::cli) async fn drop_bucket(&self, name: &BucketName) -> anyhow::Result<()> {
        match self {
            Self::Gateway(gateway) => gateway.drop_bucket(name).await,
            Self::Ledger(config) => wiring::drop_bucket(config, name).await,
        }
    }

    /// The rules that are in force.
    ///
    /// # Errors
    /// They cannot be had.
    pub(super) async fn rules(&self) -> anyhow::Result<wire::AccessRules> {
        match self {
            Self::Gateway(gateway) => gateway.rules().await,
            Self::Ledger(config) => {
                let found = wiring::rules_in_force(config).await?;
                Ok(wire::AccessRules { generation: found.generation, rules: found.text })
            }
        }
    }

    /// Puts rules in force, or tells which locks they would take away.
    ///
    /// # Errors
    /// They are not; or that is not known, and the error says so.
    pub(super) async fn apply(
        &self,
        request: wire::ApplyRequest,
    ) -> anyhow::Result<wire::AccessApplied> {
        match self {
            Self::Gateway(gateway) => gateway.apply(&request).await,
            Self::Ledger(config) => {
                let wire::ApplyRequest { rules, reason, follows, breaks, dry_run } = request;
                let how = (reason.as_str(), breaks);
                let applied = match dry_run {
                    true => wiring::lost_by_rules(config, &rules, follows, breaks).await?,
                    false => wiring::apply_rules(config, rules, follows, how).await?,
                };
                Ok(applied.into())
            }
        }
    }

    /// What the rules say.
    ///
    /// # Errors
    /// They cannot be had, or it makes no sense.
    pub(super) async fn explain(
        &self,
        request: wire::ExplainRequest,
    ) -> anyhow::Result<wire::Explanation> {
        match self {
            Self::Gateway(gateway) => gateway.explain(&request).await,
            Self::Ledger(config) => {
                let wire::ExplainRequest { principal, action, resource } = request;
                Ok(wiring::explain_rules(config, &principal, &action, &resource).await?.into())
            }
        }
    }
}
