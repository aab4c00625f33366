//! Caches as clocks: what was brought in since a line was used says whether the line is still there.

/// How many bytes a line has.
pub const LINE_BYTES: u64 = 64;

/// Bits of a stamp in a page's entry.
pub(crate) const STAMP_BITS: u32 = 20;
const STAMP_MASK: u64 = (1 << STAMP_BITS) - 1;
/// A capacity is told apart from nothing in about so many steps.
const STEPS: u64 = 64;

/// A cache that counts the lines brought into it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FillClock {
    fills: u64,
    shift: u32,
    /// How many steps old a line is that is there no more.
    limit: u64,
}

impl FillClock {
    /// A cache of so many lines.
    pub(crate) fn new(lines: u64) -> Self {
        let lines = lines.max(1);
        let shift = (lines / STEPS).checked_ilog2().unwrap_or(0);
        Self { fills: 0, shift, limit: lines >> shift }
    }

    /// Lines were brought in.
    #[inline(always)]
    pub(crate) fn fill(&mut self, lines: u64) {
        self.fills += lines;
    }

    #[inline(always)]
    fn step(&self) -> u64 {
        self.fills >> self.shift
    }

    /// The stamp of a line that is used now, of [`STAMP_BITS`].
    #[inline(always)]
    pub(crate) fn stamp(&self) -> u64 {
        self.step() & STAMP_MASK
    }

    /// Whether a line with that stamp is still there.
    #[inline(always)]
    pub(crate) fn has(&self, stamp: u64) -> bool {
        self.step().wrapping_sub(stamp) & STAMP_MASK < self.limit
    }

    /// The stamp of a line that is used now, never 0.
    #[inline(always)]
    pub(crate) fn wide_stamp(&self) -> u32 {
        self.step() as u32 + 1
    }

    /// Whether a line with that stamp is still there; one with 0 is not.
    #[inline(always)]
    pub(crate) fn has_wide(&self, stamp: u32) -> bool {
        stamp != 0 && self.step() + 1 - u64::from(stamp) < self.limit
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_leaves_when_a_capacity_was_brought_in_since() {
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
    fn stamps_come_round_after_many_capacities_only() {
        let mut cache = FillClock::new(4096);
        let stamp = cache.stamp();
        cache.fill(4096 * 1000);
        assert!(!cache.has(stamp));
    }
}
