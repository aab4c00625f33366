//! A platform that counts: lines of page structures under the zone lock and outside it, and locks taken.
//!
//! # What is counted
//!
//! Every access to a page structure that the core makes, and for those that matter, how many different lines they went to.
//! Different lines are told apart within a *stretch*: from where a zone lock is taken to where it is given back, or what
//! lies before, between and behind such holds in one refill or drain. So a line that is touched ten times in one hold is one
//! line, and one that is touched in two holds is two: it may have gone to another CPU in between.
//!
//! # Rows
//!
//! Each task counts in a row of its own, which nobody else writes to, so it costs no line that is shared. The caller
//! provides the rows, and says which task runs. A row belongs to the first task that uses it; others that it would fall to
//! count nothing, and how often that happened is counted ([`Counted::lost`]): with a row for each task it does not.

use core::fmt;
use core::ptr::NonNull;

use super::{
    Access, Contention, Copying, FramesNotReturned, FreeFrames, GetMark, InitProgress, LockId, MapNotBacked, MapWrite,
    Platform, SharedLine, Span, SpeculativeGets, WorkerPanicked, Zeroing,
};
use crate::sync::{AtomicU32, AtomicU64, Ordering};
use crate::units::{CpuId, NodeId, Order, PageCount, Pfn, PfnRange, named};

/// What a lock guards, whichever of its kind it is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum LockKind {
    /// [`LockId::Zone`].
    Zone,
    /// [`LockId::PerCpu`].
    PerCpu,
    /// [`LockId::Mechanism`].
    Mechanism,
    /// [`LockId::Lru`].
    Lru,
    /// [`LockId::LruBatch`].
    LruBatch,
    /// [`LockId::Space`].
    Space,
    /// [`LockId::PageTable`].
    PageTable,
    /// [`LockId::Objects`].
    Objects,
    /// [`LockId::File`].
    File,
    /// [`LockId::Devices`].
    Devices,
}

named!(LockKind: Zone => "zone", PerCpu => "per-cpu", Mechanism => "mechanism", Lru => "lru", LruBatch => "lru-batch", Space => "space",
    PageTable => "page-table", Objects => "objects", File => "file", Devices => "devices");

impl LockId {
    /// What the lock guards.
    #[must_use]
    pub const fn kind(self) -> LockKind {
        match self {
            Self::Zone(_) => LockKind::Zone,
            Self::PerCpu(..) => LockKind::PerCpu,
            Self::Mechanism(..) => LockKind::Mechanism,
            Self::Lru(..) => LockKind::Lru,
            Self::LruBatch(_) => LockKind::LruBatch,
            Self::Space(_) => LockKind::Space,
            Self::PageTable(_) => LockKind::PageTable,
            Self::Objects(_) => LockKind::Objects,
            Self::File(_) => LockKind::File,
            Self::Devices => LockKind::Devices,
        }
    }
}

/// How locks of a kind were taken.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct LocksTaken {
    /// Times one was taken.
    pub acquisitions: u64,
    /// Times it was waited for before.
    pub contended: u64,
    /// Times one was tried for and not taken.
    pub refused: u64,
}

/// Accesses to page structures.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct PageTouches {
    /// Reads and writes.
    pub accesses: u64,
    /// Different lines, each counted once a stretch. Not counted outside spans without the zone lock.
    pub lines: u64,
    /// Lines that were asked for ahead of time.
    pub prefetches: u64,
}

/// What was done in spans of a kind, or outside all spans.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct SpanTouches {
    /// How many spans ended.
    pub spans: u64,
    /// Frames that they moved.
    pub pages: u64,
    /// Times a zone lock was taken in them.
    pub zone_holds: u64,
    /// Accesses under a zone lock.
    pub under_lock: PageTouches,
    /// Accesses without one.
    pub outside: PageTouches,
}

impl SpanTouches {
    /// Lines of page structures touched under the zone lock for each frame moved; `None` where none was.
    #[must_use]
    pub fn lines_under_lock_per_page(&self) -> Option<f64> {
        (self.pages > 0).then(|| self.under_lock.lines as f64 / self.pages as f64)
    }
}

/// What a [`CountingPlatform`] has counted.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Counted {
    /// In refills of per-CPU lists.
    pub refill: SpanTouches,
    /// In drains of per-CPU lists.
    pub drain: SpanTouches,
    /// Everywhere else; its `spans` and `pages` are 0.
    pub elsewhere: SpanTouches,
    locks: [LocksTaken; LockKind::ALL.len()],
    /// Accesses to lines that may have been touched before in their stretch: a row had no room to remember them. They are
    /// missing among the lines. 0, or the numbers of lines are too small.
    pub forgotten: u64,
    /// What tasks did that had no row to themselves: accesses, locks taken, spans. 0, or all numbers are too small.
    pub lost: u64,
}

impl Counted {
    /// How locks of a kind were taken.
    #[must_use]
    pub fn locks(&self, kind: LockKind) -> LocksTaken {
        self.locks[kind as usize]
    }

    /// What happened since an earlier look.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        self.with(earlier, u64::wrapping_sub)
    }

    fn with(&self, other: &Self, op: fn(u64, u64) -> u64) -> Self {
        let touches = |a: PageTouches, b: PageTouches| PageTouches {
            accesses: op(a.accesses, b.accesses),
            lines: op(a.lines, b.lines),
            prefetches: op(a.prefetches, b.prefetches),
        };
        let span = |a: &SpanTouches, b: &SpanTouches| SpanTouches {
            spans: op(a.spans, b.spans),
            pages: op(a.pages, b.pages),
            zone_holds: op(a.zone_holds, b.zone_holds),
            under_lock: touches(a.under_lock, b.under_lock),
            outside: touches(a.outside, b.outside),
        };
        let locks = |at: usize| LocksTaken {
            acquisitions: op(self.locks[at].acquisitions, other.locks[at].acquisitions),
            contended: op(self.locks[at].contended, other.locks[at].contended),
            refused: op(self.locks[at].refused, other.locks[at].refused),
        };
        Self {
            refill: span(&self.refill, &other.refill),
            drain: span(&self.drain, &other.drain),
            elsewhere: span(&self.elsewhere, &other.elsewhere),
            locks: core::array::from_fn(locks),
            forgotten: op(self.forgotten, other.forgotten),
            lost: op(self.lost, other.lost),
        }
    }
}

#[derive(Default)]
struct TouchCounters {
    accesses: AtomicU64,
    lines: AtomicU64,
    prefetches: AtomicU64,
}

#[derive(Default)]
struct SpanCounters {
    spans: AtomicU64,
    pages: AtomicU64,
    zone_holds: AtomicU64,
    /// Without the zone lock, and under it.
    touches: [TouchCounters; 2],
}

impl SpanCounters {
    fn read(&self) -> SpanTouches {
        let touches = |of: &TouchCounters| PageTouches {
            accesses: get(&of.accesses),
            lines: get(&of.lines),
            prefetches: get(&of.prefetches),
        };
        let [outside, under_lock] = &self.touches;
        SpanTouches {
            spans: get(&self.spans),
            pages: get(&self.pages),
            zone_holds: get(&self.zone_holds),
            under_lock: touches(under_lock),
            outside: touches(outside),
        }
    }
}

/// No span; the others come behind it.
const NO_SPAN: u32 = 0;

fn place_of(span: Span) -> Option<u32> {
    match span {
        Span::Refill => Some(1),
        Span::Drain => Some(2),
        // They have these inside, or are inside of them; what is done there is counted by what it is done to.
        Span::Fault | Span::Map | Span::Zap | Span::Exit | Span::Relist => None,
        Span::Alloc | Span::Free | Span::Split | Span::Merge | Span::Collect | Span::BringUp => None,
    }
}

/// Where one task counts, and what it remembers meanwhile: up to `LINES` × 3/4 different lines of one stretch.
///
/// `LINES` is a power of two. Written by one task alone, with plain loads and stores.
#[repr(align(128))]
pub struct CountingRow<const LINES: usize = 1024> {
    /// The task whose row it is, plus 1; 0 while it is nobody's.
    owner: AtomicU64,
    /// Whether a zone lock is held, and the span.
    holding: AtomicU32,
    span: AtomicU32,
    /// The number of the stretch, and how many lines it has touched.
    stretch: AtomicU64,
    remembered: AtomicU32,
    /// Frame numbers with the number of the stretch that touched them, at places that follow from them.
    seen: [AtomicU64; LINES],
    spans: [SpanCounters; 3],
    locks: [[AtomicU64; 3]; LockKind::ALL.len()],
    forgotten: AtomicU64,
}

/// Bits of a remembered line that are the frame number; those above are the stretch.
const PFN_BITS: u32 = 40;

impl<const LINES: usize> Default for CountingRow<LINES> {
    fn default() -> Self {
        const { assert!(LINES.is_power_of_two() && LINES >= 4, "a row remembers a power of two of lines") };
        Self {
            owner: AtomicU64::new(0),
            holding: AtomicU32::new(0),
            span: AtomicU32::new(NO_SPAN),
            stretch: AtomicU64::new(1),
            remembered: AtomicU32::new(0),
            seen: core::array::from_fn(|_| AtomicU64::new(0)),
            spans: core::array::from_fn(|_| SpanCounters::default()),
            locks: core::array::from_fn(|_| core::array::from_fn(|_| AtomicU64::new(0))),
            forgotten: AtomicU64::new(0),
        }
    }
}

impl<const LINES: usize> fmt::Debug for CountingRow<LINES> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CountingRow").field("owner", &get(&self.owner)).finish_non_exhaustive()
    }
}

fn get(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}

fn add(counter: &AtomicU64, amount: u64) {
    counter.store(get(counter).wrapping_add(amount), Ordering::Relaxed);
}

impl<const LINES: usize> CountingRow<LINES> {
    /// What lies ahead is a stretch of its own.
    fn begin_stretch(&self) {
        let stretch = (get(&self.stretch) + 1) % (1 << (u64::BITS - PFN_BITS));
        if stretch == 0 {
            // Numbers begin anew: nothing of the past may be taken for the present.
            self.seen.iter().for_each(|seen| seen.store(0, Ordering::Relaxed));
        }
        self.stretch.store(stretch.max(1), Ordering::Relaxed);
        self.remembered.store(0, Ordering::Relaxed);
    }

    fn counters(&self) -> &SpanCounters {
        &self.spans[self.span.load(Ordering::Relaxed) as usize]
    }

    fn touches(&self) -> &TouchCounters {
        &self.counters().touches[self.holding.load(Ordering::Relaxed) as usize & 1]
    }

    fn touch(&self, pfn: Pfn) {
        let touches = self.touches();
        add(&touches.accesses, 1);
        let counts_lines = self.holding.load(Ordering::Relaxed) != 0 || self.span.load(Ordering::Relaxed) != NO_SPAN;
        if counts_lines && self.is_new(pfn) {
            add(&touches.lines, 1);
        }
    }

    /// Whether the line was not touched before in this stretch; remembers it.
    fn is_new(&self, pfn: Pfn) -> bool {
        let stretch = get(&self.stretch);
        let mark = stretch << PFN_BITS | pfn.0 & ((1 << PFN_BITS) - 1);
        let mut place = (pfn.0.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize;
        loop {
            let slot = &self.seen[place % LINES];
            let found = get(slot);
            if found == mark {
                return false;
            }
            if found >> PFN_BITS != stretch {
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

    fn locked(&self, id: LockId, contention: Contention) {
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

    fn read(&self) -> Counted {
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

/// A platform that counts what is done through it, and leaves the doing to another: for a further view
/// ([`Yard::attach`](crate::Yard::attach)) of a yard that exists.
///
/// `who` says which task runs the caller: a small number, which no two tasks that run at the same time share. Timed runs and
/// counted runs are best kept apart: counting makes every access slower.
pub struct CountingPlatform<'r, P, W, const LINES: usize = 1024> {
    inner: &'r P,
    rows: &'r [CountingRow<LINES>],
    who: W,
    lost: AtomicU64,
}

impl<'r, P: Platform, W: Fn() -> u32 + Sync, const LINES: usize> CountingPlatform<'r, P, W, LINES> {
    /// Counts in `rows` what is done through `inner`. Rows may have counted before; they go on.
    #[must_use]
    pub fn new(inner: &'r P, rows: &'r [CountingRow<LINES>], who: W) -> Self {
        Self { inner, rows, who, lost: AtomicU64::new(0) }
    }

    /// The platform that does the work.
    pub fn inner(&self) -> &'r P {
        self.inner
    }

    /// What all tasks together have counted, a moment ago: exact while none of them does anything.
    #[must_use]
    pub fn counted(&self) -> Counted {
        let none = Counted { lost: get(&self.lost), ..Counted::default() };
        self.rows.iter().fold(none, |sum, row| sum.with(&row.read(), u64::wrapping_add))
    }

    /// The row of the caller's task.
    fn row(&self) -> Option<&'r CountingRow<LINES>> {
        let task = (self.who)();
        let row = self.rows.get(task as usize % self.rows.len().max(1));
        let mine = row.filter(|row| {
            let id = u64::from(task) + 1;
            match row.owner.load(Ordering::Relaxed) {
                0 => row.owner.compare_exchange(0, id, Ordering::Relaxed, Ordering::Relaxed).is_ok(),
                owner => owner == id,
            }
        });
        if mine.is_none() {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
        mine
    }
}

impl<P: fmt::Debug, W, const LINES: usize> fmt::Debug for CountingPlatform<'_, P, W, LINES> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CountingPlatform").field("inner", &self.inner).finish_non_exhaustive()
    }
}

impl<P: Platform, W: Fn() -> u32 + Sync, const LINES: usize> Platform for CountingPlatform<'_, P, W, LINES> {
    type Guard = P::Guard;

    fn guard(&self) -> Self::Guard {
        self.inner.guard()
    }

    fn current_cpu(&self) -> CpuId {
        self.inner.current_cpu()
    }

    fn relax(&self, round: u32) {
        self.inner.relax(round);
    }

    fn frame_bytes(&self, pfn: Pfn) -> Option<NonNull<u8>> {
        self.inner.frame_bytes(pfn)
    }

    fn zero_frames(&self, frames: PfnRange) -> Zeroing {
        self.inner.zero_frames(frames)
    }

    fn copy_frames(&self, from: PfnRange, to: Pfn) -> Copying {
        self.inner.copy_frames(from, to)
    }

    fn touch_page(&self, pfn: Pfn, access: Access) {
        if let Some(row) = self.row() {
            row.touch(pfn);
        }
        self.inner.touch_page(pfn, access);
    }

    fn touch_line(&self, line: SharedLine, access: Access) {
        self.inner.touch_line(line, access);
    }

    fn prefetch_page(&self, pfn: Pfn, address: *const u8) {
        if let Some(row) = self.row() {
            add(&row.touches().prefetches, 1);
        }
        self.inner.prefetch_page(pfn, address);
    }

    fn span_begins(&self, span: Span) {
        self.inner.span_begins(span);
        if let Some(place) = place_of(span)
            && let Some(row) = self.row()
        {
            row.span.store(place, Ordering::Relaxed);
            row.begin_stretch();
        }
    }

    fn span_ends(&self, span: Span, pages: PageCount) {
        if place_of(span).is_some()
            && let Some(row) = self.row()
        {
            add(&row.counters().spans, 1);
            add(&row.counters().pages, pages.0);
            row.span.store(NO_SPAN, Ordering::Relaxed);
            row.begin_stretch();
        }
        self.inner.span_ends(span, pages);
    }

    fn lock(&self, id: LockId, word: &AtomicU32) -> Contention {
        let contention = self.inner.lock(id, word);
        if let Some(row) = self.row() {
            row.locked(id, contention);
        }
        contention
    }

    fn try_lock(&self, id: LockId, word: &AtomicU32) -> Contention {
        let contention = self.inner.try_lock(id, word);
        if let Some(row) = self.row() {
            match contention {
                Contention::Free => row.locked(id, Contention::Free),
                Contention::Contended => add(&row.locks[id.kind() as usize][2], 1),
            }
        }
        contention
    }

    fn unlock(&self, id: LockId, word: &AtomicU32) {
        if matches!(id, LockId::Zone(_))
            && let Some(row) = self.row()
        {
            row.holding.store(0, Ordering::Relaxed);
            row.begin_stretch();
        }
        self.inner.unlock(id, word);
    }

    fn await_word(&self, id: LockId, word: &AtomicU64, seen: u64, round: u32) {
        self.inner.await_word(id, word, seen, round);
    }

    fn word_changes(&self, id: LockId, word: &AtomicU64) {
        self.inner.word_changes(id, word);
    }

    fn run_workers(
        &self,
        count: usize,
        node_of: &(dyn Fn(usize) -> NodeId + Sync),
        job: &(dyn Fn(usize) + Sync),
    ) -> Result<(), WorkerPanicked> {
        self.inner.run_workers(count, node_of, job)
    }

    fn clock_ns(&self) -> Option<u64> {
        self.inner.clock_ns()
    }

    fn lock_clock_ns(&self) -> Option<u64> {
        self.inner.lock_clock_ns()
    }

    fn map_written(&self, frames: PfnRange, how: MapWrite) {
        self.inner.map_written(frames, how);
    }

    fn speculative_gets(&self) -> SpeculativeGets {
        self.inner.speculative_gets()
    }

    fn get_begins(&self) -> Option<&GetMark> {
        self.inner.get_begins()
    }

    fn back_map(&self, frames: PfnRange, address: NonNull<u8>, bytes: usize) -> Result<(), MapNotBacked> {
        self.inner.back_map(frames, address, bytes)
    }

    fn share_tails(
        &self,
        frames: PfnRange,
        order: Order,
        address: NonNull<u8>,
        bytes: usize,
    ) -> Result<(), MapNotBacked> {
        self.inner.share_tails(frames, order, address, bytes)
    }

    fn return_map(&self, frames: PfnRange, address: NonNull<u8>, bytes: usize) {
        self.inner.return_map(frames, address, bytes);
    }

    fn place_map(&self, holding: PfnRange, address: NonNull<u8>, bytes: usize) -> Result<(), MapNotBacked> {
        self.inner.place_map(holding, address, bytes)
    }

    fn return_frames(&self, frames: &FreeFrames) -> Result<(), FramesNotReturned> {
        self.inner.return_frames(frames)
    }

    fn init_progress(&self, progress: InitProgress) {
        self.inner.init_progress(progress);
    }
}
