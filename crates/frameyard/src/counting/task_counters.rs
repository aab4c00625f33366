//! The counters of one task.

use core::fmt;

use crate::Pfn;
use crate::platform::{Activity, Contention, LockId, LockKind};
use crate::sync::{AtomicU32, AtomicU64, Ordering};

use crate::counting::counted::{Counted, LineTouches, LocksTaken, PageTouches, SpanTouches};

#[derive(Default)]
pub(crate) struct TouchCounters {
    accesses: AtomicU64,
    lines: AtomicU64,
    pub(crate) prefetches: AtomicU64,
}

#[derive(Default)]
pub(crate) struct SpanCounters {
    pub(crate) spans: AtomicU64,
    pub(crate) pages: AtomicU64,
    zone_holds: AtomicU64,
    /// Outside the zone lock, and under it.
    touches: [TouchCounters; 2],
    others: [TouchCounters; 2],
}

impl SpanCounters {
    fn read(&self) -> SpanTouches {
        let touches = |of: &TouchCounters| PageTouches {
            accesses: get(&of.accesses),
            lines: get(&of.lines),
            prefetches: get(&of.prefetches),
        };
        let others = |of: &TouchCounters| LineTouches { accesses: get(&of.accesses), lines: get(&of.lines) };
        let [outside, under_lock] = &self.touches;
        let [others_outside, others_under_lock] = &self.others;
        SpanTouches {
            spans: get(&self.spans),
            pages: get(&self.pages),
            zone_holds: get(&self.zone_holds),
            under_lock: touches(under_lock),
            outside: touches(outside),
            others_under_lock: others(others_under_lock),
            others_outside: others(others_outside),
        }
    }
}

/// Index of the counters outside all spans. Refill is 1, drain 2.
pub(crate) const NO_SPAN: u32 = 0;

/// The index of an activity's counters; `None` for activities that contain refills and drains or are part of one: their
/// work counts where it happens.
pub(crate) fn place_of(activity: Activity) -> Option<u32> {
    match activity {
        Activity::Refill => Some(1),
        Activity::Drain => Some(2),
        Activity::Fault | Activity::Map | Activity::Zap | Activity::Exit | Activity::Relist => None,
        Activity::Alloc
        | Activity::Free
        | Activity::Split
        | Activity::Merge
        | Activity::Collect
        | Activity::BringUp => None,
    }
}

/// The counters of one task, and the lines that it touched in the current stretch: up to 3/4 of `LINES`, a power of two.
///
/// One task writes them, with plain loads and stores.
#[repr(align(128))]
pub struct TaskCounters<const LINES: usize = 1024> {
    /// The number of the owning task plus 1; 0 before the first use.
    pub(crate) owner: AtomicU64,
    /// Whether the task holds a zone lock, and its current span.
    pub(crate) holding: AtomicU32,
    pub(crate) span: AtomicU32,
    /// The number of the current stretch, and the number of lines touched in it.
    stretch: AtomicU64,
    remembered: AtomicU32,
    /// Whether the stretch goes on through spans and holds of locks.
    goes_on: AtomicU32,
    /// Hash table of lines, each with the number of the stretch that touched it.
    seen: [AtomicU64; LINES],
    spans: [SpanCounters; 3],
    pub(crate) locks: [[AtomicU64; 3]; LockKind::ALL.len()],
    forgotten: AtomicU64,
}

/// Low bits of an entry of `seen` that name the line; the bits above are the stretch.
const LINE_BITS: u32 = 40;
/// Set in the name of a line that is no page structure. The bits below are those of its address; of a page structure, the frame number.
const OTHER: u64 = 1 << (LINE_BITS - 1);
/// Bytes of a cache line.
const LINE_BYTES: usize = 64;

impl<const LINES: usize> Default for TaskCounters<LINES> {
    fn default() -> Self {
        const { assert!(LINES.is_power_of_two() && LINES >= 4, "LINES is a power of two, at least 4") };
        Self {
            owner: AtomicU64::new(0),
            holding: AtomicU32::new(0),
            span: AtomicU32::new(NO_SPAN),
            stretch: AtomicU64::new(1),
            remembered: AtomicU32::new(0),
            goes_on: AtomicU32::new(0),
            seen: core::array::from_fn(|_| AtomicU64::new(0)),
            spans: core::array::from_fn(|_| SpanCounters::default()),
            locks: core::array::from_fn(|_| core::array::from_fn(|_| AtomicU64::new(0))),
            forgotten: AtomicU64::new(0),
        }
    }
}

impl<const LINES: usize> fmt::Debug for TaskCounters<LINES> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TaskCounters").field("owner", &get(&self.owner)).finish_non_exhaustive()
    }
}

pub(crate) fn get(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}

pub(crate) fn add(counter: &AtomicU64, amount: u64) {
    counter.store(get(counter).wrapping_add(amount), Ordering::Relaxed);
}

impl<const LINES: usize> TaskCounters<LINES> {
    /// Starts a new stretch, unless the current one goes on.
    pub(crate) fn begin_stretch(&self) {
        if self.goes_on.load(Ordering::Relaxed) == 0 {
            self.begin_next();
        }
    }

    /// Starts a stretch that goes on through spans and holds of locks.
    pub(crate) fn begin_long_stretch(&self) {
        self.begin_next();
        self.goes_on.store(1, Ordering::Relaxed);
    }

    /// Ends such a stretch.
    pub(crate) fn end_long_stretch(&self) {
        self.goes_on.store(0, Ordering::Relaxed);
        self.begin_next();
    }

    fn begin_next(&self) {
        let stretch = (get(&self.stretch) + 1) % (1 << (u64::BITS - LINE_BITS));
        if stretch == 0 {
            // The stretch number wraps: forget entries that would match again.
            self.seen.iter().for_each(|seen| seen.store(0, Ordering::Relaxed));
        }
        self.stretch.store(stretch.max(1), Ordering::Relaxed);
        self.remembered.store(0, Ordering::Relaxed);
    }

    pub(crate) fn counters(&self) -> &SpanCounters {
        &self.spans[self.span.load(Ordering::Relaxed) as usize]
    }

    pub(crate) fn touches(&self) -> &TouchCounters {
        &self.counters().touches[self.is_holding()]
    }

    /// 1 under a zone lock, and 0 otherwise.
    fn is_holding(&self) -> usize {
        self.holding.load(Ordering::Relaxed) as usize & 1
    }

    pub(crate) fn touch(&self, pfn: Pfn) {
        self.count_access(self.touches(), pfn.0 & (OTHER - 1));
    }

    /// Counts an access to a line that is no page structure, by an address in it.
    pub(crate) fn touch_other<T>(&self, address: *const T) {
        let line = (address.addr() / LINE_BYTES) as u64;
        self.count_access(&self.counters().others[self.is_holding()], OTHER | line & (OTHER - 1));
    }

    fn count_access(&self, touches: &TouchCounters, line: u64) {
        add(&touches.accesses, 1);
        let is_set = |word: &AtomicU32| word.load(Ordering::Relaxed) != 0;
        let counts_lines =
            is_set(&self.holding) || self.span.load(Ordering::Relaxed) != NO_SPAN || is_set(&self.goes_on);
        if counts_lines && self.is_new(line) {
            add(&touches.lines, 1);
        }
    }

    /// Whether this is the first touch of the line in this stretch. Remembers the line.
    fn is_new(&self, line: u64) -> bool {
        let stretch = get(&self.stretch);
        let mark = stretch << LINE_BITS | line;
        let mut place = (line.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize;
        loop {
            let slot = &self.seen[place % LINES];
            let found = get(slot);
            if found == mark {
                return false;
            }
            if found >> LINE_BITS != stretch {
                if self.remembered.load(Ordering::Relaxed) as usize >= LINES / 4 * 3 {
                    add(&self.forgotten, 1);
                    return false;
                }
                slot.store(mark, Ordering::Relaxed);
                self.remembered.store(self.remembered.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
                return true;
            }
            place += 1;
        }
    }

    pub(crate) fn locked(&self, id: LockId, contention: Contention) {
        let counters = &self.locks[id.kind() as usize];
        add(&counters[0], 1);
        if contention == Contention::Contended {
            add(&counters[1], 1);
        }
        if matches!(id, LockId::Zone(_)) {
            add(&self.counters().zone_holds, 1);
            self.holding.store(1, Ordering::Relaxed);
            self.begin_stretch();
        }
    }

    pub(crate) fn read(&self) -> Counted {
        let [elsewhere, refill, drain] = &self.spans;
        let locks = |at: usize| {
            let [acquisitions, contended, refused] = &self.locks[at];
            LocksTaken { acquisitions: get(acquisitions), contended: get(contended), refused: get(refused) }
        };
        Counted {
            refill: refill.read(),
            drain: drain.read(),
            elsewhere: elsewhere.read(),
            locks: core::array::from_fn(locks),
            forgotten: get(&self.forgotten),
            lost: 0,
        }
    }
}
