//! The processor's time-stamp counter.

/// That the time-stamp counter is there and rises at a constant rate, whatever the processor does: shown by looking it up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct SteadyCounter(());

impl SteadyCounter {
    /// Asks the processor; `None` where it does not say so, and on other architectures.
    #[cfg(target_arch = "x86_64")]
    pub(crate) fn found() -> Option<Self> {
        use core::arch::x86_64::__cpuid;
        const EXTENDED: u32 = 0x8000_0000;
        let (features, power) = (EXTENDED + 1, EXTENDED + 7);
        let reaches = __cpuid(EXTENDED).eax >= power;
        // `rdtscp`, and the invariant counter.
        (reaches && __cpuid(features).edx >> 27 & 1 != 0 && __cpuid(power).edx >> 8 & 1 != 0).then_some(Self(()))
    }

    /// Asks the processor; `None` where it does not say so, and on other architectures.
    #[cfg(not(target_arch = "x86_64"))]
    pub(crate) fn found() -> Option<Self> {
        None
    }

    /// The counter, when all that stands before this has been executed and all its loads have been served.
    #[inline(always)]
    pub(crate) fn read(self) -> u64 {
        #[cfg(target_arch = "x86_64")]
        {
            let mut processor = 0;
            // SAFETY: the processor has the instruction, or there would be no `self`; it writes to the local alone.
            unsafe { core::arch::x86_64::__rdtscp(&raw mut processor) }
        }
        #[cfg(not(target_arch = "x86_64"))]
        unreachable!("no counter is found here")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_counter_only_rises() {
        let Some(counter) = SteadyCounter::found() else { return };
        let readings: Vec<u64> = (0..1000).map(|_| counter.read()).collect();
        assert!(readings.is_sorted() && readings[0] < readings[999]);
    }
}
