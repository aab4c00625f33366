//! The bandwidth of a node's memory.

use crate::cache::LINE_BYTES;
use crate::time::Picos;

/// Virtual time is cut into slices of 2 to this power picoseconds, a quarter of a microsecond.
const SLICE_SHIFT: u32 = 18;
const SLICE: u64 = 1 << SLICE_SHIFT;
/// How many slices are remembered: a millisecond, far more than CPUs are apart.
const SLICES: usize = 4096;

/// A memory channel: how much of each slice of time is taken.
///
/// Askers come in any order of their time, within a millisecond. Each gets the first time from its own on that is not taken
/// yet; so who has run ahead takes nothing from those behind it. Where a slice has room nobody waits in it.
pub(crate) struct Channel {
    /// The number of a slice, and what of it is taken.
    slices: Vec<(u64, u64)>,
    line: u64,
    lines: u64,
}

impl Channel {
    /// A channel of so many bytes a nanosecond.
    pub(crate) fn new(bytes_per_ns: f64) -> Self {
        let line = (LINE_BYTES as f64 * 1000.0 / bytes_per_ns).round() as u64;
        Self { slices: vec![(0, 0); SLICES], line, lines: 0 }
    }

    fn taken(&mut self, slice: u64) -> &mut u64 {
        let entry = &mut self.slices[slice as usize % SLICES];
        if entry.0 != slice {
            *entry = (slice, 0);
        }
        &mut entry.1
    }

    /// Moves lines; how long the asker waits until the first of them can be.
    #[inline]
    pub(crate) fn ask(&mut self, now: Picos, lines: u64) -> Picos {
        self.take(now, lines, lines * self.line)
    }

    /// As [`ask`](Self::ask), for a use that only gets a share of the bandwidth.
    pub(crate) fn ask_at(&mut self, now: Picos, lines: u64, share: f64) -> Picos {
        self.take(now, lines, ((lines * self.line) as f64 / share).round() as u64)
    }

    /// Takes so much time for moving lines.
    #[inline(always)]
    fn take(&mut self, now: Picos, lines: u64, mut left: u64) -> Picos {
        self.lines += lines;
        let own = now.0 >> SLICE_SHIFT;
        let mut slice = own;
        while *self.taken(slice) >= SLICE {
            slice += 1;
        }
        let begin = slice << SLICE_SHIFT | *self.taken(slice);
        let wait = if slice == own { 0 } else { begin - now.0 };
        while left > 0 {
            let taken = self.taken(slice);
            let more = left.min(SLICE - *taken);
            *taken += more;
            left -= more;
            slice += 1;
        }
        Picos(wait)
    }

    /// All lines moved so far.
    pub(crate) fn lines(&self) -> u64 {
        self.lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_waits_where_there_is_room_and_everybody_as_long_as_there_is_none() {
        // A line takes a quarter of a slice.
        let mut channel = Channel::new(LINE_BYTES as f64 * 1000.0 / (SLICE / 4) as f64);
        assert_eq!([0, 1, 2, 3].map(|at| channel.ask(Picos(at), 1)), [Picos(0); 4]);
        assert_eq!(channel.ask(Picos(SLICE / 2), 4), Picos(SLICE / 2), "the next slice is the first with room");
        assert_eq!(channel.ask(Picos(SLICE), 1), Picos(SLICE));
        assert_eq!(channel.ask(Picos(100 * SLICE), 1), Picos(0));
        assert_eq!(channel.ask(Picos(50 * SLICE), 1), Picos(0), "who is ahead takes nothing from who is behind");
        assert_eq!(channel.lines(), 11);
    }
}
