//! The measurements, for people and for programs.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use harness::crowd::{Counted, Times};
use harness::loaded::{Memory, Used};
use serde_json::{Value, json};

/// All measurements.
#[derive(Debug, Default)]
pub(crate) struct Report {
    pub(crate) agents: usize,
    pub(crate) senders: usize,
    /// From the first connection until all agents wait.
    pub(crate) gathered: Duration,
    pub(crate) gathering_used: Used,
    pub(crate) troubles_of_gathering: BTreeMap<String, u64>,
    pub(crate) memory_before: Memory,
    pub(crate) memory_with_agents: Memory,
    pub(crate) memory_at_the_end: Memory,
    pub(crate) sent: Option<Sent>,
}

/// The measurements of sending.
#[derive(Debug)]
pub(crate) struct Sent {
    pub(crate) counted: Counted,
    pub(crate) took: Duration,
    pub(crate) used: Used,
    /// The resources used per second without sends.
    pub(crate) resting: Used,
}

impl Report {
    /// Returns the coordinator's memory per agent, in kilobytes.
    fn memory_each(&self) -> f64 {
        let grown = self
            .memory_with_agents
            .coordinator
            .saturating_sub(self.memory_before.coordinator);
        if self.agents == 0 {
            0.0
        } else {
            grown as f64 / 1024.0 / self.agents as f64
        }
    }

    /// Returns the report as JSON.
    pub(crate) fn json(&self) -> Value {
        let megabytes = |memory: Memory| json!({"coordinator_mb": memory.coordinator as f64 / 1e6, "redis_mb": memory.redis as f64 / 1e6});
        json!({
            "agents": self.agents, "senders": self.senders,
            "seconds_until_all_wait": self.gathered.as_secs_f64(),
            "gathering_cpu_us_per_agent": per_each(self.gathering_used, self.agents),
            "gathering_troubles": self.troubles_of_gathering,
            "coordinator_kb_per_agent": self.memory_each(),
            "memory_before": megabytes(self.memory_before), "memory_with_agents": megabytes(self.memory_with_agents),
            "memory_at_the_end": megabytes(self.memory_at_the_end),
            "sending": self.sent.as_ref().map(Sent::json),
        })
    }
}

impl Sent {
    fn json(&self) -> Value {
        let Counted {
            sent,
            arrived,
            troubles,
        } = &self.counted;
        json!({
            "seconds": self.took.as_secs_f64(), "sent": sent.count(), "arrived": arrived.count(),
            "sends_per_second": sent.count() as f64 / self.took.as_secs_f64(),
            "answer_ms": times(sent), "delivery_ms": times(arrived), "troubles": troubles,
            "cpu_us_per_message": per_each(self.used, sent.count()),
            "cpu_us_per_message_without_resting": per_each(self.without_resting(), sent.count()),
            "resting_cpu_percent": {
                "coordinator": self.resting.coordinator.as_secs_f64() * 100.0,
                "redis": self.resting.redis.as_secs_f64() * 100.0,
            },
        })
    }

    /// Returns the resources used for sending, without those of resting links.
    fn without_resting(&self) -> Used {
        let seconds = self.took.as_secs_f64();
        self.used.since(&Used {
            coordinator: self.resting.coordinator.mul_f64(seconds),
            redis: self.resting.redis.mul_f64(seconds),
        })
    }
}

/// Returns the use per item in microseconds.
fn per_each(used: Used, count: usize) -> Value {
    let each = |used: Duration| used.as_secs_f64() * 1e6 / count.max(1) as f64;
    json!({"coordinator": each(used.coordinator), "redis": each(used.redis)})
}

fn times(times: &Times) -> Value {
    let read = |share| times.percentile(share).as_secs_f64() * 1e3;
    json!({"p50": read(0.5), "p90": read(0.9), "p99": read(0.99), "max": read(1.0)})
}

/// The same as text, with the names of the JSON.
impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_lines(f, "", &self.json())
    }
}

fn write_lines(f: &mut fmt::Formatter<'_>, indent: &str, value: &Value) -> fmt::Result {
    for (name, value) in value.as_object().into_iter().flatten() {
        let name = name.replace('_', " ");
        match value {
            Value::Object(members) if members.values().all(Value::is_number) => {
                let members: Vec<_> = members
                    .iter()
                    .map(|(name, value)| format!("{} {}", name.replace('_', " "), short(value)))
                    .collect();
                let members = if members.is_empty() {
                    "none".to_owned()
                } else {
                    members.join(", ")
                };
                writeln!(f, "{indent}{name:<38} {members}")?;
            }
            Value::Object(_) => {
                writeln!(f, "{indent}{name}")?;
                write_lines(f, "  ", value)?;
            }
            value => writeln!(f, "{indent}{name:<38} {}", short(value))?,
        }
    }
    Ok(())
}

fn short(value: &Value) -> String {
    match value.as_f64() {
        Some(number) if number.fract() != 0.0 => format!("{number:.2}"),
        _ => value.to_string(),
    }
}
