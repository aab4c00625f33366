//! Idle processor time of the host.

use std::fs;

/// Processor time of the host since it booted, in ticks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct HostTime {
    idle: u64,
    all: u64,
}

impl HostTime {
    /// The present values, if the kernel reports them.
    pub(crate) fn now() -> Option<Self> {
        Self::parse(&fs::read_to_string("/proc/stat").ok()?)
    }

    /// Parses the first line of /proc/stat: user, nice, system, idle, iowait, and more.
    fn parse(text: &str) -> Option<Self> {
        let numbers = text.lines().next()?.strip_prefix("cpu ")?.split_whitespace();
        let ticks: Vec<u64> = numbers.map(str::parse).collect::<Result<_, _>>().ok()?;
        Some(Self { idle: ticks.get(3)? + ticks.get(4)?, all: ticks.iter().sum() })
    }
}

/// The idle share of the processor time between two readings; `None` if no time passed.
pub(crate) fn idle_share(before: Option<HostTime>, after: Option<HostTime>) -> Option<f64> {
    let (before, after) = (before?, after?);
    let all = after.all.checked_sub(before.all).filter(|all| *all > 0)?;
    Some(after.idle.saturating_sub(before.idle) as f64 / all as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_time_includes_iowait() {
        let before = HostTime::parse("cpu  100 0 100 700 100 0 0 0 0 0\ncpu0 1\n");
        let after = HostTime::parse("cpu  150 0 100 720 130 0 0 0 0 0\n");
        assert_eq!(idle_share(before, after), Some(0.5));
        assert_eq!(idle_share(after, after), None);
        assert_eq!(HostTime::parse("intr 1\n"), None);
    }
}
