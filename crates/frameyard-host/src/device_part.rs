//! The part of a memory map that holds the page structures of frames for devices.

use frameyard::{ByteSize, PageCount, Pfn, PfnRange};

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
    /// The part for `space`, whose page structures begin at an offset of the map; `None` if it contains no whole page of the host.
    pub(crate) fn of(space: PfnRange, offset: ByteSize) -> Option<Self> {
        let page = host_page_size() as u64;
        let start = offset.0.next_multiple_of(page);
        let end = (offset.0 + space.count().0 * PAGE_STRUCTURE) / page * page;
        let piece = Piece { offset: start as usize, len: end.checked_sub(start)? as usize };
        (piece.len > 0).then_some(Self { piece, first: space.start + PageCount((start - offset.0) / PAGE_STRUCTURE) })
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
        let part = |space: PfnRange| DevicePart::of(space, ByteSize(64 * (space.start.0 - 0x8000)));
        let expected = DevicePart { piece: Piece { offset: 0x8000 * 64, len: 0x8000 * 64 }, first: Pfn(0x10000) };
        assert_eq!(part(frames(0x10000, 0x18000)), Some(expected));
        let cut = DevicePart { piece: Piece { offset: 64 * 64, len: 64 * 64 }, first: Pfn(0x8040) };
        assert_eq!(part(frames(0x8001, 0x80bf)), Some(cut));
        assert_eq!(part(frames(0x8001, 0x803f)), None);
        assert_eq!(part(frames(0x8000, 0x8000)), None);
    }
}
