//! The layout of frames: in a span of addresses with holes, and packed in a file.

use frameyard::{ByteSize, Geometry, NodeId, PageCount, Pfn, PfnRange};

use super::error::MemoryError;
use crate::sys::mapping::Piece;

/// A range of frames and its node.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct NodeFrames {
    /// The frames.
    pub range: PfnRange,
    /// Their node.
    pub node: NodeId,
}

/// Addresses and file offsets of a frame are equal modulo this size, so that huge pages fit: 2 MiB.
pub(crate) const HUGE_ALIGN: u64 = 2 << 20;

/// A piece of the span that has memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct FramePiece {
    pub(crate) piece: Piece,
    /// Offset of the piece in the file, relative to the first byte of all frames.
    pub(crate) file_offset: u64,
    pub(crate) node: NodeId,
}

/// The frames of a machine in a span of addresses.
///
/// Byte `b` of the physical address space lies at `b - span_start` in the span. The pieces are the ranges, rounded out
/// to whole granules (host pages or huge pages), ascending and disjoint. Bytes of a granule outside its ranges have
/// memory but belong to no frame. In a file the pieces follow each other with gaps of less than 2 MiB, so that offsets
/// and addresses are equal modulo 2 MiB. The layout depends on the arguments of `new` alone: two processes that attach
/// the same file compute the same one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct FrameLayout {
    page_shift: u8,
    ranges: Vec<NodeFrames>,
    /// The ranges with neighbours merged.
    present: Vec<PfnRange>,
    span_start: u64,
    span_len: u64,
    pieces: Vec<FramePiece>,
    file_len: u64,
}

impl FrameLayout {
    pub(crate) fn new(geometry: Geometry, frames: &[NodeFrames], granule: u64) -> Result<Self, MemoryError> {
        let ranges = checked_ranges(frames)?;
        let page_shift = geometry.page_shift();
        let mut pieces: Vec<FramePiece> = Vec::new();
        let mut span_start = 0;
        let (mut end_of_last, mut file_len) = (0u64, 0u64);
        for frames in &ranges {
            let overflow = || MemoryError::AddressOverflow(frames.range);
            let start = bytes_of(frames.range.start, page_shift).ok_or_else(overflow)? & !(granule - 1);
            let end = bytes_of(frames.range.end, page_shift).ok_or_else(overflow)?;
            let end = end.checked_next_multiple_of(granule).ok_or_else(overflow)?;
            if pieces.is_empty() {
                span_start = start;
            }
            let start = start.max(end_of_last);
            if start >= end {
                continue;
            }
            // The next offset that equals the address modulo 2 MiB.
            let file_offset = file_len + (start.wrapping_sub(file_len) & (HUGE_ALIGN - 1));
            let length = |bytes: u64| usize::try_from(bytes).map_err(|_| overflow());
            let piece = Piece { offset: length(start - span_start)?, len: length(end - start)? };
            pieces.push(FramePiece { piece, file_offset, node: frames.node });
            file_len = file_offset + (end - start);
            end_of_last = end;
        }
        let present = merged(&ranges);
        Ok(Self { page_shift, ranges, present, span_start, span_len: end_of_last - span_start, pieces, file_len })
    }

    pub(crate) fn page_shift(&self) -> u8 {
        self.page_shift
    }

    pub(crate) fn ranges(&self) -> &[NodeFrames] {
        &self.ranges
    }

    pub(crate) fn pieces(&self) -> &[FramePiece] {
        &self.pieces
    }

    pub(crate) fn span_start(&self) -> u64 {
        self.span_start
    }

    pub(crate) fn span_len(&self) -> ByteSize {
        ByteSize(self.span_len)
    }

    /// The length of a file with all pieces.
    pub(crate) fn file_len(&self) -> u64 {
        self.file_len
    }

    /// The total size of all pieces.
    pub(crate) fn backed(&self) -> ByteSize {
        ByteSize(self.pieces.iter().map(|piece| piece.piece.len as u64).sum())
    }

    pub(crate) fn frames(&self) -> PageCount {
        self.present.iter().map(|range| range.count()).sum()
    }

    /// The number of frames from this one to the next hole; `None` if it lies in one.
    #[inline]
    pub(crate) fn present_from(&self, pfn: Pfn) -> Option<PageCount> {
        let index = self.present.partition_point(|range| range.end <= pfn);
        let range = self.present.get(index)?;
        if range.start <= pfn { Some(range.end - pfn) } else { None }
    }

    /// The offset of a present frame in the span.
    #[inline]
    pub(crate) fn offset_of(&self, pfn: Pfn) -> usize {
        ((pfn.0 << self.page_shift) - self.span_start) as usize
    }
}

fn bytes_of(pfn: Pfn, page_shift: u8) -> Option<u64> {
    pfn.0.checked_mul(1 << page_shift)
}

fn checked_ranges(frames: &[NodeFrames]) -> Result<Vec<NodeFrames>, MemoryError> {
    let mut ranges = frames.to_vec();
    ranges.sort_by_key(|frames| frames.range.start);
    if ranges.is_empty() {
        return Err(MemoryError::Nothing);
    }
    if let Some(empty) = ranges.iter().find(|frames| frames.range.is_empty()) {
        return Err(MemoryError::EmptyRange(empty.range));
    }
    for pair in ranges.windows(2) {
        let (first, second) = (pair[0].range, pair[1].range);
        if second.start < first.end {
            return Err(MemoryError::Overlap { first, second });
        }
    }
    Ok(ranges)
}

fn merged(ranges: &[NodeFrames]) -> Vec<PfnRange> {
    let mut merged: Vec<PfnRange> = Vec::new();
    for frames in ranges {
        match merged.last_mut() {
            Some(last) if last.end == frames.range.start => last.end = frames.range.end,
            _ => merged.push(frames.range),
        }
    }
    merged
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frames(start: u64, end: u64, node: u16) -> NodeFrames {
        NodeFrames { range: PfnRange { start: Pfn(start), end: Pfn(end) }, node: NodeId(node) }
    }

    fn layout(frames: &[NodeFrames], granule: u64) -> Result<FrameLayout, MemoryError> {
        FrameLayout::new(Geometry::X86_64, frames, granule)
    }

    #[test]
    fn pieces_follow_the_ranges_and_are_packed_in_a_file() {
        let layout = layout(&[frames(0x100, 0x300, 0), frames(0x10_0000, 0x10_0200, 1)], 4096).unwrap();
        let [first, second] = layout.pieces() else { panic!("two pieces") };
        assert_eq!(first.piece, Piece { offset: 0, len: 0x20_0000 });
        assert_eq!(second.piece, Piece { offset: (0x10_0000 - 0x100) << 12, len: 0x20_0000 });
        assert_eq!((first.file_offset, second.file_offset), (0x10_0000, 0x40_0000));
        assert_eq!(layout.file_len(), 0x60_0000);
        assert_eq!(layout.backed(), ByteSize::mib(4));
        assert_eq!(layout.frames(), PageCount(0x400));
    }

    #[test]
    fn file_offsets_equal_addresses_modulo_the_huge_page() {
        let ranges =
            [frames(1, 0x9f, 0), frames(0x100, 0x7ff, 0), frames(0x1_2345, 0x2_0000, 1), frames(0x2_0000, 0x3_0001, 1)];
        let layout = layout(&ranges, 4096).unwrap();
        let mut end = 0;
        for piece in layout.pieces() {
            let address = layout.span_start() + piece.piece.offset as u64;
            assert_eq!(piece.file_offset % HUGE_ALIGN, address % HUGE_ALIGN);
            assert!(piece.file_offset >= end && piece.file_offset < end + HUGE_ALIGN);
            end = piece.file_offset + piece.piece.len as u64;
        }
        assert_eq!(layout.file_len(), end);
    }

    #[test]
    fn granules_have_memory_as_a_whole_and_once() {
        // A PC's hole below 1 MiB, with 2 MiB pages: the hole lies in a huge page and has no frames.
        let layout = layout(&[frames(0, 0x9f, 0), frames(0x100, 0x600, 0), frames(0x680, 0x700, 1)], 2 << 20).unwrap();
        let pieces: Vec<Piece> = layout.pieces().iter().map(|piece| piece.piece).collect();
        assert_eq!(
            pieces,
            [
                Piece { offset: 0, len: 2 << 20 },
                Piece { offset: 2 << 20, len: 4 << 20 },
                Piece { offset: 6 << 20, len: 2 << 20 }
            ]
        );
        assert_eq!(layout.present_from(Pfn(0x9e)), Some(PageCount(1)));
        assert_eq!(layout.present_from(Pfn(0x9f)), None);
        assert_eq!(layout.present_from(Pfn(0x100)), Some(PageCount(0x500)));
    }

    #[test]
    fn adjacent_ranges_of_different_nodes_are_present_as_one() {
        let layout = layout(&[frames(0x200, 0x400, 1), frames(0, 0x200, 0)], 4096).unwrap();
        assert_eq!(layout.present_from(Pfn(0x10)), Some(PageCount(0x3f0)));
        assert_eq!(layout.pieces().len(), 2);
        assert_eq!(layout.ranges()[0].node, NodeId(0));
    }

    #[test]
    fn impossible_ranges_are_refused_with_their_numbers() {
        let text = |frames: &[NodeFrames]| layout(frames, 4096).unwrap_err().to_string();
        assert_eq!(text(&[]), "no memory requested: at least one frame or byte is needed");
        assert_eq!(text(&[frames(5, 5, 0)]), "pfn [0x5, 0x5) has no frame: the end must lie after the start");
        assert_eq!(
            text(&[frames(16, 32, 0), frames(0, 17, 1)]),
            "pfn [0x0, 0x11) and pfn [0x10, 0x20) overlap: each frame belongs to one range"
        );
        assert_eq!(
            text(&[frames(0, 1 << 53, 0)]),
            "pfn [0x0, 0x20000000000000) has frames beyond the last 64-bit address"
        );
        assert!(matches!(layout(&[frames(0, (1 << 52) - 1, 0)], 2 << 20), Err(MemoryError::AddressOverflow(_))));
    }
}
