//! Caches as clocks: the number of lines brought in since a line's last use decides whether the line is still cached.

/// Bytes of a line.
pub const LINE_BYTES: u64 = 64;

/// Bits of a stamp in a page's entry.
pub(crate) const STAMP_BITS: u32 = 20;
const STAMP_MASK: u64 = (1 << STAMP_BITS) - 1;
/// A stamp resolves a capacity in about this many steps.
const STEPS: u64 = 64;

/// A cache that counts the lines brought into it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FillClock {
    fills: u64,
    /// `fills` in steps.
    step: u64,
    shift: u32,
    /// The age in steps at which a line is no longer cached.
    limit: u64,
}

impl FillClock {
    /// A cache with a capacity of `lines`.
    pub(crate) fn new(lines: u64) -> Self {
        let lines = lines.max(1);
        let shift = (lines / STEPS).checked_ilog2().unwrap_or(0);
        Self { fills: 0, step: 0, shift, limit: lines >> shift }
    }

    /// Counts lines that are brought in.
    #[inline(always)]
    pub(crate) fn fill(&mut self, lines: u64) {
        self.fills += lines;
        self.step = self.fills >> self.shift;
    }

    /// The stamp of a line used now, of [`STAMP_BITS`] bits.
    #[inline(always)]
    pub(crate) fn stamp(&self) -> u64 {
        self.step & STAMP_MASK
    }

    /// Whether a line with that stamp is still cached.
    #[inline(always)]
    pub(crate) fn has(&self, stamp: u64) -> bool {
        self.step.wrapping_sub(stamp) & STAMP_MASK < self.limit
    }

    /// The stamp of a line used now, never 0.
    #[inline(always)]
    pub(crate) fn wide_stamp(&self) -> u32 {
        self.step as u32 + 1
    }

    /// Whether a line with that stamp is still cached. A line with stamp 0 is not.
    #[inline(always)]
    pub(crate) fn has_wide(&self, stamp: u32) -> bool {
        stamp != 0 && self.step + 1 - u64::from(stamp) < self.limit
    }
}

/// The stamps of a line that a core uses now: of the core's private cache and of its group's cache.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Stamps {
    pub(crate) wide_private: u32,
    pub(crate) wide_group: u32,
    /// Both in [`STAMP_BITS`] bits at the upper end of the word, the group's stamp above the private one.
    pub(crate) compact: u64,
}

impl Stamps {
    #[inline(always)]
    pub(crate) fn of(private: &FillClock, group: &FillClock) -> Self {
        Self {
            wide_private: private.wide_stamp(),
            wide_group: group.wide_stamp(),
            compact: Self::compact(private.stamp(), group.stamp()),
        }
    }

    #[inline(always)]
    pub(crate) const fn compact(private: u64, group: u64) -> u64 {
        (private | group << STAMP_BITS) << (u64::BITS - 2 * STAMP_BITS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_leaves_after_a_capacity_of_fills() {
        for lines in [1, 8, 512, 4096, 16384, 409_600] {
            let mut cache = FillClock::new(lines);
            cache.fill(12_345_678);
            let (stamp, wide) = (cache.stamp(), cache.wide_stamp());
            assert!(cache.has(stamp) && cache.has_wide(wide));
            let mut stays = 0;
            while cache.has(stamp) {
                assert!(cache.has_wide(wide));
                cache.fill(1);
                stays += 1;
            }
            assert!(!cache.has_wide(wide) && !cache.has_wide(0));
            let error = lines.abs_diff(stays) as f64 / lines as f64;
            assert!(error <= 1.0 / 32.0, "of {lines} lines it stays for {stays}");
        }
    }

    #[test]
    fn stamps_wrap_only_after_many_capacities() {
        let mut cache = FillClock::new(4096);
        let stamp = cache.stamp();
        cache.fill(4096 * 1000);
        assert!(!cache.has(stamp));
    }
}
