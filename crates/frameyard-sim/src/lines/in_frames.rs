//! Lines of frames' bytes, for those few frames that hold state of owners.

use super::PageLine;
use crate::cache::LINE_BYTES;

/// Lines of a frame of 4 KiB.
const LINES: usize = 4096 / LINE_BYTES as usize;

/// Where the state of a line of a frame's bytes is kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct FrameLine(usize);

/// What is known of the lines of frames' bytes: a word for each, from the first use of one of the frame's lines on. The word is
/// a [`PageLine`], or says which of the lines with more state it is.
#[derive(Default)]
pub(crate) struct FrameLines {
    /// For each stretch of frames, where its frames' sets begin in `sets`, plus 1. Owners' frames lie together, so few have any.
    stretches: Vec<u32>,
    /// For each frame: which of the sets of words it has, plus 1.
    sets: Vec<u32>,
    words: Vec<u64>,
}

/// Frames of a stretch: as many as a pageblock has.
const STRETCH: usize = 512;

/// In the place of a [`PageLine`]'s state: the rest is the number of a line.
const NUMBER: u64 = 3;

impl FrameLines {
    pub(crate) fn new(frames: usize) -> Self {
        Self { stretches: vec![0; frames.div_ceil(STRETCH)], sets: Vec::new(), words: Vec::new() }
    }

    /// Bytes held.
    pub(crate) fn bytes(&self) -> usize {
        (self.stretches.len() + self.sets.capacity()) * size_of::<u32>() + self.words.capacity() * size_of::<u64>()
    }

    /// The line so many bytes behind the first frame's first.
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

    /// The lines of a frame, if anything is known of them.
    pub(crate) fn of_frame(&self, frame: usize) -> impl Iterator<Item = FrameLine> + use<> {
        let set = match self.stretches.get(frame / STRETCH) {
            None | Some(0) => 0,
            Some(first) => self.sets[*first as usize - 1 + frame % STRETCH] as usize,
        };
        (set.saturating_sub(1) * LINES..set * LINES).map(FrameLine)
    }

    /// The state of a line that has no number.
    #[inline(always)]
    pub(crate) fn compact(&self, line: FrameLine) -> PageLine {
        PageLine(self.words[line.0])
    }

    #[inline(always)]
    pub(crate) fn set_compact(&mut self, line: FrameLine, state: PageLine) {
        self.words[line.0] = state.0;
    }

    /// The number of a line that has more state, if it has. It keeps that, whatever the frame is used for later.
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
    fn lines_of_a_frame_are_told_apart_and_keep_their_state() {
        let mut lines = FrameLines::new(100);
        let (one, next) = (lines.at(4096 * 7 + 63), lines.at(4096 * 7 + 64));
        assert_ne!(one, next);
        let state = PageLine::held(5, None, Use::Write, Stamps::default());
        lines.set_compact(one, state);
        lines.set_number(next, 12345);
        let far = lines.at(4096 * 99);
        assert_eq!((lines.compact(far), lines.number(far)), (PageLine(0), None));
        assert_eq!((lines.at(4096 * 7), lines.compact(one), lines.number(one)), (one, state, None));
        assert_eq!(lines.number(next), Some(12345));
        assert_eq!((lines.of_frame(7).count(), lines.of_frame(8).count(), lines.of_frame(600).count()), (64, 0, 0));
    }
}
