//! Recently used lines: the fast path for repeated accesses to the same few lines.

use crate::lines::Use;

/// Lines that the running CPU has used since it was scheduled and that are in its private cache. No other CPU has run
/// since, so a repeated use changes no state.
///
/// A line's number selects its slot; a new line replaces the slot's old one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Recent<const COUNT: usize> {
    /// Numbers of lines plus 1, and in the lowest bit whether the CPU wrote to the line.
    lines: [usize; COUNT],
}

impl<const COUNT: usize> Default for Recent<COUNT> {
    fn default() -> Self {
        Self { lines: [0; COUNT] }
    }
}

impl<const COUNT: usize> Recent<COUNT> {
    /// Whether the CPU can use the line so without a change of state.
    #[inline(always)]
    pub(super) fn has(&self, line: usize, usage: Use) -> bool {
        // A written line can be read, too.
        let more = self.lines[line % COUNT] ^ (line + 1) << 1;
        more == 1 || (more == 0 && usage == Use::Read)
    }

    /// Records such a use of a line.
    #[inline(always)]
    pub(super) fn note(&mut self, line: usize, usage: Use) {
        self.lines[line % COUNT] = (line + 1) << 1 | usize::from(usage == Use::Write);
    }

    /// Records that another CPU got the line.
    #[inline(always)]
    pub(super) fn forget(&mut self, line: usize) {
        self.lines[line % COUNT] = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_written_line_can_be_read_and_a_read_line_not_written() {
        let mut recent = Recent::<4>::default();
        assert!(!recent.has(0, Use::Read) && !recent.has(7, Use::Read));
        recent.note(7, Use::Read);
        assert!(recent.has(7, Use::Read) && !recent.has(7, Use::Write) && !recent.has(3, Use::Read));
        recent.note(7, Use::Write);
        assert!(recent.has(7, Use::Read) && recent.has(7, Use::Write));
        recent.note(8, Use::Write);
        assert!(recent.has(7, Use::Write) && recent.has(8, Use::Write));
        recent.note(3, Use::Read);
        assert!(!recent.has(7, Use::Read), "the new line replaced it");
        recent.forget(8);
        assert!(!recent.has(8, Use::Read));
    }
}
