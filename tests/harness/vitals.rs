//! The resource usage of a process, from `/proc`.

use std::fs;
use std::time::Duration;

use anyhow::{Context, Result};

/// The clock ticks per second in `/proc`; the same on every current Linux.
const TICKS: f64 = 100.0;

/// One measurement of a process.
#[derive(Debug, Clone, Copy)]
pub struct Vitals {
    /// Its processor time since the start, in user and in kernel mode.
    pub processor: Duration,
    /// Its resident memory, in bytes.
    pub resident: u64,
    /// Its own memory, resident or swapped out, in bytes. The pages of files, which the system drops and reads again at any
    /// time, are in `resident` only.
    pub private: u64,
    /// The most resident memory so far, in bytes.
    pub peak: u64,
    /// The number of its open descriptors.
    pub descriptors: usize,
}

impl Vitals {
    /// Measures a process.
    ///
    /// Errors: it has exited, or belongs to another user.
    pub fn of(process: u32) -> Result<Self> {
        let read = |file: &str| {
            let path = format!("/proc/{process}/{file}");
            fs::read_to_string(&path).context(path)
        };
        let descriptors = fs::read_dir(format!("/proc/{process}/fd"))
            .context("its descriptors")?
            .count();
        let status = read("status")?;
        let (resident, peak) = (memory(&status, "VmRSS:")?, memory(&status, "VmHWM:")?);
        let private = memory(&status, "RssAnon:")? + memory(&status, "VmSwap:")?;
        Ok(Self {
            processor: processor(&read("stat")?)?,
            resident,
            private,
            peak,
            descriptors,
        })
    }
}

/// Returns how often the threads of a process went to sleep voluntarily, and so were woken.
///
/// Errors: it has exited, or belongs to another user.
pub fn wake_ups(process: u32) -> Result<u64> {
    let mut sum = 0;
    for thread in fs::read_dir(format!("/proc/{process}/task")).context("its threads")? {
        // A thread that has just ended does not count.
        let Ok(status) = fs::read_to_string(thread?.path().join("status")) else {
            continue;
        };
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
        sum += line
            .context("no voluntary_ctxt_switches")?
            .trim()
            .parse::<u64>()?;
    }
    Ok(sum)
}

fn processor(stat: &str) -> Result<Duration> {
    // The name is in parentheses and may contain any characters.
    let (_, rest) = stat.rsplit_once(')').context("no name in stat")?;
    let ticks = |index: usize| {
        rest.split_whitespace()
            .nth(index)
            .and_then(|ticks| ticks.parse::<f64>().ok())
    };
    let (user, system) = (
        ticks(11).context("no utime")?,
        ticks(12).context("no stime")?,
    );
    Ok(Duration::from_secs_f64((user + system) / TICKS))
}

fn memory(status: &str, which: &str) -> Result<u64> {
    let line = status
        .lines()
        .find(|line| line.starts_with(which))
        .with_context(|| format!("no {which}"))?;
    let kilobytes: u64 = line
        .split_whitespace()
        .nth(1)
        .context("no number")?
        .parse()?;
    Ok(kilobytes * 1024)
}

/// Raises the limit of open descriptors of this process and its children to the system's maximum, and returns it.
///
/// Errors: the system refuses.
pub fn raise_descriptor_limit() -> Result<u64> {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    setrlimit(
        Resource::Nofile,
        Rlimit {
            current: maximum,
            maximum,
        },
    )
    .context("raising the limit of descriptors")?;
    Ok(maximum.unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_sees_itself_work() -> Result<()> {
        let before = Vitals::of(std::process::id())?;
        let woken = wake_ups(std::process::id())?;
        std::thread::sleep(Duration::from_millis(1));
        assert!(wake_ups(std::process::id())? > woken);
        let file = fs::File::open("/proc/self/stat")?;
        let mut after = before;
        while after.processor == before.processor {
            after = Vitals::of(std::process::id())?;
        }
        assert!(after.resident > 1 << 20 && after.processor > before.processor);
        drop(file);
        assert!(Vitals::of(u32::MAX).is_err());
        Ok(())
    }
}
