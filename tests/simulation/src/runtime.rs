//! Clock, ids and tasks of one simulated process.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use fence_core::OperationId;
use fence_core::ports::{Clock, Ids, Runtime, Spawn, Task};
use jiff::Timestamp;
use rand::RngExt as _;
use uuid::{Builder, Uuid};

use crate::world::{Micros, Process, World};

/// When the world began, in microseconds of Unix time: 2026-01-01T00:00:00Z.
const BEGINNING: i64 = 1_767_225_600_000_000;

/// What the engine of a process is given.
pub fn runtime(world: &World, process: Process) -> Runtime {
    Runtime {
        clock: Arc::new(WorldClock { world: world.clone(), process, start: world.now() }),
        ids: Arc::new(WorldIds { world: world.clone(), process }),
        spawn: Arc::new(WorldSpawn { world: world.clone(), process }),
    }
}

/// A random id.
pub fn random_id(world: &World) -> Uuid {
    Builder::from_random_bytes(world.draw(|rng| rng.random())).into_uuid()
}

/// As the world's time.
pub fn micros(duration: Duration) -> Micros {
    Micros::try_from(duration.as_micros()).unwrap_or(Micros::MAX)
}

/// The wall clock of a process, in microseconds of Unix time.
pub fn wall(world: &World, process: Process) -> i64 {
    let elapsed = i64::try_from(world.now()).unwrap_or(i64::MAX);
    BEGINNING + elapsed + world.skew(process)
}

struct WorldClock {
    world: World,
    process: Process,
    start: Micros,
}

#[async_trait]
impl Clock for WorldClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_microsecond(wall(&self.world, self.process)).unwrap_or(Timestamp::MAX)
    }

    fn elapsed(&self) -> Duration {
        Duration::from_micros(self.world.now().saturating_sub(self.start))
    }

    async fn sleep(&self, duration: Duration) {
        self.world.sleep(micros(duration)).await;
    }
}

struct WorldIds {
    world: World,
    process: Process,
}

impl Ids for WorldIds {
    fn uuid(&self) -> Uuid {
        random_id(&self.world)
    }

    fn operation(&self) -> OperationId {
        let random = self.world.draw(|rng| rng.random());
        let millis = wall(&self.world, self.process).unsigned_abs() / 1000;
        OperationId(Builder::from_unix_timestamp_millis(millis, &random).into_uuid())
    }
}

struct WorldSpawn {
    world: World,
    process: Process,
}

impl Spawn for WorldSpawn {
    fn spawn(&self, _: &'static str, task: Task) {
        self.world.spawn(self.process, task);
    }
}
