//! Lines of frames' bytes, for the few frames that hold owners' state.

use super::PageLine;
use crate::cache::LINE_BYTES;

/// Lines of a frame of 4 KiB.
const LINES: usize = 4096 / LINE_BYTES as usize;

/// The index of the state of a line in a frame's bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct FrameLine(usize);

/// The states of lines in frames' bytes: a word per line, from the first use of one of the frame's lines on. A word
/// is a [`PageLine`] or the number of a line with full state.
#[derive(Default)]
pub(crate) struct FrameLines {
    /// For each stretch of frames, the index of its first entry in `sets` plus 1. Owners' frames lie together, so few
    /// stretches have entries.
    stretches: Vec<u32>,
    /// For each frame, the number of its set of words plus 1.
    sets: Vec<u32>,
    words: Vec<u64>,
}

/// Frames of a stretch: one pageblock.
const STRETCH: usize = 512;

/// The value of a [`PageLine`]'s state bits that marks the number of a line.
const NUMBER: u64 = 3;

impl FrameLines {
    pub(crate) fn new(frames: usize) -> Self {
        Self { stretches: vec![0; frames.div_ceil(STRETCH)], sets: Vec::new(), words: Vec::new() }
    }

    /// Bytes held.
    pub(crate) fn bytes(&self) -> usize {
        (self.stretches.len() + self.sets.capacity()) * size_of::<u32>() + self.words.capacity() * size_of::<u64>()
    }

    /// The line at a byte offset from the first frame.
    #[inline(always)]
    pub(crate) fn at(&mut self, offset: usize) -> FrameLine {
        let line = offset / LINE_BYTES as usize;
        let frame = line / LINES;
        let set = match self.stretches[frame / STRETCH] {
            0 => 0,
            first => self.sets[first as usize - 1 + frame % STRETCH],
        };
        let set = if set == 0 { self.add(frame) } else { set };
        FrameLine((set as usize - 1) * LINES + line % LINES)
    }

    #[cold]
    fn add(&mut self, frame: usize) -> u32 {
        let stretch = &mut self.stretches[frame / STRETCH];
        if *stretch == 0 {
            *stretch = self.sets.len() as u32 + 1;
            self.sets.resize(self.sets.len() + STRETCH, 0);
        }
        self.words.resize(self.words.len() + LINES, 0);
        let set = (self.words.len() / LINES) as u32;
        self.sets[*stretch as usize - 1 + frame % STRETCH] = set;
        set
    }

    /// The lines of a frame, if any is known.
    pub(crate) fn of_frame(&self, frame: usize) -> impl Iterator<Item = FrameLine> + use<> {
        let set = match self.stretches.get(frame / STRETCH) {
            None | Some(0) => 0,
            Some(first) => self.sets[*first as usize - 1 + frame % STRETCH] as usize,
        };
        (set.saturating_sub(1) * LINES..set * LINES).map(FrameLine)
    }

    /// The state of a line without a number.
    #[inline(always)]
    pub(crate) fn compact(&self, line: FrameLine) -> PageLine {
        PageLine(self.words[line.0])
    }

    #[inline(always)]
    pub(crate) fn set_compact(&mut self, line: FrameLine, state: PageLine) {
        self.words[line.0] = state.0;
    }

    /// The number of a line with full state. The line keeps it, whatever the frame is used for later.
    #[inline(always)]
    pub(crate) fn number(&self, line: FrameLine) -> Option<usize> {
        let word = self.words[line.0];
        (word & 3 == NUMBER).then_some((word >> 2) as usize)
    }

    pub(crate) fn set_number(&mut self, line: FrameLine, number: usize) {
        self.words[line.0] = (number as u64) << 2 | NUMBER;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::Stamps;
    use crate::lines::Use;

    #[test]
    fn lines_of_a_frame_are_distinct_and_keep_their_state() {
        let mut lines = FrameLines::new(100);
        let (one, next) = (lines.at(4096 * 7 + 63), lines.at(4096 * 7 + 64));
        assert_ne!(one, next);
        let state = PageLine::held(5, None, Use::Write, Stamps::default());
        lines.set_compact(one, state);
        lines.set_number(next, 12345);
        let untouched = lines.at(4096 * 99);
        assert_eq!((lines.compact(untouched), lines.number(untouched)), (PageLine(0), None));
        assert_eq!((lines.at(4096 * 7), lines.compact(one), lines.number(one)), (one, state, None));
        assert_eq!(lines.number(next), Some(12345));
        assert_eq!((lines.of_frame(7).count(), lines.of_frame(8).count(), lines.of_frame(600).count()), (64, 0, 0));
    }
}
