//! The per-CPU text pipes of a tracefs instance, merged in the order of time.
//!
//! Each CPU has a pipe, and a pipe has its events in the order of time. A round reads each pipe once. An event leaves the round when no
//! pipe can bring an earlier one: a pipe that is empty has no event before the round, and any other has none before its last.
//!
//! The pipes are text (`trace_pipe`), not pages of the ring buffer (`trace_pipe_raw`). The kernel prints flags by name, and the bits of
//! flags differ between kernels. The page format differs, too.

use std::collections::VecDeque;
use std::io::{self, Read};

use frameyard::CpuId;
use frameyard_formats::{BadTraceLine, TraceLine};
use frameyard_traces::{PageEvent, TraceEvent};

/// Bytes of a pipe that a round reads at most.
const ROUND: usize = 256 << 10;
/// An event becomes visible after its time. More than that delay, in µs.
const DELAY_US: u64 = 10_000;

/// An event of a pipe.
pub(super) trait PipeEvent: Sized {
    /// Reads a line; `None` if it has nothing of interest.
    fn parse(line: &str) -> Result<Option<Line<Self>>, BadTraceLine>;

    /// The kernel lost this number of events of a CPU here.
    fn lost(time_us: u64, cpu: CpuId, events: u64) -> Self;

    /// The time in µs.
    fn time_us(&self) -> u64;

    /// The same event at another time.
    fn at(self, time_us: u64) -> Self;
}

/// A line of a pipe.
pub(super) enum Line<E> {
    Event(E),
    /// The kernel lost this number of events.
    Lost(u64),
}

impl PipeEvent for TraceEvent {
    fn parse(line: &str) -> Result<Option<Line<Self>>, BadTraceLine> {
        Ok(match TraceLine::parse(line)? {
            TraceLine::Event(event) => Some(Line::Event(event)),
            TraceLine::Lost(events) => Some(Line::Lost(events)),
            TraceLine::Comment(_) | TraceLine::Other(_) => None,
        })
    }

    fn lost(time_us: u64, cpu: CpuId, events: u64) -> Self {
        Self { time_us, pid: 0, cpu, what: PageEvent::Lost(events) }
    }

    fn time_us(&self) -> u64 {
        self.time_us
    }

    fn at(self, time_us: u64) -> Self {
        Self { time_us, ..self }
    }
}

/// The pipes of all CPUs.
pub(super) struct CpuPipes<R, E> {
    cpus: Vec<CpuPipe<R, E>>,
    /// Lines that cannot be read.
    pub(super) bad_lines: u64,
}

struct CpuPipe<R, E> {
    cpu: CpuId,
    source: R,
    /// The begin of a line.
    rest: Vec<u8>,
    events: VecDeque<E>,
    last_us: u64,
    is_empty: bool,
}

impl<R: Read, E: PipeEvent> CpuPipes<R, E> {
    pub(super) fn new(sources: impl IntoIterator<Item = (CpuId, R)>) -> Self {
        let pipe = |(cpu, source)| CpuPipe {
            cpu,
            source,
            rest: Vec::new(),
            events: VecDeque::new(),
            last_us: 0,
            is_empty: false,
        };
        Self { cpus: sources.into_iter().map(pipe).collect(), bad_lines: 0 }
    }

    /// Reads each pipe once. Returns the events before which no other can come; `now_us` is the time of the trace's clock.
    pub(super) fn round(&mut self, now_us: u64) -> io::Result<Vec<E>> {
        for pipe in &mut self.cpus {
            self.bad_lines += pipe.fill()?;
        }
        let quiet_us = now_us.saturating_sub(DELAY_US);
        let limit = self.cpus.iter().map(|pipe| if pipe.is_empty { quiet_us } else { pipe.last_us }).min();
        Ok(self.take(limit.unwrap_or(0)))
    }

    /// Whether the last round found all pipes empty.
    pub(super) fn are_empty(&self) -> bool {
        self.cpus.iter().all(|pipe| pipe.is_empty)
    }

    /// The events that rounds have read and not returned.
    pub(super) fn rest(&mut self) -> Vec<E> {
        self.take(u64::MAX)
    }

    fn take(&mut self, limit_us: u64) -> Vec<E> {
        let mut taken = Vec::new();
        for pipe in &mut self.cpus {
            let count = pipe.events.partition_point(|event| event.time_us() <= limit_us);
            taken.extend(pipe.events.drain(..count));
        }
        // Stable: events of a CPU stay in their order.
        taken.sort_by_key(PipeEvent::time_us);
        taken
    }
}

impl<R: Read, E: PipeEvent> CpuPipe<R, E> {
    /// Reads until the pipe is empty or the round is over. Returns the number of lines that cannot be read.
    fn fill(&mut self) -> io::Result<u64> {
        let (mut read, mut bad, mut buffer) = (0, 0, [0; 8192]);
        self.is_empty = false;
        while read < ROUND {
            match self.source.read(&mut buffer) {
                Ok(0) => self.is_empty = true,
                Ok(count) => {
                    read += count;
                    bad += self.add(&buffer[..count]);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.is_empty = true,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
            if self.is_empty {
                break;
            }
        }
        Ok(bad)
    }

    fn add(&mut self, text: &[u8]) -> u64 {
        let mut bad = 0;
        self.rest.extend(text);
        let bytes = std::mem::take(&mut self.rest);
        let mut lines = bytes.split(|byte| *byte == b'\n');
        self.rest = lines.next_back().unwrap_or_default().to_vec();
        for line in lines {
            match std::str::from_utf8(line).ok().and_then(|line| E::parse(line).ok()) {
                Some(Some(Line::Event(event))) => self.push(event),
                Some(Some(Line::Lost(events))) => self.push(E::lost(self.last_us, self.cpu, events)),
                Some(None) => {}
                None => bad += 1,
            }
        }
        bad
    }

    fn push(&mut self, event: E) {
        // A clock that goes back would break the search for the limit.
        self.last_us = self.last_us.max(event.time_us());
        self.events.push_back(event.at(self.last_us));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Parts of a pipe's text. An empty part is a time without events.
    struct Parts(VecDeque<Vec<u8>>);

    impl Read for Parts {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            match self.0.pop_front() {
                Some(part) if !part.is_empty() => {
                    buffer[..part.len()].copy_from_slice(&part);
                    Ok(part.len())
                }
                _ => Err(io::ErrorKind::WouldBlock.into()),
            }
        }
    }

    fn line(cpu: u32, time_us: u64) -> String {
        format!("  a-7 [00{cpu}] ..... 0.{time_us:06}: mm_page_free: page=0 pfn=0x{time_us:x} order=0\n")
    }

    fn pipes(parts: [&[String]; 2]) -> CpuPipes<Parts, TraceEvent> {
        let source = |parts: &[String]| Parts(parts.iter().map(|part| part.clone().into_bytes()).collect());
        CpuPipes::new([(CpuId(0), source(parts[0])), (CpuId(1), source(parts[1]))])
    }

    fn times(events: &[TraceEvent]) -> Vec<u64> {
        events.iter().map(|event| event.time_us).collect()
    }

    #[test]
    fn events_leave_in_the_order_of_time_and_wait_for_earlier_ones() {
        let late = line(1, 20_500);
        let (begin, end) = late.split_at(30);
        let first = [line(0, 100) + &line(0, 20_000), line(0, 20_900)];
        let second = [line(1, 50) + begin, String::new(), end.to_owned()];
        let mut pipes = pipes([&first, &second]);
        // Both pipes are empty after it: events of the last 10 ms may be incomplete.
        assert_eq!(times(&pipes.round(30_100).unwrap()), [50, 100, 20_000]);
        assert!(pipes.are_empty());
        assert!(pipes.round(30_200).unwrap().is_empty());
        assert_eq!(times(&pipes.rest()), [20_500, 20_900]);
        assert_eq!(pipes.bad_lines, 0);
    }

    #[test]
    fn lost_events_and_bad_lines_are_kept_in_mind() {
        let first = [line(0, 100) + "CPU:0 [LOST 12 EVENTS]\nnonsense\n" + &line(0, 200)];
        let mut pipes = pipes([&first, &[]]);
        let events = pipes.round(1_000_000).unwrap();
        assert_eq!((times(&events), pipes.bad_lines), (vec![100, 100, 200], 1));
        assert_eq!(events[1].what, PageEvent::Lost(12));
    }

    #[test]
    fn a_pipe_that_never_empties_holds_others_back_to_its_last_event() {
        let busy: Vec<String> = (0..ROUND as u64 / 64).map(|at| line(0, at)).collect();
        let mut pipes = pipes([&busy, &[line(1, 900_000)]]);
        let events = pipes.round(990_000).unwrap();
        assert!(!pipes.are_empty() && events.iter().all(|event| event.cpu == CpuId(0)));
        let mut all = events.len();
        while !pipes.are_empty() {
            all += pipes.round(990_000).unwrap().len();
        }
        assert_eq!(all + pipes.rest().len(), busy.len() + 1);
    }

    #[test]
    fn a_failing_pipe_is_an_error() {
        struct Failing;
        impl Read for Failing {
            fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
                Err(io::Error::other("gone"))
            }
        }
        assert_eq!(CpuPipes::<_, TraceEvent>::new([(CpuId(0), Failing)]).round(0).unwrap_err().to_string(), "gone");
    }
}
