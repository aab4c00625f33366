//! The bandwidth of a node's memory.

use crate::cache::LINE_BYTES;
use crate::time::Picos;
use frameyard_machines::Memory;

/// Virtual time is cut into slices of 2 to this power picoseconds, a quarter of a microsecond.
const SLICE_SHIFT: u32 = 18;
const SLICE: u64 = 1 << SLICE_SHIFT;
/// The number of slices kept: one millisecond, far more than the distance between CPUs' clocks.
const SLICES: usize = 4096;

/// The used part of each slice of time.
struct Slices(Vec<(u64, u64)>);

impl Slices {
    fn new() -> Self {
        Self(vec![(0, 0); SLICES])
    }

    fn taken(&mut self, slice: u64) -> &mut u64 {
        let entry = &mut self.0[slice as usize % SLICES];
        if entry.0 != slice {
            *entry = (slice, 0);
        }
        &mut entry.1
    }

    /// Takes the first free time from `at` on and returns the wait until it begins; 0 if the slice of `at` has
    /// room.
    #[inline]
    fn take(&mut self, now: Picos, service: u64) -> u64 {
        let own = now.0 >> SLICE_SHIFT;
        let mut slice = own;
        while *self.taken(slice) >= SLICE {
            slice += 1;
        }
        let begin = (slice << SLICE_SHIFT) + *self.taken(slice);
        let mut left = service;
        while left > 0 {
            let taken = self.taken(slice);
            let more = left.min(SLICE - *taken);
            *taken += more;
            left -= more;
            slice += 1;
        }
        if begin >> SLICE_SHIFT == own { 0 } else { begin - now.0 }
    }
}

/// A memory channel: the used part of each slice of time.
///
/// CPUs may ask out of order, within a millisecond. Each takes the first free time from its own clock on, so a CPU
/// that runs ahead takes nothing from the CPUs behind it. A CPU does not wait in a slice with room. Requests are served
/// in their order, so a line that one CPU misses waits for the lines that other CPUs stream.
pub(crate) struct Channel {
    slices: Slices,
    /// The picoseconds that a line takes.
    line: u64,
    lines: u64,
}

impl Channel {
    /// The channel of a node.
    pub(crate) fn new(memory: &Memory) -> Self {
        let line = (LINE_BYTES as f64 * 1000.0 / memory.node_gb_per_s).round() as u64;
        Self { slices: Slices::new(), line, lines: 0 }
    }

    /// Moves lines. Returns the time for which the CPU waits before.
    #[inline]
    pub(crate) fn move_lines(&mut self, now: Picos, lines: u64) -> Picos {
        self.lines += lines;
        Picos(self.slices.take(now, lines * self.line))
    }

    /// [`move_lines`](Self::move_lines) for a use that gets only a part of the bandwidth.
    pub(crate) fn move_lines_at(&mut self, now: Picos, lines: u64, share: f64) -> Picos {
        self.lines += lines;
        Picos(self.slices.take(now, ((lines * self.line) as f64 / share).round() as u64))
    }

    /// Bytes held.
    pub(crate) fn bytes(&self) -> usize {
        size_of_val(&*self.slices.0)
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
    fn requests_wait_until_the_first_slice_with_room() {
        // A line takes a quarter of a slice.
        let mut channel = Channel::new(&Memory { node_gb_per_s: LINE_BYTES as f64 * 1000.0 / (SLICE / 4) as f64 });
        assert_eq!([0, 1, 2, 3].map(|at| channel.move_lines(Picos(at), 1)), [Picos(0); 4]);
        assert_eq!(channel.move_lines(Picos(SLICE / 2), 4), Picos(SLICE / 2), "the next slice is the first with room");
        assert_eq!(channel.move_lines(Picos(SLICE), 1), Picos(SLICE));
        assert_eq!(channel.move_lines(Picos(100 * SLICE), 1), Picos(0));
        assert_eq!(channel.move_lines(Picos(50 * SLICE), 1), Picos(0), "a request ahead takes nothing from one behind");
        assert_eq!(channel.lines(), 11);
    }
}
