//! What the running CPU has just used: the quick way for the many accesses that go to the same few lines.

use crate::lines::Use;

/// Lines that the running CPU has in its private cache as it has used them since it began to run: nobody has run since, so
/// using them so again changes no state.
///
/// A line is at the place that its number says, and makes room for the next there.
#[derive(Clone, Copy, Debug)]
pub(super) struct Recent<const COUNT: usize> {
    /// Numbers of lines, plus 1, and in the lowest bit whether the line was written to.
    lines: [usize; COUNT],
}

impl<const COUNT: usize> Default for Recent<COUNT> {
    fn default() -> Self {
        Self { lines: [0; COUNT] }
    }
}

impl<const COUNT: usize> Recent<COUNT> {
    /// Whether a line can be used so without a change of its state.
    #[inline(always)]
    pub(super) fn has(&self, line: usize, usage: Use) -> bool {
        // One that was written to can be read, too.
        let more = self.lines[line % COUNT] ^ (line + 1) << 1;
        more == 1 || (more == 0 && usage == Use::Read)
    }

    /// Notes that a line was used so, and is there.
    #[inline(always)]
    pub(super) fn note(&mut self, line: usize, usage: Use) {
        self.lines[line % COUNT] = (line + 1) << 1 | usize::from(usage == Use::Write);
    }

    /// Notes that somebody else has a line.
    #[inline(always)]
    pub(super) fn forget(&mut self, line: usize) {
        self.lines[line % COUNT] = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_can_be_read_and_not_the_other_way_round() {
        let mut recent = Recent::<4>::default();
        assert!(!recent.has(0, Use::Read) && !recent.has(7, Use::Read));
        recent.note(7, Use::Read);
        assert!(recent.has(7, Use::Read) && !recent.has(7, Use::Write) && !recent.has(3, Use::Read));
        recent.note(7, Use::Write);
        assert!(recent.has(7, Use::Read) && recent.has(7, Use::Write));
        recent.note(8, Use::Write);
        assert!(recent.has(7, Use::Write) && recent.has(8, Use::Write));
        recent.note(3, Use::Read);
        assert!(!recent.has(7, Use::Read), "it made room");
        recent.forget(8);
        assert!(!recent.has(8, Use::Read));
    }
}
