//! The page structure: 64 bytes of atomics for each page frame, and the meaning of each word in each state.
//!
//! An all-zero [`Page`] is valid and means [`FrameState::Interior`]: a frame inside a block whose head is elsewhere, or
//! a frame that was never touched. Only the head of a block carries information. So merging, splitting and freeing
//! touch only heads, and fresh zeroed memory is an initialised memory map.
//!
//! # Single frames without a tag
//!
//! If a tag in initialised memory is zero and no head covers the frame while the zone is locked, the frame is a single
//! one that has left its zone. Its byte in the allocation map says whether it is allocated, and as which type. Its
//! section gives the zone, and its pageblock gives the type if the frame is on a list. Thanks to this rule, a refill
//! turns a large block into single frames by clearing one tag.
//!
//! The rule holds in uniform sections, all of whose frames are memory of one zone. In other sections a zero tag may
//! belong to a hole, so every single frame has a tag. The rule also holds for kernel-like content, where the payload is
//! never zero but the tag can be. A single frame may always have a tag: the policies that model the kernel write one,
//! and frames keep it when the policy changes. `zone/untagged.rs` applies the rule for all readers.
//!
//! All accesses go through `PageRef`, which reports them to the platform's probe.

use core::fmt;
use core::ptr::NonNull;

use crate::platform::{Access, Platform, Probe};
use crate::sync::{AtomicU32, AtomicU64, Ordering};
use crate::units::{MigrateType, Order, Pfn, ZoneId, named};

pub(crate) mod content;
mod counted;
mod interior;
mod listing;
mod pins;
mod residence;
mod words;

pub use content::MapContent;
pub(crate) use content::PageTemplate;

pub use counted::{CountedPage, Counts, ReferenceUnderflow};
pub use pins::{PIN_BIAS, ReferenceOverflow, references_of_pins};
pub(crate) use residence::Residence;
pub use words::{PAGE_WORDS, PageWord};

/// The state of a frame. A frame is in exactly one state at a time.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
#[non_exhaustive]
pub enum FrameState {
    /// Inside a block whose head is elsewhere, in a hole, or never touched. The tag of a single frame that has left its
    /// zone may also have this state; the frame is then [`PerCpu`](Self::PerCpu) or [`Allocated`](Self::Allocated).
    Interior = 0,
    /// Head of a block that was never given to the allocator.
    Reserved = 1,
    /// Head of a free block on a free list of its zone, or a frame that is free as a bit.
    BuddyFree = 2,
    /// Head of a block on a per-CPU list. Its tag may be [`Allocated`](Self::Allocated) instead, or zero: see [`Tag`].
    PerCpu = 3,
    /// Head of a block in transit between two structures. Only the thread that moves it has access to it.
    InTransit = 4,
    /// Head of an allocated block. Its tag may be [`PerCpu`](Self::PerCpu) instead, or zero: see [`Tag`].
    Allocated = 5,
    /// Head of a block taken off the free lists for a range operation.
    Isolated = 6,
    /// Head of a compound page of a device, or a base page of one; its users are counted
    /// ([`DevicePage`](crate::devices::DevicePage)).
    Device = 7,
    /// Found damaged while it was free; never allocated again.
    Poisoned = 8,
    /// Head of a block taken out of use ([`Yard::offline`](crate::Yard::offline)).
    Offline = 9,
    /// Head of an allocated block that a [`Frames`](crate::Frames) guard owns: only the guard can free it.
    Owned = 10,
    /// The page structure is not initialised yet. No tag has this state.
    Uninitialised = 11,
    /// Head of an allocated block whose owner counts its users ([`CountedPage`]). The last put frees it.
    Counted = 12,
    /// Head of a huge page of a pool ([`Yard::huge_pages`](crate::Yard::huge_pages)), free in the pool or handed out.
    /// Its users are counted, and it may be larger than a maximum-order block.
    Pooled = 13,
}

named!(FrameState: Interior => "interior", Reserved => "reserved", BuddyFree => "buddy-free", PerCpu => "per-cpu",
    InTransit => "in-transit", Allocated => "allocated", Isolated => "isolated", Device => "device", Poisoned => "poisoned",
    Offline => "offline", Owned => "owned", Uninitialised => "uninitialised", Counted => "counted", Pooled => "pooled");

/// The first word of a page: state, order, migration type and zone of the block that begins here.
///
/// | bits | meaning |
/// |---|---|
/// | 0–7 | [`FrameState`] |
/// | 8–15 | order of the block |
/// | 16–23 | migration type: of the free list that the block is on or was last removed from, or that it was allocated as |
/// | 24 | seen by the validator; clear at all other times |
/// | 25 | buddy-free: reported, the host has taken its memory; clear in all other states |
/// | 26 | buddy-free of order 0: freed without merging, so its buddy may be free too; clear in all other states |
/// | 27 | buddy-free of order 0: tentative, a transfer mechanism decides whether it is free; clear in all other states |
/// | 28–31 | unused, zero |
/// | 32–47 | [`ZoneId`] |
/// | 48–63 | unused, zero |
///
/// The tag contains the zone, so that one load and one comparison decide whether a buddy can be merged with.
///
/// When a block moves from a per-CPU list to a user and back, its page is not written. So in a tag,
/// [`Allocated`](FrameState::Allocated) and [`PerCpu`](FrameState::PerCpu) both mean only that the block has left its
/// zone. The allocation map tells the two apart, and has the type of an allocated block. A single frame may have no tag
/// at all. [`YardStats::frame`](crate::views::YardStats::frame) combines these sources.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Tag(u64);

impl Tag {
    /// The tag of a frame that is not a head.
    pub(crate) const INTERIOR: Self = Self(0);

    /// A tag of four parts.
    #[inline(always)]
    pub(crate) const fn new(state: FrameState, order: Order, migrate_type: MigrateType, zone: ZoneId) -> Self {
        Self(state as u64 | (order.0 as u64) << 8 | (migrate_type as u64) << 16 | (zone.0 as u64) << 32)
    }

    /// The word of the page.
    pub(crate) const fn bits(self) -> u64 {
        self.0
    }

    /// The state. An invalid number reads as [`FrameState::Interior`], which every check refuses.
    #[inline(always)]
    #[must_use]
    pub const fn state(self) -> FrameState {
        let bits = self.0 as u8 as usize;
        if bits < FrameState::ALL.len() { FrameState::ALL[bits] } else { FrameState::Interior }
    }

    /// Whether the tag has this state.
    #[inline(always)]
    #[must_use]
    pub const fn is(self, state: FrameState) -> bool {
        self.0 as u8 == state as u8
    }

    /// Whether the tag has this state and order.
    #[inline(always)]
    pub(crate) const fn is_block(self, state: FrameState, order: Order) -> bool {
        self.0 as u16 == state as u16 | (order.0 as u16) << 8
    }

    /// Whether this is a free block of that order in that zone, on any list, and not tentative. For a tentative block
    /// the tag alone does not decide whether it is free.
    #[inline(always)]
    pub(crate) const fn is_free_buddy(self, order: Order, zone: ZoneId) -> bool {
        let wanted = FrameState::BuddyFree as u64 | (order.0 as u64) << 8 | (zone.0 as u64) << 32;
        self.0 & !(0xff << 16 | Self::REPORTED | Self::SKIPPED) == wanted
    }

    /// The order of the block that begins here.
    #[inline(always)]
    #[must_use]
    pub const fn order(self) -> Order {
        Order((self.0 >> 8) as u8)
    }

    /// The tag, or that of a frame inside a block if no block of its order begins at that frame.
    #[inline(always)]
    pub(crate) fn of_block_at(self, pfn: Pfn, max_order: Order) -> Self {
        if self.order() <= max_order && pfn.is_aligned(self.order()) { self } else { Self::INTERIOR }
    }

    /// The migration type.
    #[inline(always)]
    #[must_use]
    pub const fn migrate_type(self) -> MigrateType {
        match MigrateType::from_bits((self.0 >> 16) as u8) {
            Some(migrate_type) => migrate_type,
            None => MigrateType::Unmovable,
        }
    }

    /// The zone.
    #[inline(always)]
    #[must_use]
    pub const fn zone(self) -> ZoneId {
        ZoneId((self.0 >> 32) as u16)
    }

    /// Whether state and migration type exist and all unused bits are clear. Ignores the validator's mark.
    pub(crate) const fn is_well_formed(self) -> bool {
        let known = Self::new(self.state(), self.order(), self.migrate_type(), self.zone());
        let known = if self.is(FrameState::BuddyFree) { known.with_residence(self.residence()) } else { known };
        self.without_seen().0 == known.0 | self.0 & self.mark_bits()
    }

    const REPORTED: u64 = 1 << 25;

    /// Where the bytes of a free block are.
    #[inline(always)]
    pub(crate) const fn residence(self) -> Residence {
        if self.0 & Self::REPORTED == 0 { Residence::Resident } else { Residence::Reported }
    }

    /// The same block with another residence.
    #[inline(always)]
    pub(crate) const fn with_residence(self, residence: Residence) -> Self {
        match residence {
            Residence::Resident => Self(self.0 & !Self::REPORTED),
            Residence::Reported => Self(self.0 | Self::REPORTED),
        }
    }

    const SEEN: u64 = 1 << 24;

    /// Whether the validator has met this block on a list.
    pub(crate) const fn is_seen(self) -> bool {
        self.0 & Self::SEEN != 0
    }

    pub(crate) const fn with_seen(self) -> Self {
        Self(self.0 | Self::SEEN)
    }

    pub(crate) const fn without_seen(self) -> Self {
        Self(self.0 & !Self::SEEN)
    }

    /// Whether this is the tag of a frame that is no head, or of a single frame without a tag; the validator may have marked it.
    #[inline(always)]
    pub(crate) const fn is_untagged(self) -> bool {
        self.0 & !Self::SEEN == 0
    }

    /// The same block in another state.
    #[inline(always)]
    pub(crate) const fn with_state(self, state: FrameState) -> Self {
        Self(self.0 & !0xff | state as u64)
    }

    /// The same block with another migration type.
    #[inline(always)]
    pub(crate) const fn with_migrate_type(self, migrate_type: MigrateType) -> Self {
        Self(self.0 & !(0xff << 16) | (migrate_type as u64) << 16)
    }

    /// Whether the tag has one of the two states between which a block changes without a write to its page.
    #[inline(always)]
    pub(crate) const fn has_left_zone(self) -> bool {
        self.is(FrameState::Allocated) || self.is(FrameState::PerCpu)
    }
}

impl fmt::Debug for Tag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {} {}", self.state(), self.order(), self.migrate_type(), self.zone())
    }
}

/// Payload words of a page: those behind tag and links.
pub(crate) const PAYLOAD_WORDS: usize = 6;
/// The payload word that names zone and section in kernel-like content.
pub(crate) const IDENTITY: usize = 0;
/// The payload word with the counts of references (low half) and mappings (high half), each relative to the map's content.
///
/// References differ from zero only in [`FrameState::Counted`], [`FrameState::Device`] and [`FrameState::Pooled`]. So a thread that has found a page by
/// number may try to take a reference, whatever the page is by then.
pub(crate) const COUNTS: usize = 1;
/// The payload word of a counted block's owner: the kind of owner in bits 0–7, the rest defined by the kind.
pub(crate) const OWNER: usize = 2;
/// The payload word with a counted block's place in its owner's object.
pub(crate) const INDEX: usize = 3;
/// The first of two payload words that a counted block's owner may use freely.
pub(crate) const SPARE: usize = 4;
/// The payload word of a transfer mechanism in a free page. Valid if the tag is tentative.
pub(crate) const MECHANISM: usize = 5;

/// The page structure of one frame: 64 bytes, one cache line. [`PAGE_WORDS`] lists the uses of each word.
#[repr(C, align(64))]
#[derive(Default)]
pub struct Page {
    /// The [`Tag`] of the block that begins here.
    tag: AtomicU64,
    /// Buddy-free, pooled and free: the next block on the list. Packed batch: the next batch of the chain. Counted: its
    /// owner's. 0: none.
    next: AtomicU32,
    /// Buddy-free: the previous block on the list (0: none). Packed batch: its number of frames. Counted: its
    /// owner's.
    prev: AtomicU32,
    /// Identity, counts, owner, index and two words more: see [`IDENTITY`], [`COUNTS`], [`OWNER`], [`INDEX`] and [`SPARE`].
    ///
    /// Packed batch: ten frame indices, in all words except the counts. Counted, device, pooled: the counts of users; owner, index and
    /// the spare words are its owner's. Buddy-free: the last word is a transfer mechanism's if the tag is
    /// tentative. In all other
    /// states the map's content: zero, or kernel-like.
    ///
    /// Kernel-like content stays the same from initialisation on:
    ///
    /// | word | bits | meaning |
    /// |---|---|---|
    /// | 0 | 0–31 | [`ZoneId`] plus 1; 0 in a hole |
    /// | 0 | 32–63 | number of the section |
    /// | 1 | 0–31 | reference count, 0 as in the kernel's free pages |
    /// | 1 | 32–63 | map count, which begins at -1 as the kernel's: all ones |
    /// | 2–5 | | zero |
    payload: [AtomicU64; PAYLOAD_WORDS],
}

#[cfg(not(loom))]
const _: () = assert!(size_of::<Page>() == 64 && align_of::<Page>() == 64, "a page structure is one cache line");

#[cfg(loom)]
impl Page {
    /// Writes all words, in the order in which they lie in memory.
    pub(crate) fn reset(&self, words: &[u64; PAYLOAD_WORDS + 2]) {
        let [tag, links, payload @ ..] = words;
        self.tag.store(*tag, Ordering::Relaxed);
        let [low, high] = [*links as u32, (*links >> 32) as u32];
        let (next, prev) = if cfg!(target_endian = "big") { (high, low) } else { (low, high) };
        self.next.store(next, Ordering::Relaxed);
        self.prev.store(prev, Ordering::Relaxed);
        for (word, value) in self.payload.iter().zip(payload) {
            word.store(*value, Ordering::Relaxed);
        }
    }
}

impl fmt::Debug for Page {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&Tag(self.tag.load(Ordering::Relaxed)), f)
    }
}

/// A frame's place in the memory map plus one, so that 0 means "none". All links and lists are made of these.
///
/// Valid in every view of a yard: [`CountedBlocks::link`](crate::views::CountedBlocks::link) and
/// [`CountedBlocks::linked`](crate::views::CountedBlocks::linked) translate.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct FrameLink(pub(crate) u32);

pub(crate) use FrameLink as Link;

impl FrameLink {
    /// No frame.
    pub const NONE: Self = Self(0);

    /// The number, to be stored in a word.
    #[inline(always)]
    #[must_use]
    pub const fn bits(self) -> u32 {
        self.0
    }

    /// The link that was stored as that number.
    #[inline(always)]
    #[must_use]
    pub const fn from_bits(bits: u32) -> Self {
        Self(bits)
    }
}

/// Access to the page structure of one frame.
///
/// Copyable. Holds a pointer, never a slice, because neighbours may lie in holes. All accesses are `Relaxed`: the lock of the
/// structure that the frame is on orders them, or the frame has a single owner.
pub(crate) struct PageRef<'a, P, N = Pfn> {
    page: NonNull<Page>,
    name: N,
    platform: &'a P,
}

impl<P, N: Copy> Clone for PageRef<'_, P, N> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<P, N: Copy> Copy for PageRef<'_, P, N> {}

/// What a [`PageRef`] knows of its frame's number.
pub(crate) trait FrameName: Copy {
    /// The number, for a probe that sees pages.
    fn for_probe(self) -> Pfn;
}

impl FrameName for Pfn {
    #[inline(always)]
    fn for_probe(self) -> Pfn {
        self
    }
}

/// The number of a frame whose page structure was found by its place: right only where a probe sees it.
#[derive(Clone, Copy)]
pub(crate) struct ProbedName(pub(crate) Pfn);

impl FrameName for ProbedName {
    #[inline(always)]
    fn for_probe(self) -> Pfn {
        self.0
    }
}

impl<P: Platform> PageRef<'_, P> {
    /// The frame.
    #[inline(always)]
    pub(crate) fn pfn(&self) -> Pfn {
        self.name
    }
}

impl<'a, P: Platform, N: FrameName> PageRef<'a, P, N> {
    /// # Safety
    ///
    /// `page` points to the page structure of the frame of that name, which stays mapped for `'a`.
    #[inline(always)]
    pub(crate) unsafe fn new(page: NonNull<Page>, name: N, platform: &'a P) -> Self {
        Self { page, name, platform }
    }

    /// The environment that the page belongs to.
    #[inline(always)]
    pub(crate) fn platform(&self) -> &'a P {
        self.platform
    }

    #[inline(always)]
    fn announce(&self, access: Access) {
        let probe = self.platform.probe();
        if probe.sees_pages() {
            probe.touch_page(self.name.for_probe(), access);
        }
    }

    #[inline(always)]
    fn words(&self, access: Access) -> &'a Page {
        self.announce(access);
        // SAFETY: by the contract of `new` the pointer is valid for 'a. A page is all atomics, so a shared reference allows
        // concurrent changes.
        unsafe { self.page.as_ref() }
    }

    #[inline(always)]
    pub(crate) fn tag(&self) -> Tag {
        Tag(self.words(Access::Read).tag.load(Ordering::Relaxed))
    }

    /// As [`tag`](Self::tag), as one of several reads whose values the caller uses only after the last of them.
    #[inline(always)]
    pub(crate) fn tag_ahead(&self) -> Tag {
        Tag(self.words(Access::ReadAhead).tag.load(Ordering::Relaxed))
    }

    #[inline(always)]
    pub(crate) fn set_tag(&self, tag: Tag) {
        self.words(Access::Write).tag.store(tag.0, Ordering::Relaxed);
    }

    /// Changes the tag if it is still `current`.
    ///
    /// Relaxed: the locks of the lists that the frame passes through order its bytes, not its tag.
    #[inline(always)]
    pub(crate) fn replace_tag(&self, current: Tag, new: Tag) -> Result<(), Tag> {
        let word = &self.words(Access::ReadModifyWrite).tag;
        match word.compare_exchange(current.0, new.0, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => Ok(()),
            Err(found) => Err(Tag(found)),
        }
    }

    #[inline(always)]
    pub(crate) fn next(&self) -> Link {
        Link(self.words(Access::Read).next.load(Ordering::Relaxed))
    }

    #[inline(always)]
    pub(crate) fn set_next(&self, link: Link) {
        self.words(Access::Write).next.store(link.0, Ordering::Relaxed);
    }

    #[inline(always)]
    pub(crate) fn prev(&self) -> Link {
        Link(self.words(Access::Read).prev.load(Ordering::Relaxed))
    }

    #[inline(always)]
    pub(crate) fn set_prev(&self, link: Link) {
        self.words(Access::Write).prev.store(link.0, Ordering::Relaxed);
    }

    #[inline(always)]
    pub(crate) fn payload(&self, word: usize) -> u64 {
        self.words(Access::Read).payload[word].load(Ordering::Relaxed)
    }

    #[inline(always)]
    pub(crate) fn set_payload(&self, word: usize, value: u64) {
        self.words(Access::Write).payload[word].store(value, Ordering::Relaxed);
    }

    /// A payload word itself, for atomic changes.
    #[inline(always)]
    fn payload_word(&self, word: usize, access: Access) -> &'a AtomicU64 {
        &self.words(access).payload[word]
    }

    /// Whether all words except the tag are fresh, as in every state that uses no other word.
    pub(crate) fn rest_is(&self, fresh: PageTemplate) -> bool {
        let page = self.words(Access::Read);
        page.next.load(Ordering::Relaxed) == 0 && page.prev.load(Ordering::Relaxed) == 0 && self.payload_is(fresh)
    }

    /// Whether all payload words are fresh.
    pub(crate) fn payload_is(&self, fresh: PageTemplate) -> bool {
        self.first_payload_is(fresh, PAYLOAD_WORDS)
    }

    /// As [`payload_is`](Self::payload_is), for the first `words` payload words.
    pub(crate) fn first_payload_is(&self, fresh: PageTemplate, words: usize) -> bool {
        let payload = &self.words(Access::Read).payload[..words];
        payload.iter().zip(fresh.payload()).all(|(word, fresh)| word.load(Ordering::Relaxed) == fresh)
    }

    /// A hint that this page will be written soon.
    #[inline(always)]
    pub(crate) fn prefetch(&self) {
        self.announce(Access::Prefetch);
        crate::platform::prefetch(self.page.as_ptr().cast_const());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::{NodeId, ZoneKind};

    #[test]
    fn a_tag_returns_its_parts() {
        let zone = ZoneId::new(NodeId(7), ZoneKind::Normal);
        for state in FrameState::ALL {
            let tag = Tag::new(state, Order(10), MigrateType::Reclaimable, zone);
            assert_eq!(tag.state(), state);
            assert!(tag.is_block(state, Order(10)) && !tag.is_block(state, Order(9)));
            assert_eq!((tag.order(), tag.migrate_type(), tag.zone()), (Order(10), MigrateType::Reclaimable, zone));
        }
    }

    #[test]
    fn a_buddy_is_recognised_on_any_list_of_its_own_zone() {
        let zone = ZoneId::new(NodeId(1), ZoneKind::Normal);
        let other = ZoneId::new(NodeId(0), ZoneKind::Normal);
        for migrate_type in MigrateType::ALL {
            let tag = Tag::new(FrameState::BuddyFree, Order(3), migrate_type, zone);
            assert!(tag.is_free_buddy(Order(3), zone));
            assert!(!tag.is_free_buddy(Order(4), zone));
            assert!(!tag.is_free_buddy(Order(3), other));
            assert!(!tag.with_state(FrameState::PerCpu).is_free_buddy(Order(3), zone));
            assert!(tag.with_residence(Residence::Reported).is_free_buddy(Order(3), zone));
        }
        assert!(!Tag::INTERIOR.is_free_buddy(Order(0), ZoneId(0)));
    }

    #[test]
    fn only_free_blocks_are_reported() {
        let tag = Tag::new(FrameState::BuddyFree, Order(3), MigrateType::Movable, ZoneId(0));
        let reported = tag.with_residence(Residence::Reported);
        assert_eq!((tag.residence(), reported.residence()), (Residence::Resident, Residence::Reported));
        assert_eq!(reported.with_residence(Residence::Resident), tag);
        assert!(tag.is_well_formed() && reported.is_well_formed());
        assert!(!reported.with_state(FrameState::Allocated).is_well_formed());
    }

    #[test]
    fn an_unknown_state_number_is_never_a_head() {
        assert_eq!(Tag(0xfe).state(), FrameState::Interior);
    }
}
