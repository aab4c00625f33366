//! Which of the frames that a task freed it gets back: a frame freed a moment ago is still in a cache.
//!
//! The task keeps the record, so the allocator does no work for it. On a CPU of its own, the task's frees are those of the CPU.

use std::collections::HashMap;

use frameyard::Pfn;

use crate::report::Reuse;

/// Frames that count as hot: 1 MiB of 4 KiB frames, about half of a CPU's private cache.
const HOT: usize = 256;

/// The frames that a task has freed and not got back.
#[derive(Debug, Default)]
pub(crate) struct FreedFrames {
    /// The freed frames, oldest first. `None` where the task got the frame back.
    order: Vec<Option<Pfn>>,
    /// The place of each in `order`, and the number of its free.
    places: HashMap<Pfn, (usize, u64)>,
    /// Frames freed so far.
    frees: u64,
    reuse: Reuse,
}

impl FreedFrames {
    /// Records the free of a frame.
    pub(crate) fn freed(&mut self, pfn: Pfn) {
        if let Some((place, _)) = self.places.insert(pfn, (self.order.len(), self.frees)) {
            self.order[place] = None;
        }
        self.order.push(Some(pfn));
        self.frees += 1;
    }

    /// Counts a fault that got this frame. Faults before the first free do not count.
    pub(crate) fn got(&mut self, pfn: Pfn) {
        if self.frees == 0 {
            return;
        }
        self.reuse.faults += 1;
        let Some((place, number)) = self.places.remove(&pfn) else { return };
        self.reuse.hot += u64::from(self.frees - number <= HOT as u64);
        let free = self.order[place + 1..].iter().flatten();
        self.reuse.hottest += u64::from(free.take(HOT).count() < HOT);
        self.order[place] = None;
        while self.order.last() == Some(&None) {
            self.order.pop();
        }
    }

    /// The counts so far.
    pub(crate) fn reuse(&self) -> Reuse {
        self.reuse
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn freed(frames: impl Iterator<Item = u64>) -> FreedFrames {
        let mut record = FreedFrames::default();
        frames.for_each(|pfn| record.freed(Pfn(pfn)));
        record
    }

    fn counts(mut record: FreedFrames, got: impl Iterator<Item = u64>) -> (u64, u64, u64) {
        got.for_each(|pfn| record.got(Pfn(pfn)));
        let Reuse { faults, hot, hottest } = record.reuse();
        (faults, hot, hottest)
    }

    #[test]
    fn last_in_first_out_is_always_the_hottest_and_hot_for_a_mebibyte() {
        assert_eq!(counts(freed(0..1000), (0..1000).rev()), (1000, 256, 1000));
    }

    #[test]
    fn first_in_first_out_is_neither_until_the_last_mebibyte() {
        assert_eq!(counts(freed(0..1000), 0..1000), (1000, 256, 256));
    }

    #[test]
    fn frames_got_back_no_longer_stand_before_older_ones() {
        let mut record = freed(0..257);
        record.got(Pfn(0));
        assert_eq!((record.reuse().hot, record.reuse().hottest), (0, 0));
        let mut record = freed(0..257);
        record.got(Pfn(100));
        record.got(Pfn(0));
        assert_eq!((record.reuse().hot, record.reuse().hottest), (1, 2));
    }

    #[test]
    fn strange_frames_and_faults_before_the_first_free_are_not_hot() {
        assert_eq!(counts(FreedFrames::default(), 0..10), (0, 0, 0));
        assert_eq!(counts(freed(0..10), 10..20), (10, 0, 0));
    }

    #[test]
    fn a_frame_freed_twice_counts_at_its_last_free() {
        assert_eq!(counts(freed((0..300).chain([0])), [0].into_iter()), (1, 1, 1));
    }
}
