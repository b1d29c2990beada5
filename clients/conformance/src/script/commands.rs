//! Commands to the driver, the common ones in one line.

use anyhow::{Context as _, Result};
use serde_json::{Value, json};

use super::{Call, Script};

/// A lock that was granted to the driver.
#[derive(Debug, Clone)]
pub struct Held {
    /// The scenario's name for it.
    pub name: String,
    /// Its id.
    pub id: String,
    /// Its token.
    pub token: String,
}

impl Script {
    /// Writes a command, and lets nothing happen.
    pub(super) async fn give(&mut self, mut command: Value) -> Result<Call> {
        self.calls += 1;
        command["id"] = json!(self.calls);
        if command["do"] != "advance" {
            self.shared.note(format!("   scenario: {command}"));
        }
        self.driver.tell(&command).await?;
        Ok(Call(self.calls))
    }

    /// Gives a command; its answer is looked at later.
    pub async fn start(&mut self, command: Value) -> Result<Call> {
        self.settle().await?;
        let call = self.give(command).await?;
        self.settle().await?;
        Ok(call)
    }

    /// Gives a command that succeeds without any time, and without a request that the scenario would answer.
    pub async fn tell(&mut self, command: Value) -> Result<Value> {
        let call = self.start(command).await?;
        self.ok_now(call).await
    }

    /// A client of all gateways, with nothing said but its owner.
    pub async fn client(&mut self) -> Result<()> {
        self.client_with(json!({})).await
    }

    /// The same with options.
    pub async fn client_with(&mut self, options: Value) -> Result<()> {
        let urls = self.urls();
        self.client_at(&urls, options).await
    }

    /// The same at these URLs.
    pub async fn client_at(&mut self, urls: &[String], options: Value) -> Result<()> {
        let command =
            json!({"do": "client", "urls": urls, "owner": "worker-a", "options": options});
        self.tell(command).await.map(drop)
    }

    /// A client, and the lock `L` on `r`, token 7, for 30 s.
    pub async fn lock(&mut self) -> Result<Held> {
        self.client().await?;
        self.lock_as("L", "7", json!({})).await
    }

    /// A lock; `extra` holds further fields of `acquire`. Its resource is `r` unless that says something else.
    pub async fn lock_as(&mut self, name: &str, token: &str, extra: Value) -> Result<Held> {
        let call = self.acquire(name, extra).await?;
        let asked = self.take("POST", "/locks").await?;
        asked.grant(token).await?;
        self.held(name, call).await
    }

    /// Begins to acquire.
    pub async fn acquire(&mut self, name: &str, extra: Value) -> Result<Call> {
        self.start(scope("acquire", name, &extra)).await
    }

    /// Begins a scope under a lock.
    pub async fn run(&mut self, name: &str, extra: Value) -> Result<Call> {
        self.start(scope("run", name, &extra)).await
    }

    /// What the driver says when it has the lock.
    pub async fn held(&mut self, name: &str, call: Call) -> Result<Held> {
        let ok = self.ok(call).await?;
        guard(name, &ok)
    }

    /// A client, and a scope under its lock `L`, up to the body.
    pub async fn enter(&mut self, extra: Value) -> Result<(Call, Held)> {
        self.client().await?;
        let call = self.run("L", extra).await?;
        self.take("POST", "/locks").await?.grant("7").await?;
        let entered = self.event("entered").await?;
        Ok((call, guard("L", &entered)?))
    }

    /// Lets the body of a scope end.
    pub async fn leave(&mut self, how: &str) -> Result<()> {
        self.tell(json!({"do": "leave", "lock": "L", "how": how})).await.map(drop)
    }

    /// Begins to put `hello` under `L`.
    pub async fn put(&mut self, object: &str) -> Result<Call> {
        self.put_with(object, json!({})).await
    }

    /// The same with further fields.
    pub async fn put_with(&mut self, object: &str, extra: Value) -> Result<Call> {
        let mut command = json!({"do": "put", "lock": "L", "object": object, "text": "hello"});
        extend(&mut command, &extra);
        if command.get("size").is_some() || command.get("stream").is_some() {
            command.as_object_mut().and_then(|command| command.remove("text"));
        }
        self.start(command).await
    }

    /// What the driver says of the state of a guard.
    pub async fn state(&mut self, name: &str) -> Result<Value> {
        self.tell(json!({"do": "state", "lock": name})).await
    }

    /// Cancels a command.
    pub async fn cancel(&mut self, call: Call) -> Result<()> {
        self.tell(json!({"do": "cancel", "call": call.0})).await.map(drop)
    }
}

fn scope(what: &str, name: &str, extra: &Value) -> Value {
    let mut command = json!({"do": what, "lock": name, "resources": ["r"], "ttl": "30s"});
    extend(&mut command, extra);
    command
}

fn extend(command: &mut Value, extra: &Value) {
    if let (Some(command), Some(extra)) = (command.as_object_mut(), extra.as_object()) {
        command.extend(extra.clone());
    }
}

fn guard(name: &str, said: &Value) -> Result<Held> {
    let text = |field: &str| said[field].as_str().map(str::to_owned);
    Ok(Held {
        name: name.to_owned(),
        id: text("id").with_context(|| format!("a guard has an id, as text: {said}"))?,
        token: text("token").with_context(|| format!("a guard has a token, as text: {said}"))?,
    })
}
