//! Counted pages: reference counts and owner words in the page structures of blocks whose owner counts their users.
//!
//! # Protocol
//!
//! A block is [`FrameState::Counted`] from `CountedBlocks::init_refs` until it is freed. Only its word of counts grants
//! access:
//!
//! - The thread that calls `init_refs` owns the block. It writes the owner's words, then the counts (Release). A thread
//!   that gets a reference with [`try_get`](CountedPage::try_get) (Acquire) sees them.
//! - While a thread has a reference, the block is not freed, so its tag and order do not change. A thread without a
//!   reference may read all words, which may change at any time, and may try to get a reference.
//! - After the last [`put`](CountedPage::put) (Release, then Acquire) no thread can get a reference. The thread that
//!   put the last one owns the block and frees it.
//! - [`freeze`](CountedPage::freeze) sets the counts to zero if they are exactly the expected ones. The caller then
//!   owns the block, as after the last put, until it is unfrozen (the kernel's `folio_ref_freeze`). Moves of blocks use
//!   this.
//!
//! Only counted blocks have references: packed per-CPU batches do not use the word, and in fresh memory it has none. So
//! on any initialised page, whatever it was before, `try_get` either fails or gets a reference to a counted block.

use core::fmt;

use crate::page::{COUNTS, FrameState, INDEX, Link, OWNER, PageRef, SPARE, Tag};
use crate::platform::{Access, Platform, copied_views};
use crate::sync::{AtomicU32, AtomicU64, Ordering};
use crate::units::{Pfn, messages};

/// The users of a counted block.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Counts {
    /// All users: mappings, caches, batches in progress, and threads that access the block.
    pub references: u32,
    /// Page-table entries that map the block. Each of them is also a reference.
    pub mappings: u32,
}

impl Counts {
    const MAPPING: u64 = 1 << 32;

    const fn bits(self) -> u64 {
        self.references as u64 | (self.mappings as u64) << 32
    }

    const fn from_bits(bits: u64) -> Self {
        Self { references: bits as u32, mappings: (bits >> 32) as u32 }
    }
}

/// A caller put more references or mappings than there were. Nothing has changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReferenceUnderflow {
    /// The frame.
    pub pfn: Pfn,
    /// Its users.
    pub counts: Counts,
}

messages!(ReferenceUnderflow {
    Self { pfn, counts: Counts { references, mappings } } =>
        "{pfn} has {references} references and {mappings} mappings: more were released"
});

/// A change of the counts gives up after this number of failed exchanges one behind the other. CPUs do not reach it; a process that
/// writes to the word all the time does.
const MOST_TRIES: u32 = 1 << 20;

/// Why an exchange of the counts failed.
enum Failed {
    /// The change is not possible from these counts.
    Refused(Counts),
    /// The word has changed meanwhile: what it is now.
    Changed(u64),
}

/// The page structure of a block whose owner counts its users. It is `Copy`, and valid as long as the view of the yard.
///
/// Any number of threads may have one. Access follows the protocol in the module's documentation. The owner words are
/// written by the thread that owns the block, or by any thread that follows the owner's own protocol.
pub struct CountedPage<'a, P> {
    page: PageRef<'a, P>,
    /// The word of counts without users.
    no_users: u64,
}

copied_views!(CountedPage);

impl<P> fmt::Debug for CountedPage<'_, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("CountedPage").field(&self.page.name).finish()
    }
}

impl<'a, P: Platform> CountedPage<'a, P> {
    #[inline(always)]
    pub(crate) fn new(page: PageRef<'a, P>, no_users: u64) -> Self {
        Self { page, no_users }
    }

    /// Whether a counted block begins here. Unless the caller has a reference, this may change at any time.
    #[inline(always)]
    #[must_use]
    pub fn is_counted(&self) -> bool {
        self.tag().is(FrameState::Counted)
    }

    #[inline(always)]
    fn decoded(&self, bits: u64) -> Counts {
        Counts::from_bits(bits.wrapping_sub(self.no_users))
    }

    #[inline(always)]
    fn encoded(&self, counts: Counts) -> u64 {
        counts.bits().wrapping_add(self.no_users)
    }

    /// The users, possibly stale.
    #[inline(always)]
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.decoded(self.page.payload(COUNTS))
    }

    /// Sets the counts of a block that the caller owns.
    #[inline(always)]
    pub fn set_counts(&self, counts: Counts) {
        // Release: pairs with the Acquire in `CountedPage::try_get`.
        self.page.payload_word(COUNTS, Access::Write).store(self.encoded(counts), Ordering::Release);
    }

    /// Changes the counts as `change` says, unless that is `None`. Gives up after [`MOST_TRIES`].
    #[inline(always)]
    pub(super) fn change(
        &self,
        order: Ordering,
        change: impl Fn(Counts) -> Option<Counts> + Copy,
    ) -> Result<Counts, Counts> {
        let word = self.page.payload_word(COUNTS, Access::ReadModifyWrite);
        self.try_change(word, word.load(Ordering::Relaxed), order, change).or_else(|failed| match failed {
            Failed::Refused(counts) => Err(counts),
            Failed::Changed(found) => self.change_again(word, found, order, change),
        })
    }

    /// Tries once to change the counts.
    #[inline(always)]
    fn try_change(
        &self,
        word: &AtomicU64,
        found: u64,
        order: Ordering,
        change: impl Fn(Counts) -> Option<Counts>,
    ) -> Result<Counts, Failed> {
        let counts = self.decoded(found);
        let changed = change(counts).ok_or(Failed::Refused(counts))?;
        let exchanged = word.compare_exchange_weak(found, self.encoded(changed), order, Ordering::Relaxed);
        exchanged.map(|_| changed).map_err(Failed::Changed)
    }

    /// The tries after the first.
    #[cold]
    fn change_again(
        &self,
        word: &AtomicU64,
        mut found: u64,
        order: Ordering,
        change: impl Fn(Counts) -> Option<Counts>,
    ) -> Result<Counts, Counts> {
        for _ in 1..MOST_TRIES {
            match self.try_change(word, found, order, &change) {
                Ok(changed) => return Ok(changed),
                Err(Failed::Refused(counts)) => return Err(counts),
                Err(Failed::Changed(other)) => found = other,
            }
        }
        Err(self.decoded(found))
    }

    /// Gets a reference if there is one already (`get_page_unless_zero`). Works on any initialised page.
    #[inline]
    #[must_use]
    pub fn try_get(&self) -> bool {
        // Acquire: pairs with the Release in `CountedPage::set_counts`.
        self.change(Ordering::Acquire, |counts| {
            let references = counts.references.checked_add(1).filter(|_| counts.references > 0)?;
            Some(Counts { references, ..counts })
        })
        .is_ok()
    }

    /// Gets another reference; the caller has one already.
    #[inline(always)]
    pub fn get(&self) {
        self.page.payload_word(COUNTS, Access::ReadModifyWrite).fetch_add(1, Ordering::Relaxed);
    }

    /// Gets another reference, for a new mapping; the caller has one already.
    #[inline(always)]
    pub fn map(&self) {
        let word = self.page.payload_word(COUNTS, Access::ReadModifyWrite);
        word.fetch_add(1 + Counts::MAPPING, Ordering::Relaxed);
    }

    /// Puts a reference; returns the number left. At 0 the caller owns the block and must free it.
    ///
    /// # Errors
    ///
    /// [`ReferenceUnderflow`] if there was none.
    #[inline]
    pub fn put(&self) -> Result<u32, ReferenceUnderflow> {
        self.give_back(|counts| Some(Counts { references: counts.references.checked_sub(1)?, ..counts }))
    }

    /// Puts the reference of a removed mapping; returns the number of references left. At 0 the caller must free the
    /// block.
    ///
    /// # Errors
    ///
    /// [`ReferenceUnderflow`] if there was no mapping.
    #[inline]
    pub fn unmap(&self) -> Result<u32, ReferenceUnderflow> {
        self.give_back(|counts| {
            let (references, mappings) = (counts.references.checked_sub(1)?, counts.mappings.checked_sub(1)?);
            Some(Counts { references, mappings })
        })
    }

    #[inline(always)]
    pub(super) fn give_back(
        &self,
        change: impl Fn(Counts) -> Option<Counts> + Copy,
    ) -> Result<u32, ReferenceUnderflow> {
        // AcqRel: pairs with itself in `CountedPage::give_back`: what each user did to the block happens before the caller that
        // puts the last reference frees it.
        match self.change(Ordering::AcqRel, change) {
            Ok(counts) => Ok(counts.references),
            Err(counts) => Err(ReferenceUnderflow { pfn: self.pfn(), counts }),
        }
    }

    /// Sets the counts to zero if they are exactly the expected ones; returns whether they were. The caller then owns
    /// the block.
    ///
    /// This lasts until the caller [unfreezes](Self::unfreeze) the block or frees it
    /// ([`CountedBlocks::free`](crate::views::CountedBlocks::free)).
    #[inline]
    #[must_use]
    pub fn freeze(&self, expected: Counts) -> bool {
        let word = self.page.payload_word(COUNTS, Access::ReadModifyWrite);
        let (from, to) = (self.encoded(expected), self.encoded(Counts::default()));
        // Acquire: pairs with the Release in `CountedPage::give_back`. Release: pairs with the Acquire in `CountedPage::try_get`.
        word.compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Ends the exclusive use of a block: sets its counts to `counts`.
    #[inline]
    pub fn unfreeze(&self, counts: Counts) {
        self.set_counts(counts);
    }

    /// The owner's word: the kind of owner in bits 0–7. Acquire.
    #[inline(always)]
    #[must_use]
    pub fn owner(&self) -> u64 {
        // Acquire: pairs with the Release in `CountedPage::set_owner` and `CountedPage::replace_owner`.
        self.page.payload_word(OWNER, Access::Read).load(Ordering::Acquire)
    }

    /// Sets the owner's word. Release.
    #[inline(always)]
    pub fn set_owner(&self, word: u64) {
        // Release: pairs with the Acquire in `CountedPage::owner`.
        self.page.payload_word(OWNER, Access::Write).store(word, Ordering::Release);
    }

    /// Sets bits of the owner's word; returns the old word. Acquire and Release, so a bit can serve as a lock.
    #[inline(always)]
    pub fn set_owner_bits(&self, bits: u64) -> u64 {
        // AcqRel: pairs with itself in `CountedPage::clear_owner_bits`, and with the Acquire in `CountedPage::owner`.
        self.page.payload_word(OWNER, Access::ReadModifyWrite).fetch_or(bits, Ordering::AcqRel)
    }

    /// Clears bits of the owner's word; returns the old word. Acquire and Release.
    #[inline(always)]
    pub fn clear_owner_bits(&self, bits: u64) -> u64 {
        // AcqRel: pairs with itself in `CountedPage::set_owner_bits`, and with the Acquire in `CountedPage::owner`.
        self.page.payload_word(OWNER, Access::ReadModifyWrite).fetch_and(!bits, Ordering::AcqRel)
    }

    /// Replaces the owner's word if it is `expected`. Acquire and Release.
    ///
    /// # Errors
    ///
    /// The word found.
    #[inline(always)]
    pub fn replace_owner(&self, expected: u64, word: u64) -> Result<(), u64> {
        let owner = self.page.payload_word(OWNER, Access::ReadModifyWrite);
        // AcqRel, and Acquire on failure: pairs with the Release in `CountedPage::set_owner` and with the Acquire in
        // `CountedPage::owner`.
        owner.compare_exchange(expected, word, Ordering::AcqRel, Ordering::Acquire).map(|_| ())
    }

    /// One of the two spare words (0 or 1), for an owner that uses it as a counter.
    #[inline(always)]
    #[must_use]
    pub fn spare_word(&self, word: usize) -> &'a AtomicU64 {
        assert!(word < 2, "a page has two spare words");
        self.page.payload_word(SPARE + word, Access::ReadModifyWrite)
    }

    /// The second link, as a lock word for owners that do not use it for lists.
    #[inline(always)]
    #[must_use]
    pub fn lock_word(&self) -> &'a AtomicU32 {
        &self.page.words(Access::ReadModifyWrite).prev
    }

    /// Resets links and owner's words to their values before `init_refs`. The caller owns the block.
    #[inline(always)]
    pub(crate) fn clear(&self) {
        self.set_next(Link::NONE);
        self.set_prev(Link::NONE);
        for word in OWNER..SPARE + 2 {
            self.page.set_payload(word, 0);
        }
    }
}

/// Declares methods of [`CountedPage`] that call one of its page structure.
macro_rules! forwarded {
    ($($(#[$attribute:meta])+ $vis:vis fn $name:ident($($argument:ident: $type:ty),*) $(-> $result:ty)? => $call:ident($($value:expr),*);)+) => {
        impl<'a, P: Platform> CountedPage<'a, P> {
            $($(#[$attribute])+ #[inline(always)] $vis fn $name(&self $(, $argument: $type)*) $(-> $result)? {
                self.page.$call($($value),*)
            })+
        }
    };
}

forwarded! {
    /// The frame.
    #[must_use]
    pub fn pfn() -> Pfn => pfn();

    /// State, order, migration type and zone of the block that begins here; fixed while the caller has a reference.
    ///
    /// For other than counted blocks this is the raw tag, which does not distinguish an allocated block from one on a per-CPU list:
    /// use [`YardStats::frame`](crate::views::YardStats::frame) or [`YardStats::is_allocated`](crate::views::YardStats::is_allocated).
    #[must_use]
    pub fn tag() -> Tag => tag();

    /// The block's place in its owner's object.
    #[must_use]
    pub fn index() -> u64 => payload(INDEX);

    /// Sets the block's place in its owner's object.
    pub fn set_index(index: u64) => set_payload(INDEX, index);

    /// One of the two spare words, 0 or 1.
    #[must_use]
    pub fn spare(word: usize) -> u64 => payload(SPARE + word);

    /// Sets one of the two spare words, 0 or 1.
    pub fn set_spare(word: usize, value: u64) => set_payload(SPARE + word, value);

    /// The first link, for lists of the owner.
    #[must_use]
    pub fn next() -> Link => next();

    /// Sets the first link.
    pub fn set_next(link: Link) => set_next(link);

    /// The second link, for lists of the owner.
    #[must_use]
    pub fn prev() -> Link => prev();

    /// Sets the second link.
    pub fn set_prev(link: Link) => set_prev(link);

    /// A hint that this page will be written soon.
    pub fn prefetch() => prefetch();

    /// Replaces the tag if it is still `current`; else the tag found.
    pub(crate) fn replace_tag(current: Tag, new: Tag) -> Result<(), Tag> => replace_tag(current, new);

    /// Sets the tag of a block that the caller owns.
    pub(crate) fn set_tag(tag: Tag) => set_tag(tag);
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use core::ptr::NonNull;

    use super::*;
    use crate::page::Page;
    use crate::platform::plain::Plain;

    #[test]
    fn a_change_gives_up_if_another_process_writes_the_counts_all_the_time() {
        let structure = Page::default();
        // SAFETY: the structure outlives the page.
        let page = CountedPage::new(unsafe { PageRef::new(NonNull::from(&structure), Pfn(0), &Plain) }, 0);
        let writer = |counts: Counts| {
            page.get();
            Some(counts)
        };
        let found = page.change(Ordering::Relaxed, writer).expect_err("each exchange fails");
        assert_eq!(found, Counts { references: MOST_TRIES, mappings: 0 });
        assert!(page.try_get(), "the next change succeeds");
    }
}
