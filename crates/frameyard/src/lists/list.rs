//! One per-CPU list: an array of entries, and the packed batches behind it.

use crate::lists::ARRAY;
use crate::memmap::MemMap;
use crate::page::Link;
use crate::platform::{OwnList, Platform};
use crate::store::batch::{BATCH, Batch, packed};
use crate::sync::{AtomicU32, AtomicU64, Ordering, all_atomic};
use crate::units::Order;
use crate::zone::exclusive::add_exclusive;
use crate::zone::view::ZoneView;

/// Entries on a cache line.
pub(super) const PER_LINE: usize = 16;

/// One list: the newest entries in an array, older ones in a chain of packed batches.
#[repr(C, align(64))]
pub(crate) struct PcpList {
    /// A [`ListWord`]. The only word that a fast path changes.
    pub(super) word: AtomicU64,
    /// Link to the head of the newest packed batch.
    pub(super) chain: AtomicU32,
    /// Blocks in packed batches.
    pub(super) packed: AtomicU32,
    /// Blocks that came from the zone, less those that went there. Wraps.
    pub(super) net_in: AtomicU64,
    pub(super) entries: [AtomicU32; ARRAY],
    /// Blocks freed before the count in `word` wrapped.
    pub(super) earlier_frees: AtomicU64,
}

all_atomic!(PcpList { word, chain, packed, net_in, entries, earlier_frees });

/// The length of a list's array, its limit, and the blocks freed to the list.
///
/// | bits | meaning |
/// |---|---|
/// | 0–7 | entries of the array |
/// | 8–15 | entries at which the array is full or the list's part of the group's limit is used up |
/// | 16–63 | blocks freed to the list |
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct ListWord(pub(super) u64);

impl ListWord {
    pub(super) const FREE: u64 = 1 << 16;

    #[inline(always)]
    pub(super) const fn len(self) -> usize {
        self.0 as u8 as usize
    }

    #[inline(always)]
    pub(super) const fn limit(self) -> usize {
        (self.0 >> 8) as u8 as usize
    }

    pub(super) const fn frees(self) -> u64 {
        self.0 >> 16
    }

    /// The word with another length, of at most [`ARRAY`].
    #[inline(always)]
    pub(super) const fn with_len(self, len: usize) -> Self {
        Self(self.0 & !0xff | len as u64)
    }

    /// The word with another limit, of at most [`ARRAY`].
    pub(super) const fn with_limit(self, limit: usize) -> Self {
        Self(self.0 & !(0xff << 8) | (limit as u64) << 8)
    }
}

const _: () = assert!(ARRAY <= u8::MAX as usize, "length and limit fit their bits");
#[cfg(not(loom))]
const _: () = assert!(core::mem::offset_of!(PcpList, entries) == OwnList::ENTRIES, "platforms count on it");
const _: () = assert!(ListWord::FREE + 1 == OwnList::PUSH, "platforms count on it");
const _: () = assert!(ARRAY <= OwnList::SLOTS, "each entry has a slot");

impl Default for PcpList {
    fn default() -> Self {
        Self {
            word: AtomicU64::new(0),
            chain: AtomicU32::new(0),
            packed: AtomicU32::new(0),
            net_in: AtomicU64::new(0),
            entries: core::array::from_fn(|_| AtomicU32::new(0)),
            earlier_frees: AtomicU64::new(0),
        }
    }
}

impl PcpList {
    #[inline(always)]
    pub(super) fn word(&self) -> ListWord {
        ListWord(self.word.load(Ordering::Relaxed))
    }

    #[inline(always)]
    pub(super) fn set_word(&self, word: ListWord) {
        self.word.store(word.0, Ordering::Relaxed);
    }

    pub(super) fn len(&self) -> usize {
        self.word().len().min(ARRAY)
    }

    pub(super) fn set_len(&self, len: usize) {
        self.set_word(self.word().with_len(len));
    }

    /// Counts a freed block that goes to the zone, and makes room in a count that is about to wrap.
    pub(super) fn count_overflowing_free(&self) {
        let word = self.word();
        let shared = word.frees();
        add_exclusive(&self.earlier_frees, shared + 1);
        self.set_word(ListWord(word.0 & (ListWord::FREE - 1)));
        add_exclusive(&self.net_in, u64::MAX);
    }

    /// Blocks of the list; possibly stale.
    pub(super) fn blocks_racy(&self) -> u64 {
        self.len() as u64 + u64::from(self.packed.load(Ordering::Relaxed))
    }

    /// Whether the list holds no block, possibly stale. A list that unpacks a batch meanwhile is not empty.
    pub(super) fn is_empty_racy(&self) -> bool {
        // Acquire: pairs with the Release in `PcpList::set_chain`.
        self.chain.load(Ordering::Acquire) == 0 && self.word().len() == 0
    }

    /// The blocks allocated from the list and those freed to it, possibly stale.
    pub(super) fn flow_racy(&self) -> (u64, u64) {
        let net_in = || self.net_in.load(Ordering::Relaxed);
        let read = || {
            let frees = self.word().frees().wrapping_add(self.earlier_frees.load(Ordering::Relaxed));
            (net_in(), frees, self.blocks_racy())
        };
        // The words belong together if no batch moves meanwhile.
        let mut seen = read();
        for _ in 0..FLOW_READS {
            if seen.0 == net_in() {
                break;
            }
            seen = read();
        }
        let (net_in, frees, held) = seen;
        (frees.wrapping_add(net_in).wrapping_sub(held), frees)
    }
}

/// How often the words of a list are read until they belong together.
const FLOW_READS: u32 = 4;

impl PcpList {
    pub(super) fn chain(&self) -> Link {
        Link(self.chain.load(Ordering::Relaxed))
    }

    pub(super) fn set_chain(&self, chain: Link) {
        // Release: pairs with the Acquire in `PcpList::is_empty_racy`. What was unpacked is in the array by now.
        self.chain.store(chain.0, Ordering::Release);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0 && self.chain() == Link::NONE
    }

    /// Takes the oldest entries of the array into `batch`, which is empty, and moves the rest down. Entries where no block of the order
    /// may begin are lost; whether there was none.
    pub(super) fn take_oldest(&self, count: usize, batch: &mut Batch, map: MemMap, order: Order) -> bool {
        let len = self.len();
        let taken = count.min(len).min(BATCH);
        load_into(&self.entries[..taken], batch);
        let are_sound = map.may_all_begin(batch, order);
        if !are_sound {
            let read = *batch;
            batch.clear();
            read.iter().filter(|at| map.may_begin(**at, order)).for_each(|at| batch.push(*at));
        }
        self.move_down(taken, len);
        self.set_len(len - taken);
        are_sound
    }

    /// Moves the entries from `from` to `len` to the start of the array.
    #[inline(always)]
    pub(super) fn move_down(&self, from: usize, len: usize) {
        let entries = &self.entries[from..len];
        let (to_lines, rest) = self.entries[..entries.len()].as_chunks::<PER_LINE>();
        let (lines, others) = entries.as_chunks::<PER_LINE>();
        let copy = |to: &AtomicU32, from: &AtomicU32| to.store(from.load(Ordering::Relaxed), Ordering::Relaxed);
        for (to, from) in to_lines.iter().zip(lines) {
            (0..PER_LINE).for_each(|at| copy(&to[at], &from[at]));
        }
        rest.iter().zip(others).for_each(|(to, from)| copy(to, from));
    }

    /// Appends entries to the array, which has room for them unless it is corrupt.
    pub(super) fn append(&self, entries: &[u32]) {
        let len = self.len();
        let end = (len + entries.len()).min(ARRAY);
        let slots = &self.entries[len..end];
        let (slot_lines, rest) = slots.as_chunks::<PER_LINE>();
        let (lines, others) = entries[..slots.len()].as_chunks::<PER_LINE>();
        for (slots, entries) in slot_lines.iter().zip(lines) {
            (0..PER_LINE).for_each(|at| slots[at].store(entries[at], Ordering::Relaxed));
        }
        rest.iter().zip(others).for_each(|(slot, entry)| slot.store(*entry, Ordering::Relaxed));
        self.set_len(end);
    }

    /// As [`append`](Self::append), the last entry first: the list then gives them out in their order.
    pub(super) fn append_reversed(&self, entries: &[u32]) {
        let len = self.len();
        let entries = &entries[..entries.len().min(ARRAY - len)];
        store_reversed(&self.entries[len..len + entries.len()], entries);
        self.set_len(len + entries.len());
    }

    /// Puts entries, the last one first, below those of the array, which has room for them unless it is corrupt: they are allocated
    /// later.
    pub(super) fn put_below_reversed(&self, entries: &[u32]) {
        let count = entries.len();
        let len = self.len().min(ARRAY - count);
        for at in (0..len).rev() {
            self.entries[at + count].store(self.entries[at].load(Ordering::Relaxed), Ordering::Relaxed);
        }
        store_reversed(&self.entries[..count], entries);
        self.set_len(len + count);
    }

    pub(super) fn push_batch<P: Platform>(&self, view: ZoneView<'_, P>, entries: &[u32]) {
        let head = packed::pack(view.map, view.platform, entries, self.chain());
        self.set_chain(head);
        self.packed.store(self.packed.load(Ordering::Relaxed) + entries.len() as u32, Ordering::Relaxed);
    }

    /// Unpacks the newest batch of the chain, if there is one, and gives it to `take`; whether it is sound. The list loses it after
    /// that call.
    pub(super) fn pop_batch<P: Platform>(
        &self,
        view: ZoneView<'_, P>,
        order: Order,
        take: impl FnOnce(&Batch),
    ) -> bool {
        let chain = self.chain();
        if chain == Link::NONE {
            return true;
        }
        let mut batch = Batch::new();
        let next = packed::unpack(view.map, (view.platform, view.id), (chain, order), &mut batch);
        take(&batch);
        self.end_batch(next.unwrap_or(Link::NONE), batch.len());
        next.is_some()
    }

    /// Notes that the newest batch has left the chain with its `blocks`. The chain begins with `next` from now on.
    pub(super) fn end_batch(&self, next: Link, blocks: usize) {
        self.count_unpacked(blocks);
        if next == Link::NONE {
            self.packed.store(0, Ordering::Relaxed);
        }
        self.set_chain(next);
    }

    /// Counts blocks that have left the chain.
    pub(super) fn count_unpacked(&self, blocks: usize) {
        let packed = self.packed.load(Ordering::Relaxed);
        self.packed.store(packed.saturating_sub(blocks as u32), Ordering::Relaxed);
    }

    /// Counts blocks that came from the zone.
    pub(super) fn count_in(&self, blocks: usize) {
        add_exclusive(&self.net_in, blocks as u64);
    }

    /// Counts blocks that went to the zone, or out of use.
    pub(super) fn count_out(&self, blocks: usize) {
        add_exclusive(&self.net_in, (blocks as u64).wrapping_neg());
    }
}

/// Adds the entries in some slots to a batch.
#[inline(always)]
fn load_into(slots: &[AtomicU32], batch: &mut Batch) {
    let (lines, rest) = slots.as_chunks::<PER_LINE>();
    for line in lines {
        batch.extend_by::<PER_LINE>(PER_LINE, |at| line[at].load(Ordering::Relaxed));
    }
    batch.extend(rest.iter().map(|slot| slot.load(Ordering::Relaxed)));
}

/// Stores entries in slots, of which there are as many, the last one first.
#[inline(always)]
fn store_reversed(slots: &[AtomicU32], entries: &[u32]) {
    // A line of slots at a time: an iterator that runs backwards takes as many instructions for a step as eight stores.
    let (lines, rest) = slots.as_chunks::<PER_LINE>();
    let (first, whole) = entries.as_rchunks::<PER_LINE>();
    for (line, entries) in lines.iter().zip(whole.iter().rev()) {
        for at in 0..PER_LINE {
            line[at].store(entries[PER_LINE - 1 - at], Ordering::Relaxed);
        }
    }
    for (slot, entry) in rest.iter().zip(first.iter().rev()) {
        slot.store(*entry, Ordering::Relaxed);
    }
}
