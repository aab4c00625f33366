//! The bandwidth of a node's memory.

use crate::cache::LINE_BYTES;
use crate::time::Picos;
use frameyard_machines::Memory;

/// Virtual time is cut into slices of 2 to this power picoseconds, a quarter of a microsecond.
const SLICE_SHIFT: u32 = 18;
const SLICE: u64 = 1 << SLICE_SHIFT;
/// The number of slices kept: one millisecond, far more than the distance between CPUs' clocks.
const SLICES: usize = 4096;
/// The load of a channel is measured in windows of 2 to this power picoseconds, 17 µs.
const WINDOW_SHIFT: u32 = 24;
const WINDOWS: usize = 64;
/// The highest load, in thousandths, in the queueing formula. Beyond it CPUs wait for a free slice.
const BUSIEST: u64 = 950;

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
/// that runs ahead takes nothing from the CPUs behind it. A CPU does not wait in a slice with room. Fetched lines go
/// ahead of streamed lines, as in memory controllers: fetches wait only for fetches.
pub(crate) struct Channel {
    all: Slices,
    fetched: Slices,
    /// The number of a window, and its used part.
    windows: Vec<(u64, u64)>,
    line: u64,
    lines: u64,
    /// The part of the wait that stalls a core, in thousandths.
    queueing: u64,
}

impl Channel {
    /// The channel of a node.
    pub(crate) fn new(memory: &Memory) -> Self {
        let line = (LINE_BYTES as f64 * 1000.0 / memory.node_gb_per_s).round() as u64;
        let queueing = (memory.queueing * 1000.0).round() as u64;
        let windows = vec![(0, 0); WINDOWS];
        Self { all: Slices::new(), fetched: Slices::new(), windows, line, lines: 0, queueing }
    }

    /// The queueing delay of `lines` lines, from the M/D/1 formula (one server, constant service, random arrivals)
    /// with the load of the previous window.
    fn queue_wait(&mut self, now: Picos, service: u64) -> u64 {
        let window = now.0 >> WINDOW_SHIFT;
        let entry = &mut self.windows[window as usize % WINDOWS];
        if entry.0 != window {
            *entry = (window, 0);
        }
        entry.1 += service;
        let before = self.windows[(window.wrapping_sub(1)) as usize % WINDOWS];
        if before.0.wrapping_add(1) != window {
            return 0;
        }
        let busy = ((before.1 * 1000) >> WINDOW_SHIFT).min(BUSIEST);
        service * busy * self.queueing / (2000 * (1000 - busy))
    }

    /// Streams lines to memory. Returns the time for which the CPU waits before and during the stream.
    #[inline]
    pub(crate) fn stream(&mut self, now: Picos, lines: u64) -> Picos {
        self.lines += lines;
        let service = lines * self.line;
        let queued = self.queue_wait(now, service);
        Picos(self.all.take(now, service).max(queued))
    }

    /// [`stream`](Self::stream) for a use that gets only a part of the bandwidth.
    pub(crate) fn stream_at(&mut self, now: Picos, lines: u64, share: f64) -> Picos {
        self.lines += lines;
        Picos(self.all.take(now, ((lines * self.line) as f64 / share).round() as u64))
    }

    /// Fetches lines. Returns the time for which the CPU waits for other fetches.
    #[inline]
    pub(crate) fn fetch(&mut self, now: Picos, lines: u64) -> Picos {
        self.lines += lines;
        let service = lines * self.line;
        let queued = self.queue_wait(now, service);
        self.all.take(now, service);
        Picos(self.fetched.take(now, service).max(queued))
    }

    /// Bytes held.
    pub(crate) fn bytes(&self) -> usize {
        size_of_val(&*self.all.0) + size_of_val(&*self.fetched.0) + size_of_val(&*self.windows)
    }

    /// All lines moved so far.
    pub(crate) fn lines(&self) -> u64 {
        self.lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A channel over which a line takes a quarter of a slice.
    fn channel(queueing: f64) -> Channel {
        Channel::new(&Memory { node_gb_per_s: LINE_BYTES as f64 * 1000.0 / (SLICE / 4) as f64, queueing })
    }

    #[test]
    fn requests_wait_until_the_first_slice_with_room() {
        let mut channel = channel(0.0);
        assert_eq!([0, 1, 2, 3].map(|at| channel.stream(Picos(at), 1)), [Picos(0); 4]);
        assert_eq!(channel.stream(Picos(SLICE / 2), 4), Picos(SLICE / 2), "the next slice is the first with room");
        assert_eq!(channel.stream(Picos(SLICE), 1), Picos(SLICE));
        assert_eq!(channel.stream(Picos(100 * SLICE), 1), Picos(0));
        assert_eq!(channel.stream(Picos(50 * SLICE), 1), Picos(0), "a request ahead takes nothing from one behind");
        assert_eq!(channel.lines(), 11);
    }

    #[test]
    fn fetches_wait_for_fetches_and_go_ahead_of_streams() {
        let mut channel = channel(0.0);
        assert_eq!(channel.stream(Picos(0), 8), Picos(0));
        assert_eq!([0, 1, 2, 3].map(|at| channel.fetch(Picos(at), 1)), [Picos(0); 4]);
        assert_eq!(channel.fetch(Picos(SLICE / 2), 1), Picos(SLICE / 2));
        assert_eq!(channel.stream(Picos(0), 1), Picos(3 * SLICE + SLICE / 4));
    }

    #[test]
    fn a_half_busy_channel_delays_by_half_a_service_time() {
        let mut channel = channel(1.0);
        let window = 1 << WINDOW_SHIFT;
        let half = window / SLICE * 2;
        assert_eq!(channel.stream(Picos(0), half), Picos(0), "no earlier request");
        let service = SLICE / 4;
        // busy / (2 (1 - busy)) of a service time.
        assert_eq!(channel.fetch(Picos(window + window / 2), 1), Picos(service / 2));
        assert_eq!(channel.fetch(Picos(9 * window), 1), Picos(0), "old windows do not count");
    }
}
