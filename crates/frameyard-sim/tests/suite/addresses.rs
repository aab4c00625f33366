//! Addresses for tests that simulate much memory: a simulation reserves some for all frames.

use std::sync::{Mutex, MutexGuard, PoisonError};

use frameyard::ByteSize;

/// Leave to reserve many addresses. Where the process has a limit, one test at a time has it.
pub(crate) struct ManyAddresses {
    _only: Option<MutexGuard<'static, ()>>,
}

impl ManyAddresses {
    /// Waits for leave to reserve `needed`. `None`, with the reason on standard output, where that is more than half of the limit
    /// (`ulimit -v`): tests that need few run at the same time.
    pub(crate) fn wait_for(needed: ByteSize) -> Option<Self> {
        static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
        let limits = std::fs::read_to_string("/proc/self/limits").unwrap_or_default();
        let limit = limits.lines().find_map(|line| line.strip_prefix("Max address space"));
        let Some(limit) = limit.and_then(|values| values.split_whitespace().next()?.parse().ok()).map(ByteSize) else {
            // No number: it is unlimited.
            return Some(Self { _only: None });
        };
        if needed.0 > limit.0 / 2 {
            println!("skipped: needs {needed} of addresses, more than half of the {limit} that this process may have");
            return None;
        }
        Some(Self { _only: Some(ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner)) })
    }
}
