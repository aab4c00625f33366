//! Free address ranges for new areas: the highest gap that fits, like the kernel's top-down `vm_unmapped_area`.

use frameyard::{ByteSize, Platform};

use super::tree::{AreaTree, LEVELS};
use super::{AreaWord, Node};
use crate::address::{PageLevel, VirtAddr, VirtRange};

impl<'y, P: Platform> AreaTree<'y, P> {
    /// The highest range of `bytes` (not 0) in a gap that starts at a multiple of `align`, at least a page.
    ///
    /// Usually one descent of the tree. If `align` exceeds a page and no gap is large enough to ignore alignment, one
    /// descent per sufficiently large gap until one fits aligned.
    pub(super) fn find_gap(self, bytes: ByteSize, align: ByteSize) -> Option<VirtRange> {
        let slack = align.0.saturating_sub(PageLevel::Small.size().0);
        let roomy = bytes.0.checked_add(slack).and_then(|wanted| self.highest_gap(wanted, VirtAddr::END));
        if let Some(placed) = roomy.and_then(|gap| top_of(gap, bytes, align)) {
            return Some(placed);
        }
        let mut limit = VirtAddr::END;
        loop {
            let gap = self.highest_gap(bytes.0, limit).filter(|gap| gap.start < limit)?;
            if let Some(placed) = top_of(gap, bytes, align) {
                return Some(placed);
            }
            limit = gap.start;
        }
    }

    /// The highest gap of at least `bytes` that ends at or below `limit`. `limit` is the end of all addresses or the
    /// start of another gap.
    fn highest_gap(self, bytes: u64, limit: VirtAddr) -> Option<VirtRange> {
        let Some(root) = self.root() else {
            return large_enough(VirtAddr::LOWEST, VirtAddr::END, bytes, limit);
        };
        let (first, last) = (VirtAddr(root.get(AreaWord::FIRST)), VirtAddr(root.get(AreaWord::LAST)));
        large_enough(last, VirtAddr::END, bytes, limit)
            .or_else(|| self.highest_gap_in(root, bytes, limit, LEVELS))
            .or_else(|| large_enough(VirtAddr::LOWEST, first, bytes, limit))
    }

    fn highest_gap_in(self, node: Node<'y>, bytes: u64, limit: VirtAddr, levels: u32) -> Option<VirtRange> {
        if node.get(AreaWord::GAP) < bytes || node.get(AreaWord::FIRST) >= limit.0 {
            return None;
        }
        let levels = self.step(levels)?;
        let range = node.range();
        let above = self.right(node).and_then(|right| {
            self.highest_gap_in(right, bytes, limit, levels)
                .or_else(|| large_enough(range.end, VirtAddr(right.get(AreaWord::FIRST)), bytes, limit))
        });
        above.or_else(|| {
            let left = self.left(node)?;
            large_enough(VirtAddr(left.get(AreaWord::LAST)), range.start, bytes, limit)
                .or_else(|| self.highest_gap_in(left, bytes, limit, levels))
        })
    }
}

fn large_enough(start: VirtAddr, end: VirtAddr, bytes: u64, limit: VirtAddr) -> Option<VirtRange> {
    let gap = VirtRange { start, end };
    (gap.size().0 >= bytes && !gap.is_empty() && end <= limit).then_some(gap)
}

/// The highest aligned range of `bytes` in a gap.
fn top_of(gap: VirtRange, bytes: ByteSize, align: ByteSize) -> Option<VirtRange> {
    let start = VirtAddr(gap.end.0.checked_sub(bytes.0)?).align_down(align);
    VirtRange::new(start, bytes).filter(|range| gap.covers(*range))
}
