//! One measurement, and what it took of the machine.

use serde::Serialize;

use crate::load::Measured;
use crate::usage::{CpuTime, memory_mib, own_cpu_seconds, peak_mib};

/// One measurement.
#[derive(Debug, Clone, Serialize)]
pub struct Sample {
    /// Answers in a second.
    pub per_second: f64,
    /// Half of the answers took no longer, in microseconds.
    pub p50_us: u64,
    /// 99 of 100.
    pub p99_us: u64,
    /// 999 of 1000.
    pub p999_us: u64,
    /// Processor time of the servers for one answer, in microseconds.
    pub cpu_us: f64,
    /// The same for one answer of any kind: refusals that were asked for beside are answers, too.
    pub cpu_any_us: f64,
    /// Memory of the same servers afterwards, in MiB.
    pub memory_mib: f64,
    /// Processor time of the load generator for one answer, in microseconds.
    pub load_cpu_us: f64,
    /// What of it was the gateway's; nothing where it is not asked.
    pub gateway: Option<OfGateway>,
}

/// What a gateway took.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct OfGateway {
    /// Processor time for one answer, in microseconds.
    pub cpu_us: f64,
    /// The most memory that it had so far, in MiB.
    pub peak_mib: f64,
}

/// Looks at the processor time before and after.
#[derive(Debug)]
pub struct Meter {
    servers: Vec<u32>,
    gateway: Option<u32>,
    begun: CpuTime,
    /// Processor time of this process, in seconds.
    own_begun: f64,
}

impl Meter {
    /// Begins to measure what these servers take, one of which may be the gateway.
    pub fn begin(servers: &[u32], gateway: Option<u32>) -> Self {
        let (begun, own_begun) = (CpuTime::of(servers), own_cpu_seconds());
        Self { servers: servers.to_vec(), gateway, begun, own_begun }
    }

    /// Puts it together with what was measured meanwhile.
    pub fn end(self, measured: &Measured) -> Sample {
        let Measured { per_second, micros, answers, beside } = measured;
        let now = CpuTime::of(&self.servers);
        let each = |seconds: f64| 1e6 * seconds / *answers as f64;
        let servers = now.seconds_since(&self.begun);
        let of_gateway = |pid| OfGateway {
            cpu_us: each(now.only(pid).seconds_since(&self.begun.only(pid))),
            peak_mib: peak_mib(pid),
        };
        Sample {
            per_second: *per_second,
            p50_us: micros.value_at_quantile(0.5),
            p99_us: micros.value_at_quantile(0.99),
            p999_us: micros.value_at_quantile(0.999),
            cpu_us: each(servers),
            cpu_any_us: 1e6 * servers / (answers + beside) as f64,
            memory_mib: memory_mib(&self.servers),
            load_cpu_us: each(own_cpu_seconds() - self.own_begun),
            gateway: self.gateway.map(of_gateway),
        }
    }
}
