//! The clock that times locks: the processor's counter if it is steady, otherwise the system's monotonic clock.
//!
//! A lock is held for tens of nanoseconds, and reading the system's clock takes about as long. So a hold is timed with
//! the time-stamp counter, read after the instructions under the lock have executed ([`SteadyCounter::read`]). The
//! length of a tick comes from comparing both clocks over some milliseconds when locks are timed for the first time.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::LockTiming;
use crate::sys::counter::SteadyCounter;

/// The shortest interval over which the clocks are compared.
const COMPARED: Duration = Duration::from_millis(10);
/// The number of pairs of readings, of which the closest one counts.
const PAIRS: usize = 8;

/// Locks are not timed.
const OFF: u64 = 0;
/// They are timed with the system's clock.
const BY_SYSTEM: u64 = u64::MAX;

/// Both clocks at one moment.
#[derive(Clone, Copy, Debug)]
struct Moment {
    ticks: u64,
    time: Instant,
}

impl Moment {
    /// Reads both clocks several times and keeps the pair with the shortest distance.
    fn now(counter: SteadyCounter) -> Self {
        let mut best = u64::MAX;
        let mut moment = Self { ticks: counter.read(), time: Instant::now() };
        for _ in 0..PAIRS {
            let (before, time, after) = (counter.read(), Instant::now(), counter.read());
            let between = after.saturating_sub(before);
            if between < best {
                best = between;
                moment = Self { ticks: before + between / 2, time };
            }
        }
        moment
    }
}

/// The length of a tick in units of 2⁻³² ns, between [`OFF`] and [`BY_SYSTEM`]; `None` if it cannot be determined.
fn tick_length(from: Moment, to: Moment) -> Option<u64> {
    let ticks = to.ticks.checked_sub(from.ticks)?;
    let length = (to.time.duration_since(from.time).as_nanos() << 32).checked_div(ticks.into())?;
    u64::try_from(length).ok().filter(|length| (OFF + 1..BY_SYSTEM).contains(length))
}

/// Converts ticks to ns.
#[inline(always)]
fn ticks_to_ns(ticks: u64, length: u64) -> u64 {
    ((u128::from(ticks) * u128::from(length)) >> 32) as u64
}

/// The clock of one platform.
#[derive(Debug)]
pub(super) struct LockClock {
    created: Instant,
    /// The counter, and both clocks when the platform was made.
    counter: Option<(SteadyCounter, Moment)>,
    /// The result of [`tick_length`].
    found: OnceLock<Option<u64>>,
    /// [`OFF`], [`BY_SYSTEM`], or the length of a tick of the counter.
    length: AtomicU64,
}

impl LockClock {
    pub(super) fn new() -> Self {
        let counter = SteadyCounter::found().map(|counter| (counter, Moment::now(counter)));
        Self { created: Instant::now(), counter, found: OnceLock::new(), length: AtomicU64::new(OFF) }
    }

    /// Turns the clock on or off. The first time it may wait until the platform is [`COMPARED`] old.
    pub(super) fn switch(&self, timing: LockTiming) {
        let length = match timing {
            LockTiming::Off => OFF,
            LockTiming::On => self.found.get_or_init(|| self.compare()).unwrap_or(BY_SYSTEM),
        };
        self.length.store(length, Ordering::Relaxed);
    }

    fn compare(&self) -> Option<u64> {
        let (counter, start) = self.counter?;
        thread::sleep(COMPARED.saturating_sub(start.time.elapsed()));
        tick_length(start, Moment::now(counter))
    }

    /// The time since the platform was made; `None` while the clock is off.
    #[inline(always)]
    pub(super) fn ns(&self) -> Option<u64> {
        match (self.length.load(Ordering::Relaxed), &self.counter) {
            (OFF, _) => None,
            (BY_SYSTEM, _) | (_, None) => self.system_ns(),
            (length, Some((counter, start))) => Some(ticks_to_ns(counter.read().saturating_sub(start.ticks), length)),
        }
    }

    /// The time since the platform was made, by the system's monotonic clock.
    pub(super) fn system_ns(&self) -> Option<u64> {
        u64::try_from(self.created.elapsed().as_nanos()).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The times that pass on a clock and on the system's clock, in ns, during at least 25 ms.
    fn both(clock: &LockClock) -> (u64, u64) {
        let (before, begun) = (clock.ns().expect("the clock is on"), Instant::now());
        thread::sleep(Duration::from_millis(25));
        let (after, passed) = (clock.ns().expect("the clock is on"), begun.elapsed());
        (after - before, passed.as_nanos() as u64)
    }

    #[test]
    fn it_reports_no_time_while_it_is_off() {
        let clock = LockClock::new();
        assert_eq!(clock.ns(), None);
        clock.switch(LockTiming::On);
        assert!(clock.ns().is_some());
        clock.switch(LockTiming::Off);
        assert_eq!(clock.ns(), None);
    }

    #[test]
    fn it_agrees_with_the_monotonic_clock() {
        let by_counter = LockClock::new();
        let by_system = LockClock { counter: None, ..LockClock::new() };
        for clock in [by_counter, by_system] {
            clock.switch(LockTiming::On);
            // A reading may be disturbed now and then.
            let agrees = |(one, other): (u64, u64)| one.abs_diff(other) < other / 20;
            assert!((0..5).any(|_| agrees(both(&clock))), "{clock:?}");
            let readings: Vec<_> = (0..1000).map(|_| clock.ns()).collect();
            assert!(readings.is_sorted());
        }
    }

    #[test]
    fn the_length_of_a_tick_follows_from_both_clocks() {
        let start = Moment { ticks: 500, time: Instant::now() };
        let after = |ticks: u64, ns| Moment { ticks: 500 + ticks, time: start.time + Duration::from_nanos(ns) };
        let length = tick_length(start, after(25_000_000, 10_000_000)).unwrap();
        assert_eq!(length, (2 << 32) / 5);
        assert!(ticks_to_ns(25_000_000_000_000, length).abs_diff(10_000_000_000_000) < 10_000);
        assert_eq!(tick_length(start, after(0, 10_000_000)), None);
        assert_eq!(tick_length(start, after(25_000_000, 0)), None);
        assert_eq!(tick_length(after(1, 0), start), None);
    }
}
