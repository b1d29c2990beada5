//! The effective settings as TOML, and what they come to.

use super::{Config, ConfigError, SETTINGS};

impl Config {
    /// The effective settings as a file that could be read again but for its secrets, then what
    /// the gateway promises with them.
    pub fn show(&self) -> Result<String, ConfigError> {
        let table = toml::Table::try_from(self).map_err(|error| ConfigError(error.to_string()))?;
        let mut text = String::new();
        for setting in SETTINGS {
            let name = setting.name;
            match table.get(name) {
                Some(value) => text.push_str(&format!("{name} = {value}\n")),
                None => text.push_str(&format!("# {name} is not set\n")),
            }
        }
        text.push('\n');
        text.push_str(GUARANTEE);
        text.push_str(&self.parts());
        for upstream in &self.upstreams {
            let (name, prefix) = (&upstream.name, upstream.prefix());
            let guarantee = upstream.guarantee.as_str();
            text.push_str(&format!(
                "# upstream {name}: {guarantee}, for resources that begin with {prefix} \
                 (docs/upstreams.md)\n"
            ));
        }
        Ok(text)
    }

    fn parts(&self) -> String {
        let blobs = match &self.blobs {
            Some(url) => url.to_string(),
            None => format!("in {}", self.data_dir.join("blobs").display()),
        };
        format!("{}# blobs: {blobs}\n", self.ledger_and_mint())
    }

    fn ledger_and_mint(&self) -> String {
        match &self.postgres {
            Some(url) => format!(
                "# ledger: postgres, {url}\n\
                 # mint: etcd, {} under {}\n\
                 # Any number of gateways may run side by side on these two.\n\
                 # Strict needs one Postgres primary at a time: a single node, synchronous \
                 replication,\n# or an old primary that is fenced off.\n",
                self.etcd.join(", "),
                self.etcd_prefix,
            ),
            None => format!(
                "# ledger: sqlite, in {directory}\n\
                 # mint: embedded, in {directory}\n\
                 # One gateway alone uses this directory; a second one is refused.\n",
                directory = self.data_dir.display(),
            ),
        }
    }
}

const GUARANTEE: &str = "\
# guarantee: strict. Once an answer gave out a token for a resource, every write with a smaller
# token that will ever be visible already is, and no such write becomes visible afterwards,
# whatever pauses, partitions, clock errors or crashes hit clients, gateways or the mint.
";
