//! The model of per-CPU lists that predicts frame numbers.
//!
//! Most events concern a frame that an earlier event of the same CPU named: an allocation takes what a refill or a free has put on a
//! list, and a batched free repeats a free. So a frame number is coded as its place in a list, or as a difference if it is not near
//! the end of the list. Writer and reader keep the same lists.

use std::collections::{HashMap, VecDeque};

use frameyard::{CpuId, Order};

use super::varint::{put, take, unzigzag, zigzag};

/// Places of a list that are searched. A code below it is a place; from it on, a difference.
const PLACES: u64 = 64;

/// The lists of all CPUs, and the last frame of each CPU and kind of event.
#[derive(Default)]
pub(super) struct Lists {
    /// By CPU and order: the next to be allocated first.
    free: HashMap<(CpuId, Order), VecDeque<u64>>,
    /// By CPU: frames freed, the oldest first, that a batched free may repeat.
    freed: HashMap<CpuId, VecDeque<u64>>,
    last: HashMap<(CpuId, Kind), u64>,
}

/// How an event uses the lists. Each kind has a column of its own.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Kind {
    /// Takes from the front.
    Alloc,
    /// Adds to the front.
    Free,
    /// Repeats a free.
    FreeBatched,
    /// Adds to the back.
    Refill,
    /// Adds to the front: an allocation of the same block follows.
    Direct,
    /// Takes from the back.
    Drain,
    /// Uses no list.
    Other,
}

impl Kind {
    /// All kinds, in the order of their columns.
    pub(super) const ALL: [Self; 7] =
        [Self::Alloc, Self::Free, Self::FreeBatched, Self::Refill, Self::Direct, Self::Drain, Self::Other];

    /// Whether a frame may be coded as its place in a list.
    fn has_places(self) -> bool {
        matches!(self, Self::Alloc | Self::FreeBatched | Self::Drain)
    }
}

/// A frame number, or the code for one.
#[derive(Clone, Copy)]
enum Given {
    Frame(u64),
    Code(u64),
}

impl Lists {
    /// Appends the code of a frame.
    pub(super) fn put(&mut self, out: &mut Vec<u8>, (cpu, order, kind): (CpuId, Order, Kind), frame: u64) {
        let (_, code) = self.step((cpu, order, kind), Given::Frame(frame));
        // A difference of 64 bits leaves no room for codes of places: it takes two numbers.
        if kind.has_places() {
            put(out, code);
        }
        if code >= PLACES {
            let last = self.last.get(&(cpu, kind)).copied().unwrap_or(0);
            put(out, zigzag(frame.wrapping_sub(last)));
        }
        self.last.insert((cpu, kind), frame);
    }

    /// Takes a frame from a column; `None` if it has no code of one.
    pub(super) fn take(&mut self, column: &mut &[u8], (cpu, order, kind): (CpuId, Order, Kind)) -> Option<u64> {
        let code = if kind.has_places() { take(column)? } else { PLACES };
        let given = if code < PLACES {
            Given::Code(code)
        } else {
            let last = self.last.get(&(cpu, kind)).copied().unwrap_or(0);
            Given::Frame(last.wrapping_add(unzigzag(take(column)?)))
        };
        let (frame, _) = self.step((cpu, order, kind), given);
        self.last.insert((cpu, kind), frame?);
        frame
    }

    /// Updates the lists. Returns the frame, unless there is none at its place, and the code of the place.
    fn step(&mut self, (cpu, order, kind): (CpuId, Order, Kind), given: Given) -> (Option<u64>, u64) {
        let free = self.free.entry((cpu, order)).or_default();
        let freed = self.freed.entry(cpu).or_default();
        let list = match kind {
            Kind::FreeBatched => &mut *freed,
            _ => &mut *free,
        };
        let place = |at: u64| match kind {
            Kind::Drain => (list.len() as u64).checked_sub(1 + at),
            _ => Some(at),
        };
        let at = |at: u64| list.get(place(at)? as usize).copied();
        let (frame, code) = match given {
            Given::Frame(frame) if kind.has_places() => {
                (Some(frame), (0..PLACES).find(|place| at(*place) == Some(frame)).unwrap_or(PLACES))
            }
            Given::Frame(frame) => (Some(frame), PLACES),
            Given::Code(code) => (at(code), code),
        };
        let found = if code < PLACES { place(code).filter(|at| *at < list.len() as u64) } else { None };
        match (kind, frame) {
            (Kind::Alloc | Kind::Drain, _) => drop(found.and_then(|at| list.remove(at as usize))),
            (Kind::FreeBatched, _) => drop(found.map(|at| list.drain(..=at as usize))),
            (Kind::Free, Some(frame)) => {
                free.push_front(frame);
                freed.push_back(frame);
                if freed.len() as u64 > PLACES {
                    freed.pop_front();
                }
            }
            (Kind::Refill, Some(frame)) => free.push_back(frame),
            (Kind::Direct, Some(frame)) => free.push_front(frame),
            _ => {}
        }
        (frame, code)
    }
}
