//! The part of a memory map that holds the page structures of frames for devices.

use frameyard::{PageCount, Pfn, PfnRange};

use crate::sys::host_page_size;
use crate::sys::mapping::Piece;

/// The size of a page structure.
pub(crate) const PAGE_STRUCTURE: u64 = 64;

/// Where the page structures for devices lie in a memory map, in whole pages of the host.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct DevicePart {
    pub(crate) piece: Piece,
    /// The frame of the first page structure in the piece.
    pub(crate) first: Pfn,
}

impl DevicePart {
    /// The part for `space` in a map of `frames`; `None` if it contains no whole page of the host.
    pub(crate) fn of(frames: PfnRange, space: PfnRange) -> Option<Self> {
        let space = space.intersection(frames);
        if space.is_empty() {
            return None;
        }
        let page = host_page_size() as u64;
        let byte = |pfn: Pfn| (pfn - frames.start).0 * PAGE_STRUCTURE;
        let (start, end) = (byte(space.start).next_multiple_of(page), byte(space.end) / page * page);
        let piece = Piece { offset: start as usize, len: end.checked_sub(start)? as usize };
        (piece.len > 0).then_some(Self { piece, first: frames.start + PageCount(start / PAGE_STRUCTURE) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frames(start: u64, end: u64) -> PfnRange {
        PfnRange { start: Pfn(start), end: Pfn(end) }
    }

    #[test]
    fn the_part_consists_of_whole_host_pages() {
        let part = |space| DevicePart::of(frames(0x8000, 0x20000), space);
        let expected = DevicePart { piece: Piece { offset: 0x8000 * 64, len: 0x8000 * 64 }, first: Pfn(0x10000) };
        assert_eq!(part(frames(0x10000, 0x18000)), Some(expected));
        let cut = DevicePart { piece: Piece { offset: 64 * 64, len: 64 * 64 }, first: Pfn(0x8040) };
        assert_eq!(part(frames(0x8001, 0x80bf)), Some(cut));
        assert_eq!(part(frames(0x8001, 0x803f)), None);
        assert_eq!(part(frames(0x30000, 0x40000)), None);
        assert_eq!(part(frames(0, 0)), None);
    }
}
