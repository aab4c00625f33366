//! Results of counting.

use crate::platform::LockKind;

/// Acquisitions of the locks of one kind.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct LocksTaken {
    /// Successful acquisitions.
    pub acquisitions: u64,
    /// Acquisitions that had to wait.
    pub contended: u64,
    /// Attempts (`try_lock`) that failed.
    pub refused: u64,
}

/// Accesses to page structures.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct PageTouches {
    /// Reads and writes.
    pub accesses: u64,
    /// Distinct lines, each counted once per stretch. Counted only in spans or under the zone lock.
    pub lines: u64,
    /// Prefetched lines.
    pub prefetches: u64,
}

/// Accesses to cache lines other than page structures: words of locks and lists, the allocation map, types of
/// pageblocks, counters.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct LineTouches {
    /// Reads, writes and exchanges.
    pub accesses: u64,
    /// Distinct lines, each counted once per stretch. Counted only in spans or under the zone lock.
    pub lines: u64,
}

/// Work in spans of one kind, or outside all spans.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct SpanTouches {
    /// Spans that ended.
    pub spans: u64,
    /// Frames that these spans moved.
    pub pages: u64,
    /// Acquisitions of a zone lock.
    pub zone_holds: u64,
    /// Accesses under a zone lock.
    pub under_lock: PageTouches,
    /// Accesses outside the zone lock.
    pub outside: PageTouches,
    /// Accesses to other lines under a zone lock.
    pub others_under_lock: LineTouches,
    /// Accesses to other lines outside the zone lock, including those to the word of the zone lock.
    pub others_outside: LineTouches,
}

impl SpanTouches {
    /// Lines of page structures touched under the zone lock per frame moved; `None` if no frame moved.
    #[must_use]
    pub fn lines_under_lock_per_page(&self) -> Option<f64> {
        (self.pages > 0).then(|| self.under_lock.lines as f64 / self.pages as f64)
    }

    /// Lines of all kinds, each counted once per stretch.
    #[must_use]
    pub const fn lines(&self) -> u64 {
        self.lines_under_lock() + self.outside.lines + self.others_outside.lines
    }

    /// Lines of all kinds that were touched under the zone lock, each counted once per hold.
    #[must_use]
    pub const fn lines_under_lock(&self) -> u64 {
        self.under_lock.lines + self.others_under_lock.lines
    }
}

/// The counts of a [`CountingPlatform`](crate::counting::CountingPlatform).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Counted {
    /// In refills of per-CPU lists.
    pub refill: SpanTouches,
    /// In drains of per-CPU lists.
    pub drain: SpanTouches,
    /// Outside refills and drains; its `spans` and `pages` are 0.
    pub elsewhere: SpanTouches,
    pub(crate) locks: [LocksTaken; LockKind::ALL.len()],
    /// Accesses to lines that a task had no room to remember in a stretch. They are missing from the line counts, so if
    /// this is not 0, the line counts are too low.
    pub forgotten: u64,
    /// Accesses, acquisitions and spans of tasks without counters of their own. If this is not 0, all counts are too low.
    pub lost: u64,
}

impl Counted {
    /// Acquisitions of the locks of one kind.
    #[must_use]
    pub fn locks(&self, kind: LockKind) -> LocksTaken {
        self.locks[kind as usize]
    }

    /// The difference from an earlier snapshot.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        self.with(earlier, u64::wrapping_sub)
    }

    pub(crate) fn with(&self, other: &Self, op: fn(u64, u64) -> u64) -> Self {
        let touches = |a: PageTouches, b: PageTouches| PageTouches {
            accesses: op(a.accesses, b.accesses),
            lines: op(a.lines, b.lines),
            prefetches: op(a.prefetches, b.prefetches),
        };
        let others = |a: LineTouches, b: LineTouches| LineTouches {
            accesses: op(a.accesses, b.accesses),
            lines: op(a.lines, b.lines),
        };
        let span = |a: &SpanTouches, b: &SpanTouches| SpanTouches {
            spans: op(a.spans, b.spans),
            pages: op(a.pages, b.pages),
            zone_holds: op(a.zone_holds, b.zone_holds),
            under_lock: touches(a.under_lock, b.under_lock),
            outside: touches(a.outside, b.outside),
            others_under_lock: others(a.others_under_lock, b.others_under_lock),
            others_outside: others(a.others_outside, b.others_outside),
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
