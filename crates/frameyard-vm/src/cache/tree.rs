//! The tree of a file's pages: nodes of 64 slots, as high as the highest page number requires. Guarded by the file
//! lock.
//!
//! A node is an object of 72 words: 64 slots, a bit per used slot, a bit per slot with a dirty page in or below it, the
//! node's level, and the number of its first page. Slots of level 0 contain frame links, slots above contain ids of
//! nodes.
//!
//! Invariants while the lock is free: no node is empty; the root has level 0 or uses more than its first slot; the bits
//! agree with the slots; the file's counts of pages and dirty pages equal those of level 0.
//!
//! Nodes come from [`Spare`], which is filled without the lock.

use frameyard::page::FrameLink;
use frameyard::sync::{AtomicU64, Ordering};
use frameyard::{Pfn, Platform};

use super::file::{FileRef, FileWord};
use crate::error::{Damage, VmError};
use crate::lock::Held;
use crate::object_id::{ObjectId, ObjectKind};
use crate::vm::Vm;
use crate::words::Words;

/// Bits of a page number that a node resolves.
const BITS: u32 = 6;
const SLOTS: usize = 1 << BITS;
/// The height of a tree with the highest possible page number.
pub(super) const MAX_HEIGHT: usize = u64::BITS.div_ceil(BITS) as usize;

/// Words of a node after its slots.
pub(super) const PRESENT: usize = SLOTS;
pub(super) const DIRTY: usize = SLOTS + 1;
pub(super) const LEVEL: usize = SLOTS + 2;
pub(super) const BASE: usize = SLOTS + 3;

/// The pages to search for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Which {
    Any,
    Dirty,
}

/// The result of an insertion.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Inserted {
    Done,
    /// A page exists there.
    Occupied(Pfn),
    /// Number of missing nodes. Nothing has changed.
    Lacking(usize),
}

/// Preallocated nodes. Drop deletes the unused ones.
pub(super) struct Spare<'y, P: Platform> {
    vm: Vm<'y, P>,
    ids: [ObjectId; 2 * MAX_HEIGHT],
    len: usize,
}

impl<'y, P: Platform> Spare<'y, P> {
    pub(super) fn new(vm: Vm<'y, P>) -> Self {
        Self { vm, ids: [ObjectId::NONE; 2 * MAX_HEIGHT], len: 0 }
    }

    /// Allocates nodes up to `wanted`. No lock is held.
    pub(super) fn fill(&mut self, wanted: usize) -> Result<(), VmError> {
        while self.len < wanted.min(self.ids.len()) {
            self.ids[self.len] = self.vm.new_object(ObjectKind::CacheNode)?;
            self.len += 1;
        }
        Ok(())
    }

    fn take(&mut self) -> Option<ObjectId> {
        self.len = self.len.checked_sub(1)?;
        Some(self.ids[self.len])
    }
}

impl<P: Platform> Drop for Spare<'_, P> {
    fn drop(&mut self) {
        for id in &self.ids[..self.len] {
            self.vm.delete_object(ObjectKind::CacheNode, *id);
        }
    }
}

#[inline(always)]
const fn slot_at(index: u64, level: u32) -> usize {
    (index >> (level * BITS)) as usize % SLOTS
}

/// The height of a tree that contains page `index`.
pub(super) const fn height_for(index: u64) -> u64 {
    let bits = u64::BITS - index.leading_zeros();
    if bits == 0 { 1 } else { bits.div_ceil(BITS) as u64 }
}

/// The first page below the node of that level on the path to `index`.
pub(super) fn base_of(index: u64, level: u32) -> u64 {
    let span = (level + 1) * BITS;
    index.checked_shr(span).map_or(0, |high| high << span)
}

#[inline(always)]
fn load(word: &AtomicU64) -> u64 {
    // Relaxed: all accesses are under the file lock.
    word.load(Ordering::Relaxed)
}

#[inline(always)]
fn store(word: &AtomicU64, value: u64) {
    word.store(value, Ordering::Relaxed);
}

fn set_bit(word: &AtomicU64, slot: usize) {
    store(word, load(word) | 1 << slot);
}

fn clear_bit(word: &AtomicU64, slot: usize) {
    store(word, load(word) & !(1 << slot));
}

/// The nodes on the path to a page, and their ids, by level.
struct Way<'y> {
    index: u64,
    nodes: [Option<(ObjectId, Words<'y>)>; MAX_HEIGHT],
}

impl<'y> Way<'y> {
    fn slot(&self, level: u32) -> usize {
        slot_at(self.index, level)
    }

    fn upwards(&self) -> impl Iterator<Item = (u32, ObjectId, Words<'y>)> {
        (0..).zip(self.nodes.iter().flatten()).map(|(level, (id, node))| (level, *id, *node))
    }
}

/// A file's tree with the file lock held. Releases it on drop.
pub(super) struct Tree<'y, P: Platform> {
    file: FileRef<'y, P>,
    _held: Held<'y, P>,
}

impl<'y, P: Platform> FileRef<'y, P> {
    /// Takes the file lock, and with it access to the tree.
    #[inline]
    pub(super) fn lock(&self) -> Result<Tree<'y, P>, VmError> {
        let held = Held::lock(self.vm().yard().platform(), self.lock_id(), self.lock_word())?;
        Ok(Tree::new(*self, held))
    }
}

impl<'y, P: Platform> Tree<'y, P> {
    pub(super) fn new(file: FileRef<'y, P>, held: Held<'y, P>) -> Self {
        Self { file, _held: held }
    }

    pub(super) fn size(&self) -> u64 {
        self.file.size()
    }

    pub(super) fn set_size(&mut self, size: u64) {
        // Release: pairs with the Acquire in `FileRef::size`.
        self.file.word(FileWord::Size).store(size, Ordering::Release);
    }

    #[inline(always)]
    pub(super) fn height(&self) -> u64 {
        // Another process may have overwritten the word.
        load(self.file.word(FileWord::Height)).min(MAX_HEIGHT as u64)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.height() == 0
    }

    #[inline(always)]
    pub(super) fn root(&self) -> ObjectId {
        ObjectId::from_bits(load(self.file.word(FileWord::Root)))
    }

    #[inline(always)]
    pub(super) fn node(&self, id: ObjectId) -> Result<Words<'y>, VmError> {
        self.file.vm().object(ObjectKind::CacheNode, id)
    }

    /// The node that a word names; `None` for no node, and for a name that leads nowhere, which is noted as damage.
    #[inline(always)]
    fn named(&self, word: u64) -> Option<Words<'y>> {
        self.node(ObjectId::from_bits(word).some()?).ok()
    }

    fn frame(&self, slot: u64) -> Option<Pfn> {
        self.file.vm().yard().counted().linked(FrameLink::from_bits(slot as u32))
    }

    fn link(&self, pfn: Pfn) -> u64 {
        u64::from(self.file.vm().yard().counted().link(pfn).bits())
    }

    /// The node of level 0 on the path to a page.
    #[inline]
    fn leaf(&self, index: u64) -> Option<Words<'y>> {
        let height = self.height();
        if height_for(index) > height {
            return None;
        }
        let mut node = self.named(self.root().bits())?;
        for level in (1..height as u32).rev() {
            node = self.named(load(node.at(slot_at(index, level))))?;
        }
        Some(node)
    }

    /// The frame of a page.
    #[inline]
    pub(super) fn find(&self, index: u64) -> Option<Pfn> {
        self.frame(load(self.leaf(index)?.at(slot_at(index, 0))))
    }

    /// The first matching page at or above `from`, and its number.
    pub(super) fn next(&self, from: u64, which: Which) -> Option<(u64, Pfn)> {
        let (mut from, mut descents) = (from, 0);
        let bits = if which == Which::Any { PRESENT } else { DIRTY };
        // Each iteration moves one node to the right of an exhausted one: at most once per level.
        'descent: loop {
            let height = self.height();
            if height_for(from) > height {
                return None;
            }
            descents += 1;
            if descents > 2 * MAX_HEIGHT {
                self.file.vm().damaged(Damage::File);
                return None;
            }
            let (mut node, mut level) = (self.named(self.root().bits())?, (height as u32).checked_sub(1)?);
            loop {
                let (slot, base) = (slot_at(from, level), base_of(from, level));
                let mask = load(node.at(bits)) & (u64::MAX << slot);
                if mask == 0 {
                    from = base.checked_add(1_u64.checked_shl((level + 1) * BITS)?)?;
                    continue 'descent;
                }
                let first = mask.trailing_zeros() as usize;
                if first != slot {
                    from = base | (first as u64) << (level * BITS);
                }
                let found = load(node.at(first));
                if level == 0 {
                    return Some((from, self.frame(found)?));
                }
                (node, level) = (self.named(found)?, level - 1);
            }
        }
    }

    /// The page with the highest number, and the number.
    pub(super) fn last(&self) -> Option<(u64, Pfn)> {
        let (mut node, mut level) = (self.named(self.root().bits())?, (self.height() as u32).checked_sub(1)?);
        let mut index = 0;
        loop {
            let slot = load(node.at(PRESENT)).checked_ilog2()?;
            index |= u64::from(slot) << (level * BITS);
            let found = load(node.at(slot as usize));
            if level == 0 {
                return Some((index, self.frame(found)?));
            }
            (node, level) = (self.named(found)?, level - 1);
        }
    }

    /// The number of nodes that an insertion at `index` needs.
    fn nodes_lacking(&self, index: u64) -> Result<usize, VmError> {
        let (height, wanted) = (self.height(), height_for(index));
        if height == 0 {
            return Ok(wanted as usize);
        }
        if wanted > height {
            // One on top per missing level, and a new branch below.
            return Ok((wanted - height + wanted - 1) as usize);
        }
        let mut node = self.node(self.root())?;
        for level in (1..height as u32).rev() {
            match ObjectId::from_bits(load(node.at(slot_at(index, level)))).some() {
                Some(child) => node = self.node(child)?,
                None => return Ok(level as usize),
            }
        }
        Ok(0)
    }

    fn new_node(&self, spare: &mut Spare<'y, P>, index: u64, level: u32) -> Result<ObjectId, VmError> {
        // There are enough unless the tree changed under the lock.
        let id = spare.take().ok_or_else(|| self.file.vm().damaged(Damage::File))?;
        let node = self.node(id)?;
        store(node.at(LEVEL), u64::from(level));
        store(node.at(BASE), base_of(index, level));
        Ok(id)
    }

    fn set_root(&self, root: ObjectId, height: u64) {
        store(self.file.word(FileWord::Root), root.bits());
        store(self.file.word(FileWord::Height), height);
    }

    fn grow(&mut self, index: u64, spare: &mut Spare<'y, P>) -> Result<(), VmError> {
        let wanted = height_for(index);
        if self.height() == 0 {
            let root = self.new_node(spare, index, wanted as u32 - 1)?;
            self.set_root(root, wanted);
        }
        while self.height() < wanted {
            let (old, level) = (self.root(), self.height() as u32);
            let id = self.new_node(spare, 0, level)?;
            let node = self.node(id)?;
            store(node.at(0), old.bits());
            store(node.at(PRESENT), 1);
            store(node.at(DIRTY), u64::from(load(self.node(old)?.at(DIRTY)) != 0));
            self.set_root(id, u64::from(level) + 1);
        }
        Ok(())
    }

    /// Inserts a page, if the slot is free and enough nodes are spare.
    ///
    /// # Errors
    ///
    /// The tree is damaged.
    pub(super) fn insert(&mut self, index: u64, pfn: Pfn, spare: &mut Spare<'y, P>) -> Result<Inserted, VmError> {
        if let Some(found) = self.find(index) {
            return Ok(Inserted::Occupied(found));
        }
        let lacking = self.nodes_lacking(index)?;
        if lacking > spare.len {
            return Ok(Inserted::Lacking(lacking));
        }
        self.grow(index, spare)?;
        let mut node = self.node(self.root())?;
        for level in (1..self.height() as u32).rev() {
            let slot = slot_at(index, level);
            let child = match ObjectId::from_bits(load(node.at(slot))).some() {
                Some(child) => child,
                None => {
                    let child = self.new_node(spare, index, level - 1)?;
                    store(node.at(slot), child.bits());
                    set_bit(node.at(PRESENT), slot);
                    child
                }
            };
            node = self.node(child)?;
        }
        let slot = slot_at(index, 0);
        store(node.at(slot), self.link(pfn));
        set_bit(node.at(PRESENT), slot);
        let pages = self.file.word(FileWord::Pages);
        store(pages, load(pages).wrapping_add(1));
        Ok(Inserted::Done)
    }

    /// Replaces the frame of a page in the tree.
    pub(super) fn replace(&mut self, index: u64, pfn: Pfn) {
        if let Some(leaf) = self.leaf(index) {
            store(leaf.at(slot_at(index, 0)), self.link(pfn));
        }
    }

    /// The path to a page, if all its nodes exist.
    fn way(&self, index: u64) -> Option<Way<'y>> {
        let height = self.height();
        if height_for(index) > height {
            return None;
        }
        let mut way = Way { index, nodes: [None; MAX_HEIGHT] };
        let mut id = self.root();
        for level in (0..height as u32).rev() {
            let node = self.named(id.bits())?;
            way.nodes[level as usize] = Some((id, node));
            id = ObjectId::from_bits(load(node.at(slot_at(index, level))));
            if level > 0 {
                id.some()?;
            }
        }
        Some(way)
    }

    /// Removes a page; returns its frame. Deletes empty nodes.
    pub(super) fn remove(&mut self, index: u64) -> Option<Pfn> {
        self.untag_dirty(index);
        let way = self.way(index)?;
        let height = self.height();
        let mut removed = None;
        for (level, id, node) in way.upwards() {
            let slot = way.slot(level);
            if level == 0 {
                removed = Some(self.frame(load(node.at(slot)))?);
            }
            store(node.at(slot), 0);
            clear_bit(node.at(PRESENT), slot);
            if load(node.at(PRESENT)) != 0 {
                break;
            }
            self.file.vm().delete_object(ObjectKind::CacheNode, id);
            if u64::from(level) + 1 == height {
                self.set_root(ObjectId::NONE, 0);
            }
        }
        let pages = self.file.word(FileWord::Pages);
        store(pages, load(pages).wrapping_sub(1));
        self.shrink();
        removed
    }

    /// Removes roots that use only their first slot.
    fn shrink(&mut self) {
        while self.height() > 1 {
            let root = self.root();
            let Some(node) = self.named(root.bits()).filter(|node| load(node.at(PRESENT)) == 1) else { return };
            self.set_root(ObjectId::from_bits(load(node.at(0))), self.height() - 1);
            self.file.vm().delete_object(ObjectKind::CacheNode, root);
        }
    }

    /// Tags a page as dirty.
    pub(super) fn tag_dirty(&mut self, index: u64) {
        let Some(way) = self.way(index) else { return };
        for (level, _, node) in way.upwards() {
            let slot = way.slot(level);
            if load(node.at(DIRTY)) >> slot & 1 == 1 {
                // The nodes above are tagged already. At level 0, the page was dirty.
                return;
            }
            if level == 0 {
                let dirty = self.file.word(FileWord::DirtyPages);
                store(dirty, load(dirty).wrapping_add(1));
            }
            set_bit(node.at(DIRTY), slot);
        }
    }

    /// Removes the dirty tag of a page, if it has one.
    pub(super) fn untag_dirty(&mut self, index: u64) {
        let Some(way) = self.way(index) else { return };
        for (level, _, node) in way.upwards() {
            let slot = way.slot(level);
            if level == 0 {
                if load(node.at(DIRTY)) >> slot & 1 == 0 {
                    return;
                }
                let dirty = self.file.word(FileWord::DirtyPages);
                store(dirty, load(dirty).wrapping_sub(1));
            }
            clear_bit(node.at(DIRTY), slot);
            if load(node.at(DIRTY)) != 0 {
                return;
            }
        }
    }
}
