//! The processor's time-stamp counter.

/// Proof that the time-stamp counter exists and rises at a constant rate in all power states.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct SteadyCounter(());

impl SteadyCounter {
    /// Checks the processor. `None` if it does not promise a constant rate.
    #[cfg(target_arch = "x86_64")]
    pub(crate) fn found() -> Option<Self> {
        use core::arch::x86_64::__cpuid;
        const EXTENDED: u32 = 0x8000_0000;
        let (features, power) = (EXTENDED + 1, EXTENDED + 7);
        let reaches = __cpuid(EXTENDED).eax >= power;
        // Bit 27: `rdtscp`. Bit 8: the counter is invariant.
        (reaches && __cpuid(features).edx >> 27 & 1 != 0 && __cpuid(power).edx >> 8 & 1 != 0).then_some(Self(()))
    }

    /// Always `None` on this architecture.
    #[cfg(not(target_arch = "x86_64"))]
    pub(crate) fn found() -> Option<Self> {
        None
    }

    /// Reads the counter after all earlier instructions have executed and all their loads have completed.
    #[inline(always)]
    pub(crate) fn read(self) -> u64 {
        #[cfg(target_arch = "x86_64")]
        {
            let mut processor = 0;
            // SAFETY: `found` has checked that the processor has the instruction. It writes to the local only.
            unsafe { core::arch::x86_64::__rdtscp(&raw mut processor) }
        }
        #[cfg(not(target_arch = "x86_64"))]
        unreachable!("`found` returns no counter on this architecture")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_counter_rises_monotonically() {
        let Some(counter) = SteadyCounter::found() else { return };
        let readings: Vec<u64> = (0..1000).map(|_| counter.read()).collect();
        assert!(readings.is_sorted() && readings[0] < readings[999]);
    }
}
