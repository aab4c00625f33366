//! The page structure: one 64-byte line of atomics for each page frame, and what each word means in each state.
//!
//! An all-zero [`Page`] is valid and means [`FrameState::Interior`]: a frame covered by a block whose head is
//! elsewhere, or a frame never touched. Only the head of a block says anything, so merging, splitting and
//! freeing a whole block touch the heads alone, and fresh zeroed memory is an initialised memory map.
//!
//! Words are reached through `PageRef`, which tells the platform of every access.

use core::fmt;
use core::ptr::NonNull;

use crate::platform::{Access, Platform};
use crate::sync::{AtomicU32, AtomicU64, Ordering};
use crate::units::{MigrateType, Order, Pfn, ZoneId};

pub(crate) mod content;
mod counted;
mod interior;
#[cfg_attr(not(feature = "policy-clusters"), expect(dead_code, reason = "for clusters, which are not compiled in"))]
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

/// What a frame is, right now. A frame is in exactly one state at a time.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum FrameState {
    /// Covered by a block whose head is elsewhere, in a hole, or never touched.
    Interior = 0,
    /// Head of a block that was never given to the allocator.
    Reserved = 1,
    /// Head of a free block on a free list of its zone.
    BuddyFree = 2,
    /// Head of a block on a per-CPU list. Its page may say [`Allocated`](Self::Allocated) as well: see [`Tag`].
    PerCpu = 3,
    /// Head of a block on its way between two owners; only the thread that moves it knows it.
    InTransit = 4,
    /// Head of an allocated block. Its page may say [`PerCpu`](Self::PerCpu) as well: see [`Tag`].
    Allocated = 5,
    /// Head of a block taken off the free lists for a range operation.
    Isolated = 6,
    /// Head of a page of a device, or a page of its own: counts its users ([`DevicePage`](crate::devices::DevicePage)).
    Device = 7,
    /// Found damaged while it was free; never handed out again.
    Poisoned = 8,
    /// Taken out of the yard.
    Offline = 9,
    /// Head of an allocated block that a [`Frames`](crate::Frames) owns: nobody else can free it.
    Owned = 10,
    /// Its page structure is not initialised yet. Never stands in a page: there is no page to look at.
    Uninitialised = 11,
    /// Head of an allocated block whose owner counts its users ([`CountedPage`]): the last one frees it.
    Counted = 12,
    /// Head of a free block that a transfer mechanism holds: on the lists of a CPU that owns its pageblock
    /// ([`ZonePolicy::OwnedBlocks`](crate::policy::ZonePolicy::OwnedBlocks)).
    HeldFree = 13,
}

impl FrameState {
    /// All states, by number.
    pub const ALL: [Self; 14] = [
        Self::Interior,
        Self::Reserved,
        Self::BuddyFree,
        Self::PerCpu,
        Self::InTransit,
        Self::Allocated,
        Self::Isolated,
        Self::Device,
        Self::Poisoned,
        Self::Offline,
        Self::Owned,
        Self::Uninitialised,
        Self::Counted,
        Self::HeldFree,
    ];

    /// The name used in tables and messages.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Interior => "interior",
            Self::Reserved => "reserved",
            Self::BuddyFree => "buddy-free",
            Self::PerCpu => "per-cpu",
            Self::InTransit => "in-transit",
            Self::Allocated => "allocated",
            Self::Isolated => "isolated",
            Self::Device => "device",
            Self::Poisoned => "poisoned",
            Self::Offline => "offline",
            Self::Owned => "owned",
            Self::Uninitialised => "uninitialised",
            Self::Counted => "counted",
            Self::HeldFree => "held-free",
        }
    }
}

impl fmt::Display for FrameState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// The first word of a page: state, order, migration type and zone of the block that begins here.
///
/// | bits | meaning |
/// |---|---|
/// | 0–7 | [`FrameState`] |
/// | 8–15 | order of the block |
/// | 16–23 | migration type: of the free list that a block is on or was last taken from, or that it was allocated as |
/// | 24 | seen by the validator; clear at all other times |
/// | 25 | buddy-free: reported, so the host has its bytes; clear in all other states |
/// | 26 | buddy-free of order 0: freed without merging, so its buddy may be free, too; clear in all other states |
/// | 27 | buddy-free of order 0: in a cluster, which a word of the page names; clear in all other states |
/// | 28–31 | unused, zero |
/// | 32–47 | [`ZoneId`] |
/// | 48–63 | unused, zero |
///
/// The zone stands in the tag so that one load and one comparison decide whether a buddy can be merged with.
///
/// A block goes from a per-CPU list to who allocates it and back without a write to its page. So the states
/// [`Allocated`](FrameState::Allocated) and [`PerCpu`](FrameState::PerCpu) say the same here: the block has left its zone.
/// Which of both it is, and the type that it is allocated as, is said by the byte of its head in the table of what is
/// handed out. [`YardStats::frame`](crate::views::YardStats::frame) puts both together.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Tag(u64);

impl Tag {
    /// The tag of a frame that is no head of anything.
    pub(crate) const INTERIOR: Self = Self(0);

    /// A tag of those four parts.
    #[inline(always)]
    pub(crate) const fn new(state: FrameState, order: Order, migrate_type: MigrateType, zone: ZoneId) -> Self {
        Self(state as u64 | (order.0 as u64) << 8 | (migrate_type as u64) << 16 | (zone.0 as u64) << 32)
    }

    /// The word as it stands in a page.
    pub(crate) const fn bits(self) -> u64 {
        self.0
    }

    /// The state; a number that is no state reads as [`FrameState::Interior`], which every check refuses.
    #[inline(always)]
    #[must_use]
    pub const fn state(self) -> FrameState {
        let bits = self.0 as u8 as usize;
        if bits < FrameState::ALL.len() { FrameState::ALL[bits] } else { FrameState::Interior }
    }

    /// Whether the tag says exactly this state.
    #[inline(always)]
    #[must_use]
    pub const fn is(self, state: FrameState) -> bool {
        self.0 as u8 == state as u8
    }

    /// Whether state and order are these.
    #[inline(always)]
    pub(crate) const fn is_block(self, state: FrameState, order: Order) -> bool {
        self.0 as u16 == state as u16 | (order.0 as u16) << 8
    }

    /// Whether this is a free block of that order in that zone, on whichever list, and in no cluster: of one that is in a
    /// cluster the tag alone does not say whether it is free.
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

    /// Whether state and migration type exist and all unused bits are clear; the validator's mark is not looked at.
    pub(crate) const fn is_well_formed(self) -> bool {
        let known = Self::new(self.state(), self.order(), self.migrate_type(), self.zone());
        let known = if self.is(FrameState::BuddyFree) { known.with_residence(self.residence()) } else { known };
        self.without_seen().0 == known.0 | self.0 & self.listing_bits()
    }

    const REPORTED: u64 = 1 << 25;

    /// Where the bytes of a free block are.
    #[inline(always)]
    pub(crate) const fn residence(self) -> Residence {
        if self.0 & Self::REPORTED == 0 { Residence::Resident } else { Residence::Reported }
    }

    /// A free block whose bytes are there.
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

    /// Whether the tag says one of the two states between which a block changes without a write to its page.
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

/// How many free words a page has behind tag and links.
pub(crate) const PAYLOAD_WORDS: usize = 6;
/// The payload word that names zone and section in kernel-like content.
pub(crate) const IDENTITY: usize = 0;
/// The payload word with the counts of references (low half) and mappings (high half), each relative to the map's content.
///
/// References differ from zero in no state but [`FrameState::Counted`] and [`FrameState::Device`]. So whoever has found a page by number may try to
/// take a reference whatever has become of it since.
pub(crate) const COUNTS: usize = 1;
/// The payload word that says what a counted block is to its owner: its kind in bits 0–7, the rest as the kind wants it.
pub(crate) const OWNER: usize = 2;
/// The payload word that says where in its object a counted block is.
pub(crate) const INDEX: usize = 3;
/// The first of two payload words that a counted block's owner may use as it likes.
pub(crate) const SPARE: usize = 4;
/// The payload word that names the cluster of a free page: its number in the zone plus 1, where the tag says that it is in
/// one.
pub(crate) const CLUSTER: usize = 5;

/// The structure of one page frame: 64 bytes, a cache line of its own. See [`PAGE_WORDS`] for each word's uses.
#[repr(C, align(64))]
#[derive(Default)]
pub struct Page {
    /// [`Tag`]: what begins here.
    tag: AtomicU64,
    /// Buddy-free, held-free: the next block on the list. Packed batch: the next batch of the chain. Counted: its owner's. 0: none.
    next: AtomicU32,
    /// Buddy-free, held-free: the previous block on the list (0: none). Packed batch: how many frames it has. Counted: its owner's.
    prev: AtomicU32,
    /// Identity, counts, owner, index and two words more: see [`IDENTITY`], [`COUNTS`], [`OWNER`], [`INDEX`] and [`SPARE`].
    ///
    /// Packed batch: ten frame indices, in every word but the counts. Counted, device: the counts of users; owner, index and the
    /// spare words are its owner's. Buddy-free: the last word names the page's cluster, if it is in one. In every other
    /// state what the map's content says: zero, or kernel-like.
    ///
    /// Kernel-like content is the same from bring-up on, whatever begins at the frame:
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

/// A frame's place in the memory map plus one, so that 0 can mean "none"; what links and lists hold.
///
/// The same in every view of a yard: [`CountedBlocks::link`](crate::views::CountedBlocks::link) and [`CountedBlocks::linked`](crate::views::CountedBlocks::linked) translate.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct FrameLink(pub(crate) u32);

pub(crate) use FrameLink as Link;

impl FrameLink {
    /// No frame.
    pub const NONE: Self = Self(0);

    /// The number, to be kept in a word.
    #[inline(always)]
    #[must_use]
    pub const fn bits(self) -> u32 {
        self.0
    }

    /// The link with that number.
    #[inline(always)]
    #[must_use]
    pub const fn from_bits(bits: u32) -> Self {
        Self(bits)
    }
}

/// Access to the page structure of one frame.
///
/// Copyable; holds a pointer, never a slice, for neighbours may lie in holes. All words are accessed with
/// `Relaxed` ordering: what a word means to whom is decided by the lock of the structure that the frame is
/// on, or by the exclusive ownership of whoever changes it.
pub(crate) struct PageRef<'a, P> {
    page: NonNull<Page>,
    pfn: Pfn,
    platform: &'a P,
}

impl<P> Clone for PageRef<'_, P> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<P> Copy for PageRef<'_, P> {}

impl<'a, P: Platform> PageRef<'a, P> {
    /// # Safety
    ///
    /// `page` points to the page structure of `pfn`, which stays mapped for `'a`.
    #[inline(always)]
    pub(crate) unsafe fn new(page: NonNull<Page>, pfn: Pfn, platform: &'a P) -> Self {
        Self { page, pfn, platform }
    }

    /// The environment that the page belongs to.
    #[inline(always)]
    pub(crate) fn platform(&self) -> &'a P {
        self.platform
    }

    /// The frame.
    #[inline(always)]
    pub(crate) fn pfn(&self) -> Pfn {
        self.pfn
    }

    #[inline(always)]
    fn words(&self, access: Access) -> &'a Page {
        self.platform.touch_page(self.pfn, access);
        // SAFETY: by the contract of `new` the pointer is valid for 'a; a page is all atomics, so a shared
        // reference is fine whoever else uses it.
        unsafe { self.page.as_ref() }
    }

    #[inline(always)]
    pub(crate) fn tag(&self) -> Tag {
        Tag(self.words(Access::Read).tag.load(Ordering::Relaxed))
    }

    /// As [`tag`](Self::tag), before others like it, and before any of them is looked at.
    #[inline(always)]
    pub(crate) fn tag_ahead(&self) -> Tag {
        Tag(self.words(Access::ReadAhead).tag.load(Ordering::Relaxed))
    }

    #[inline(always)]
    pub(crate) fn set_tag(&self, tag: Tag) {
        self.words(Access::Write).tag.store(tag.0, Ordering::Relaxed);
    }

    /// Changes the tag if it still is `current`.
    ///
    /// Relaxed: the frame's bytes are not ordered by its tag, but by the locks of the lists it passes through.
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

    /// A payload word itself, for who changes it together with others.
    #[inline(always)]
    fn payload_word(&self, word: usize, access: Access) -> &'a AtomicU64 {
        &self.words(access).payload[word]
    }

    /// Whether every word but the tag is as when the page was initialised, as in every state that uses no other word.
    pub(crate) fn rest_is(&self, fresh: PageTemplate) -> bool {
        let page = self.words(Access::Read);
        page.next.load(Ordering::Relaxed) == 0 && page.prev.load(Ordering::Relaxed) == 0 && self.payload_is(fresh)
    }

    /// Whether every word behind tag and links is as when the page was initialised.
    pub(crate) fn payload_is(&self, fresh: PageTemplate) -> bool {
        self.first_payload_is(fresh, PAYLOAD_WORDS)
    }

    /// As [`payload_is`](Self::payload_is), for the first words of the payload alone.
    pub(crate) fn first_payload_is(&self, fresh: PageTemplate, words: usize) -> bool {
        let payload = &self.words(Access::Read).payload[..words];
        payload.iter().zip(fresh.payload()).all(|(word, fresh)| word.load(Ordering::Relaxed) == fresh)
    }

    /// A hint that this page will be written soon.
    #[inline(always)]
    pub(crate) fn prefetch(&self) {
        self.platform.touch_page(self.pfn, Access::Prefetch);
        #[cfg(target_arch = "x86_64")]
        // SAFETY: a prefetch never faults and changes nothing that can be observed, whatever the address.
        unsafe {
            use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            _mm_prefetch::<{ _MM_HINT_T0 }>(self.page.as_ptr().cast_const().cast());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::{NodeId, ZoneKind};

    #[test]
    fn a_tag_gives_back_its_parts() {
        let zone = ZoneId::new(NodeId(7), ZoneKind::Normal);
        for state in FrameState::ALL {
            let tag = Tag::new(state, Order(10), MigrateType::Reclaimable, zone);
            assert_eq!(tag.state(), state);
            assert!(tag.is_block(state, Order(10)) && !tag.is_block(state, Order(9)));
            assert_eq!((tag.order(), tag.migrate_type(), tag.zone()), (Order(10), MigrateType::Reclaimable, zone));
        }
    }

    #[test]
    fn a_buddy_is_recognised_on_any_list_of_its_zone_alone() {
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
