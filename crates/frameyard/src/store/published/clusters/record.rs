//! The record of a cluster: one word.

use crate::page::Link;

/// The state of a record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum RecordState {
    /// No page names it.
    Free,
    /// Its pages are on a free list.
    Listed,
    /// Its pages are in transit from or to a list; one CPU holds them.
    Held,
}

/// | bits | meaning |
/// |---|---|
/// | 0–31 | link to the last page of the cluster on its list |
/// | 32–39 | number of pages |
/// | 40–47 | pages that skipped merging |
/// | 48–49 | [`RecordState`] |
/// | 50–63 | unused, zero |
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Record(u64);

const SIZE: u64 = 1 << 32;
const SKIPPED: u64 = 1 << 40;
const LISTED: u64 = 1 << 48;

impl Record {
    pub(super) const FREE: Self = Self(0);
    /// The record of a cluster in transit.
    pub(super) const HELD: Self = Self(2 * LISTED);

    pub(super) fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    pub(super) const fn bits(self) -> u64 {
        self.0
    }

    pub(super) fn listed(tail: Link, size: usize, skipped: usize) -> Self {
        Self(u64::from(tail.bits()) | (size as u64 * SIZE) | (skipped as u64 * SKIPPED) | LISTED)
    }

    pub(super) fn state(self) -> RecordState {
        match self.0 >> 48 {
            0 => RecordState::Free,
            1 => RecordState::Listed,
            _ => RecordState::Held,
        }
    }

    pub(super) fn tail(self) -> Link {
        Link::from_bits(self.0 as u32)
    }

    pub(super) fn size(self) -> usize {
        (self.0 >> 32) as u8 as usize
    }

    pub(super) fn skipped(self) -> usize {
        (self.0 >> 40) as u8 as usize
    }

    pub(super) fn with_tail(self, tail: Link) -> Self {
        Self(self.0 & !0xffff_ffff | u64::from(tail.bits()))
    }

    /// With one more page, which did not skip merging.
    pub(super) fn with_page(self) -> Self {
        Self(self.0.wrapping_add(SIZE))
    }

    /// With one page fewer.
    pub(super) fn without_page(self) -> Self {
        Self(self.0.wrapping_sub(SIZE))
    }

    pub(super) fn with_skipped(self) -> Self {
        Self(self.0.wrapping_add(SKIPPED))
    }

    pub(super) fn without_skipped(self) -> Self {
        Self(self.0.wrapping_sub(SKIPPED))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_keeps_its_parts() {
        let record = Record::listed(Link::from_bits(u32::MAX), 63, 62).with_page().with_skipped();
        assert_eq!((record.tail(), record.size(), record.skipped()), (Link::from_bits(u32::MAX), 64, 63));
        assert_eq!(record.state(), RecordState::Listed);
        let record = record.without_page().without_skipped().with_tail(Link::from_bits(7));
        assert_eq!(record, Record::listed(Link::from_bits(7), 63, 62));
        assert_eq!((Record::FREE.state(), Record::HELD.state()), (RecordState::Free, RecordState::Held));
    }
}
