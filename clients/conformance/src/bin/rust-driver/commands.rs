//! The commands, and who carries them out.

use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use serde_json::{Value, json};

use super::state::{State, Told};
use super::{guards, holding, reading, time, told, writes};

/// A command, as the README describes it.
#[derive(Deserialize)]
#[serde(tag = "do", rename_all = "snake_case", deny_unknown_fields)]
pub enum Command {
    Client {
        urls: Vec<String>,
        owner: String,
        #[serde(default)]
        options: guards::Options,
    },
    Acquire(guards::Wish),
    Try(guards::Wish),
    Release {
        lock: String,
    },
    Run(guards::Wish),
    Leave {
        #[serde(alias = "election")]
        lock: String,
        how: String,
    },
    Put(writes::Put),
    Delete(writes::Delete),
    DeleteAll(writes::Delete),
    Commit(writes::Commit),
    Update(writes::Update),
    Get {
        resource: String,
        object: String,
    },
    Open {
        resource: String,
        object: String,
    },
    Download {
        resource: String,
        object: String,
        to: String,
    },
    List {
        resource: String,
        #[serde(default)]
        prefix: Option<String>,
    },
    Find {
        resource: String,
        key: String,
    },
    Events {
        stream: String,
        after: Option<String>,
        #[serde(default)]
        on_void: Option<String>,
    },
    Fence {
        lock: String,
        resource: String,
        order: Option<String>,
        #[serde(default)]
        force: bool,
    },
    Transfer {
        lock: String,
        owner: String,
    },
    Adopt(guards::Adopted),
    Resolve {
        handle: String,
        within: Option<String>,
    },
    Abandon {
        lock: String,
        handle: String,
    },
    Elect {
        election: String,
        name: String,
        stop_grace: Option<String>,
    },
    Observe {
        stream: String,
        name: String,
    },
    Shards {
        stream: String,
        name: String,
        n: u32,
    },
    Upstream(writes::Upstream),
    Break {
        resource: String,
        reason: String,
        after: Option<String>,
    },
    State {
        lock: String,
    },
    Beat {
        lock: String,
    },
    Cancel {
        call: u64,
    },
    Advance {
        ms: u64,
        #[serde(default)]
        leap: bool,
    },
    Close,
}

/// Begins a command. Those about time, and the last, are over when this returns; others go on beside.
pub async fn begin(state: &Arc<State>, id: u64, command: Value) {
    match serde_json::from_value(command) {
        Ok(Command::Advance { ms, leap }) => {
            state.out.answer(id, Ok(time::advance(&state.out, ms, leap).await));
        }
        Ok(Command::Cancel { call }) => {
            let cancelled = state.cancel(call);
            state.out.answer(id, cancelled);
        }
        Ok(Command::Close) => {
            if let Some(client) = state.client.get() {
                client.close(Duration::from_secs(1)).await;
            }
            state.out.answer(id, Ok(json!({})));
        }
        Ok(command) => {
            let shared = Arc::clone(state);
            let task = tokio::spawn(async move {
                let result = carry_out(&shared, command).await;
                if shared.ran(id) {
                    shared.out.answer(id, result);
                }
            });
            state.runs(id, task.abort_handle());
        }
        Err(error) => state.out.answer(id, Err(told::mistake(&error.to_string()))),
    }
}

async fn carry_out(state: &Arc<State>, command: Command) -> Told {
    match command {
        Command::Client { urls, owner, options } => guards::client(state, &urls, &owner, &options),
        Command::Acquire(wish) => guards::acquire(state, wish).await,
        Command::Try(wish) => guards::attempt(state, wish).await,
        Command::Run(wish) => guards::run(state, wish).await,
        Command::Release { lock } => guards::release(state, &lock).await,
        Command::Leave { lock, how } => state.leave(&lock, &how),
        Command::State { lock } => guards::state(state, &lock),
        Command::Beat { lock } => state.lock(&lock).map(|lock| lock.beat()).map(|()| json!({})),
        Command::Fence { lock, resource, order, force } => {
            guards::fence(state, &lock, &resource, order, force).await
        }
        Command::Transfer { lock, owner } => guards::transfer(state, &lock, &owner).await,
        Command::Adopt(adopted) => guards::adopt(state, adopted).await,
        Command::Put(put) => writes::put(state, put).await,
        Command::Delete(delete) => writes::delete(state, delete, false).await,
        Command::DeleteAll(delete) => writes::delete(state, delete, true).await,
        Command::Commit(commit) => writes::commit(state, commit).await,
        Command::Update(update) => writes::update(state, update).await,
        Command::Upstream(upstream) => writes::upstream(state, upstream).await,
        Command::Resolve { handle, within } => {
            writes::resolve(state, &handle, within.as_deref()).await
        }
        Command::Abandon { lock, handle } => writes::abandon(state, &lock, &handle).await,
        Command::Get { resource, object } => reading::get(state, &resource, &object).await,
        Command::Open { resource, object } => reading::open(state, &resource, &object).await,
        Command::Download { resource, object, to } => {
            reading::download(state, &resource, &object, &to).await
        }
        Command::List { resource, prefix } => reading::list(state, &resource, prefix).await,
        Command::Find { resource, key } => reading::find(state, &resource, &key).await,
        Command::Events { stream, after, on_void } => {
            reading::events(state, &stream, after, on_void.as_deref()).await
        }
        Command::Observe { stream, name } => reading::observe(state, &stream, &name).await,
        Command::Elect { election, name, stop_grace } => {
            holding::elect(state, &election, &name, stop_grace.as_deref()).await
        }
        Command::Shards { stream, name, n } => holding::shards(state, &stream, &name, n).await,
        Command::Break { resource, reason, after } => {
            holding::break_lock(state, &resource, &reason, after.as_deref()).await
        }
        Command::Cancel { .. } | Command::Advance { .. } | Command::Close => Ok(json!({})),
    }
}

/// A duration as scenarios write it.
pub fn duration(text: &str) -> Result<Duration, Value> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let wrong = || told::misuse(&format!("{text} is no duration"));
    if number.len() > 1 && number.starts_with('0') {
        return Err(wrong());
    }
    let number: u64 = number.parse().map_err(|_| wrong())?;
    Ok(match unit {
        "ms" => Duration::from_millis(number),
        "s" => Duration::from_secs(number),
        "m" => Duration::from_secs(60 * number),
        "h" => Duration::from_secs(3_600 * number),
        "d" => Duration::from_secs(86_400 * number),
        _ => return Err(wrong()),
    })
}
