//! The tree of a space's areas: an AVL tree by address. Each subtree knows its largest gap.
//!
//! The heights of an area's two subtrees differ by at most one, so n areas have at most 1.44 log₂ n levels. `FIRST`,
//! `LAST` and `GAP` of a subtree follow from its own area and the same words of its children, so a change rewrites only
//! the path to it.
//!
//! The words may have been overwritten by another process. A descent therefore ends after [`LEVELS`] steps, and a name that
//! leads to no frame counts as no area. Both are noted as damage.

use core::cmp::Ordering::{Equal, Greater, Less};

use frameyard::Platform;
use frameyard::sync::{AtomicU64, Ordering};

use super::{AreaWord, Node};
use crate::address::{VirtAddr, VirtRange};
use crate::error::{Damage, VmError};
use crate::object_id::{ObjectId, ObjectKind};
use crate::vm::Vm;

/// More levels than the tree of any space has: its areas are at most the pages of its addresses.
pub(super) const LEVELS: u32 = 64;

/// The tree of a space. Read under the map lock, changed while it is held for writing.
pub(super) struct AreaTree<'y, P: Platform> {
    pub(super) vm: Vm<'y, P>,
    pub(super) root: &'y AtomicU64,
}

impl<P: Platform> Clone for AreaTree<'_, P> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<P: Platform> Copy for AreaTree<'_, P> {}

impl<'y, P: Platform> AreaTree<'y, P> {
    /// The area of an id.
    #[inline(always)]
    pub(super) fn node(self, id: ObjectId) -> Result<Node<'y>, VmError> {
        Ok(Node { id, words: self.vm.object(ObjectKind::Area, id)? })
    }

    /// The area that a word names.
    #[inline(always)]
    fn named(self, word: u64) -> Option<Node<'y>> {
        ObjectId::from_bits(word).some().and_then(|id| self.node(id).ok())
    }

    /// Counts a step down; `None` if no tree is that deep.
    #[inline(always)]
    pub(super) fn step(self, left: u32) -> Option<u32> {
        left.checked_sub(1).or_else(|| {
            self.vm.damaged(Damage::Area);
            None
        })
    }

    #[inline(always)]
    pub(super) fn root(self) -> Option<Node<'y>> {
        self.named(self.root.load(Ordering::Relaxed))
    }

    pub(super) fn set_root(self, root: Option<Node<'y>>) {
        self.root.store(name(root), Ordering::Relaxed);
    }

    #[inline(always)]
    pub(super) fn left(self, node: Node<'y>) -> Option<Node<'y>> {
        self.named(node.get(AreaWord::LEFT))
    }

    #[inline(always)]
    pub(super) fn right(self, node: Node<'y>) -> Option<Node<'y>> {
        self.named(node.get(AreaWord::RIGHT))
    }

    /// The lowest area that ends above an address: the one that contains it, or the next.
    pub(super) fn first_ending_after(self, addr: VirtAddr) -> Option<Node<'y>> {
        let (mut at, mut best, mut left) = (self.root(), None, LEVELS);
        while let Some(node) = at {
            left = self.step(left)?;
            if node.get(AreaWord::END) > addr.0 {
                best = Some(node);
                if node.get(AreaWord::START) <= addr.0 {
                    break;
                }
                at = self.left(node);
            } else {
                at = self.right(node);
            }
        }
        best
    }

    /// The highest area that starts below an address.
    pub(super) fn last_starting_before(self, addr: VirtAddr) -> Option<Node<'y>> {
        let (mut at, mut best, mut left) = (self.root(), None, LEVELS);
        while let Some(node) = at {
            left = self.step(left)?;
            if node.get(AreaWord::START) < addr.0 {
                best = Some(node);
                at = self.right(node);
            } else {
                at = self.left(node);
            }
        }
        best
    }

    /// Inserts an area whose range is written and overlaps no other.
    pub(super) fn insert(self, new: Node<'y>) {
        self.set_root(Some(self.inserted(self.root(), new, LEVELS)));
    }

    fn inserted(self, root: Option<Node<'y>>, new: Node<'y>, left: u32) -> Node<'y> {
        let Some((node, left)) = root.zip(self.step(left)) else {
            new.set(AreaWord::LEFT, 0);
            new.set(AreaWord::RIGHT, 0);
            self.sum_up(new);
            return new;
        };
        let side = if new.range().start < node.range().start { AreaWord::LEFT } else { AreaWord::RIGHT };
        let below = self.inserted(self.named(node.get(side)), new, left);
        node.set(side, name(Some(below)));
        self.balanced(node)
    }

    /// Removes an area.
    pub(super) fn remove(self, node: Node<'y>) {
        self.set_root(self.removed(self.root(), node.range().start, LEVELS));
    }

    fn removed(self, root: Option<Node<'y>>, start: VirtAddr, left: u32) -> Option<Node<'y>> {
        let node = root?;
        let Some(left) = self.step(left) else { return root };
        let side = match start.cmp(&node.range().start) {
            Less => AreaWord::LEFT,
            Greater => AreaWord::RIGHT,
            Equal => return self.joined(self.left(node), self.right(node), left),
        };
        let below = self.removed(self.named(node.get(side)), start, left);
        node.set(side, name(below));
        Some(self.balanced(node))
    }

    /// Joins the two subtrees of a removed area.
    fn joined(self, left: Option<Node<'y>>, right: Option<Node<'y>>, levels: u32) -> Option<Node<'y>> {
        let Some(right) = right else { return left };
        let (first, rest) = self.without_first(right, levels);
        first.set(AreaWord::LEFT, name(left));
        first.set(AreaWord::RIGHT, name(rest));
        Some(self.balanced(first))
    }

    /// Detaches the first area of a subtree; returns it and the rest.
    fn without_first(self, root: Node<'y>, levels: u32) -> (Node<'y>, Option<Node<'y>>) {
        let Some((left, levels)) = self.left(root).zip(self.step(levels)) else { return (root, self.right(root)) };
        let (first, rest) = self.without_first(left, levels);
        root.set(AreaWord::LEFT, name(rest));
        (first, Some(self.balanced(root)))
    }

    /// Updates the tree after the area at `start` changed its ends within the same gap.
    pub(super) fn ends_changed(self, start: VirtAddr) {
        self.sum_up_to(self.root(), start, LEVELS);
    }

    fn sum_up_to(self, root: Option<Node<'y>>, start: VirtAddr, left: u32) {
        let Some((node, left)) = root.zip(self.step(left)) else { return };
        match start.cmp(&node.range().start) {
            Less => self.sum_up_to(self.left(node), start, left),
            Greater => self.sum_up_to(self.right(node), start, left),
            Equal => {}
        }
        self.sum_up(node);
    }

    /// Removes all areas; calls `each` with each area once it is unreachable.
    pub(super) fn clear(self, mut each: impl FnMut(Node<'y>)) {
        let root = self.root();
        self.set_root(None);
        self.cleared(root, &mut each, LEVELS);
    }

    fn cleared(self, root: Option<Node<'y>>, each: &mut impl FnMut(Node<'y>), levels: u32) {
        let Some((node, levels)) = root.zip(self.step(levels)) else { return };
        let (left, right) = (self.left(node), self.right(node));
        // No second way leads below this area, even if links are damaged.
        node.set(AreaWord::LEFT, 0);
        node.set(AreaWord::RIGHT, 0);
        self.cleared(left, each, levels);
        self.cleared(right, each, levels);
        each(node);
    }

    /// Updates the subtree words of an area.
    fn sum_up(self, node: Node<'y>) {
        let sums = self.sums(node);
        node.set(AreaWord::HEIGHT, sums.height);
        node.set(AreaWord::FIRST, sums.range.start.0);
        node.set(AreaWord::LAST, sums.range.end.0);
        node.set(AreaWord::GAP, sums.gap);
    }

    /// The subtree words of an area, computed from its own range and its children.
    pub(super) fn sums(self, node: Node<'y>) -> Sums {
        let (left, right) = (self.left(node), self.right(node));
        let mut range = node.range();
        let mut gap = 0;
        if let Some(left) = left {
            gap = left.get(AreaWord::GAP).max(range.start.0.saturating_sub(left.get(AreaWord::LAST)));
            range.start = VirtAddr(left.get(AreaWord::FIRST));
        }
        if let Some(right) = right {
            let between = right.get(AreaWord::FIRST).saturating_sub(range.end.0);
            gap = gap.max(right.get(AreaWord::GAP)).max(between);
            range.end = VirtAddr(right.get(AreaWord::LAST));
        }
        Sums { height: height(left).max(height(right)).saturating_add(1), range, gap }
    }

    /// Updates an area whose subtrees are balanced and differ by at most two levels. Rotates if they differ by two.
    /// Returns the new root.
    fn balanced(self, node: Node<'y>) -> Node<'y> {
        let (left, right) = (self.left(node), self.right(node));
        if height(left) > height(right).saturating_add(1) {
            return self.rotated(node, AreaWord::LEFT, AreaWord::RIGHT);
        }
        if height(right) > height(left).saturating_add(1) {
            return self.rotated(node, AreaWord::RIGHT, AreaWord::LEFT);
        }
        self.sum_up(node);
        node
    }

    /// Rotates an area whose subtree at `high` is two levels higher than the one at `low`.
    fn rotated(self, node: Node<'y>, high: usize, low: usize) -> Node<'y> {
        let Some(mut below) = self.named(node.get(high)) else { return node };
        let inner = self.named(below.get(low));
        if height(inner) > height(self.named(below.get(high))) {
            below = self.rotated_up(below, low, high);
            node.set(high, name(Some(below)));
        }
        self.rotated_up(node, high, low)
    }

    /// Moves the child at `high` to the area's place and the area below it at `low`.
    fn rotated_up(self, node: Node<'y>, high: usize, low: usize) -> Node<'y> {
        let Some(top) = self.named(node.get(high)) else { return node };
        node.set(high, top.get(low));
        self.sum_up(node);
        top.set(low, name(Some(node)));
        self.sum_up(top);
        top
    }
}

/// The subtree words of an area.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Sums {
    pub(super) height: u64,
    pub(super) range: VirtRange,
    pub(super) gap: u64,
}

impl Sums {
    /// The values kept in the area's words.
    pub(super) fn kept(node: Node<'_>) -> Self {
        let range = VirtRange { start: VirtAddr(node.get(AreaWord::FIRST)), end: VirtAddr(node.get(AreaWord::LAST)) };
        Self { height: node.get(AreaWord::HEIGHT), range, gap: node.get(AreaWord::GAP) }
    }
}

#[inline(always)]
pub(super) fn height(node: Option<Node<'_>>) -> u64 {
    node.map_or(0, |node| node.get(AreaWord::HEIGHT))
}

#[inline(always)]
fn name(node: Option<Node<'_>>) -> u64 {
    node.map_or(0, |node| node.id.bits())
}
