//! Validation of a space's areas.

use frameyard::Platform;
use frameyard::sync::Ordering;

use super::tree::{AreaTree, LEVELS, Sums, height};
use super::{MapKind, Node, Protection, SpaceRef, SpaceWord, merge};
use crate::address::{VirtAddr, VirtRange};
use crate::error::{Damage, VmValidateError};
use crate::object_id::ObjectId;

/// The state of the recount, lowest area first.
struct Seen {
    areas: u64,
    bytes: u64,
    /// End, kind and protection of the previous area.
    last: Option<(VirtAddr, MapKind, Protection)>,
    knows_last_found: bool,
    last_found: ObjectId,
}

impl<P: Platform> SpaceRef<'_, P> {
    /// Recounts the areas of a quiet space: sorted, disjoint, inside the mappable range, merged where equal, balanced,
    /// subtree words correct. Returns their number.
    pub(crate) fn validate_areas(&self) -> Result<u64, VmValidateError> {
        let get = |word| self.word(word).load(Ordering::Relaxed);
        let last_found = ObjectId::from_bits(get(SpaceWord::LAST_FOUND));
        let mut seen = Seen { areas: 0, bytes: 0, last: None, knows_last_found: false, last_found };
        if let Some(root) = self.areas().root() {
            check(self.areas(), root, &mut seen, LEVELS)?;
        }
        let counts = [
            ("areas of a space", get(SpaceWord::AREA_COUNT), seen.areas),
            ("mapped bytes of a space", get(SpaceWord::MAPPED_BYTES), seen.bytes),
        ];
        if let Some((what, kept, found)) = counts.into_iter().find(|(_, kept, found)| kept != found) {
            return Err(VmValidateError::Count { what, kept, found });
        }
        if last_found.some().is_some() && !seen.knows_last_found {
            return Err(VmValidateError::Count { what: "the cached area belongs to the space", kept: 1, found: 0 });
        }
        Ok(seen.areas)
    }
}

fn check<'y, P: Platform>(
    tree: AreaTree<'y, P>,
    node: Node<'y>,
    seen: &mut Seen,
    levels: u32,
) -> Result<(), VmValidateError> {
    let levels = tree.step(levels).ok_or(VmValidateError::Damaged(Damage::Area))?;
    let (left, right) = (tree.left(node), tree.right(node));
    if let Some(left) = left {
        check(tree, left, seen, levels)?;
    }
    let (range, kind, protection) = (node.range(), node.kind(), node.protection());
    let wrong = |what| VmValidateError::Addresses { start: range.start.0, end: range.end.0, what };
    let whole = VirtRange { start: VirtAddr::LOWEST, end: VirtAddr::END };
    if range.is_empty() || !whole.covers(range) || !range.is_aligned(kind.page_size()) {
        return Err(wrong("is no valid range of an area"));
    }
    if let Some((end, below, protected)) = seen.last {
        if end > range.start {
            return Err(wrong("overlaps the area below"));
        }
        if end == range.start && merge((below, protected), (kind, protection)) {
            return Err(wrong("could be merged with the area below"));
        }
    }
    if let MapKind::File { file, .. } = kind
        && !tree.vm.is_file(file)
    {
        return Err(wrong("maps a file that does not exist"));
    }
    seen.last = Some((range.end, kind, protection));
    seen.areas += 1;
    seen.bytes += range.size().0;
    seen.knows_last_found |= node.id == seen.last_found;
    if height(left).abs_diff(height(right)) > 1 {
        return Err(wrong("the tree is not balanced at this area"));
    }
    if Sums::kept(node) != tree.sums(node) {
        return Err(wrong("has wrong subtree words"));
    }
    right.map_or(Ok(()), |right| check(tree, right, seen, levels))
}
