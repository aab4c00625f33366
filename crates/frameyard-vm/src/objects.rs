//! Small objects of a few words, in frames of the yard: spaces, areas, files and nodes of file trees.
//!
//! Each kind has its own frames, divided into slots. The page of a frame has a bit per free slot. Frames with free slots are
//! linked, so that no creation looks at a full frame: in both directions by `next` and `prev`, or, for a stable kind, as a
//! stack by `prev`, because there `next` links all frames. An [`ObjectId`] is the link of the frame and the slot, equal in every view.
//!
//! Frames of [stable](ObjectKind::is_stable) kinds are never freed while the root exists. A stale [`ObjectId`] of a
//! stable kind therefore leads to an object of that kind, possibly a different or dead one, and the object's own words
//! tell which. A user of an id of another kind must know that the object is alive.
//!
//! # Protocol
//!
//! The lock of a kind guards its record and the bits and links of its frames. The owner of an object guards the
//! object's words. They are zero when the object is created. Only a caller with exclusive access may delete an object.

use frameyard::page::{CountedPage, FrameLink};
use frameyard::platform::{LockError, LockId};
use frameyard::sync::Ordering;
use frameyard::{Order, Pfn, Platform};

use crate::block::state_words;
use crate::error::{Damage, VmError, VmValidateError};
use crate::inject::Step;
use crate::lock::Held;
use crate::object_id::{ObjectId, ObjectKind};
use crate::page::{PageKind, owner_word};
use crate::vm::Vm;
use crate::words::Words;

/// Words of a kind's record.
const LOCK: usize = 0;
/// First frame with a free slot, or first of all frames for a stable kind.
const FIRST: usize = 8;
const FRAMES: usize = 9;
const LIVE: usize = 10;
/// First frame with a free slot, of a stable kind.
const OPEN: usize = 11;

/// The step that makes an object.
const fn step_of(kind: ObjectKind) -> Step {
    match kind {
        ObjectKind::Space => Step::MakeSpace,
        ObjectKind::Area => Step::MakeArea,
        ObjectKind::File => Step::MakeFile,
        ObjectKind::CacheNode => Step::MakeCacheNode,
    }
}

/// Spare word of a frame's page with one bit per free slot.
const FREE_SLOTS: usize = 0;

impl<'y, P: Platform> Vm<'y, P> {
    fn slots(&self, kind: ObjectKind) -> usize {
        let words = self.yard().geometry().page_size().0 as usize / size_of::<u64>();
        (words / kind.words()).min(64)
    }

    fn lock_objects(&self, kind: ObjectKind) -> Result<Held<'y, P>, LockError> {
        let record = self.root().objects(kind as usize);
        Held::lock(self.yard().platform(), LockId::ObjectTable(kind as u32), record.lock_word(LOCK))
    }

    /// One bit for each slot of a frame.
    fn all_slots(&self, kind: ObjectKind) -> u64 {
        u64::MAX >> (64 - self.slots(kind))
    }

    /// The page of a frame of objects that a link names; `None` for no link, and for one that leads elsewhere.
    fn objects_page(&self, kind: ObjectKind, link: FrameLink) -> Option<CountedPage<'y, P>> {
        let is_of_kind = |page: &CountedPage<'y, P>| {
            page.owner() == owner_word(PageKind::Objects, ObjectId::NONE, 0) && page.index() == kind as u64
        };
        let page = self.linked_page(link).filter(is_of_kind);
        if page.is_none() && link != FrameLink::NONE {
            self.damaged(Damage::Object);
        }
        page
    }

    /// Creates an object with all words zero.
    pub(crate) fn new_object(&self, kind: ObjectKind) -> Result<ObjectId, VmError> {
        self.may_fail(step_of(kind))?;
        if let Some(id) = self.take_slot(kind)? {
            return Ok(id);
        }
        let owner = owner_word(PageKind::Objects, ObjectId::NONE, 0);
        let pfn = self.alloc_state(owner, kind as u64, Step::AllocateObjects)?;
        let page = self.page(pfn);
        let all = self.all_slots(kind);
        // Take the first slot before the frame becomes visible to other CPUs.
        page.set_spare(FREE_SLOTS, all & !1);
        let held = self.lock_objects(kind).inspect_err(|_| self.free_state(page))?;
        let record = self.root().objects(kind as usize);
        record.at(FRAMES).fetch_add(1, Ordering::Relaxed);
        record.at(LIVE).fetch_add(1, Ordering::Relaxed);
        if all != 1 || kind.is_stable() {
            self.link_frame(kind, page);
        }
        if all != 1 && kind.is_stable() {
            self.open_frame(kind, page);
        }
        drop(held);
        Ok(ObjectId::new(self.yard().counted().link(pfn), 0))
    }

    fn take_slot(&self, kind: ObjectKind) -> Result<Option<ObjectId>, VmError> {
        let _held = self.lock_objects(kind)?;
        let record = self.root().objects(kind as usize);
        let with_free_slots = record.at(if kind.is_stable() { OPEN } else { FIRST });
        let first = FrameLink::from_bits(with_free_slots.load(Ordering::Relaxed) as u32);
        if first == FrameLink::NONE {
            return Ok(None);
        }
        let page = self.objects_page(kind, first).ok_or(VmError::Damaged(Damage::Object))?;
        let free = page.spare(FREE_SLOTS) & self.all_slots(kind);
        // A listed frame has a free slot.
        let left = free & free.checked_sub(1).ok_or_else(|| self.damaged(Damage::Object))?;
        page.set_spare(FREE_SLOTS, left);
        match (left == 0, kind.is_stable()) {
            (true, true) => with_free_slots.store(u64::from(page.prev().bits()), Ordering::Relaxed),
            (true, false) => self.unlink_frame(kind, page),
            _ => {}
        }
        record.at(LIVE).fetch_add(1, Ordering::Relaxed);
        Ok(Some(ObjectId::new(first, u64::from(free.trailing_zeros()))))
    }

    /// Adds a frame of a stable kind to those with a free slot.
    fn open_frame(&self, kind: ObjectKind, page: CountedPage<'y, P>) {
        let open = self.root().objects(kind as usize).at(OPEN);
        page.set_prev(FrameLink::from_bits(open.load(Ordering::Relaxed) as u32));
        open.store(u64::from(self.yard().counted().link(page.pfn()).bits()), Ordering::Relaxed);
    }

    fn link_frame(&self, kind: ObjectKind, page: CountedPage<'y, P>) {
        let first = self.root().objects(kind as usize).at(FIRST);
        let old = FrameLink::from_bits(first.load(Ordering::Relaxed) as u32);
        let link = self.yard().counted().link(page.pfn());
        page.set_next(old);
        if !kind.is_stable() {
            page.set_prev(FrameLink::NONE);
            if let Some(next) = self.linked_page(old) {
                next.set_prev(link);
            }
        }
        // Release: pairs with the Acquire in `listed_frames`, which runs without the kind's lock.
        first.store(u64::from(link.bits()), Ordering::Release);
    }

    fn unlink_frame(&self, kind: ObjectKind, page: CountedPage<'y, P>) {
        let (next, prev) = (page.next(), page.prev());
        match self.linked_page(prev) {
            Some(prev) => prev.set_next(next),
            None => {
                let first = self.root().objects(kind as usize).at(FIRST);
                first.store(u64::from(next.bits()), Ordering::Relaxed);
            }
        }
        if let Some(next) = self.linked_page(next) {
            next.set_prev(prev);
        }
        page.set_next(FrameLink::NONE);
        page.set_prev(FrameLink::NONE);
    }

    /// The words of an object. An id from shared memory may be any number: whatever it is, the words lie in a frame of the yard.
    #[inline]
    pub(crate) fn object(&self, kind: ObjectKind, id: ObjectId) -> Result<Words<'y>, VmError> {
        self.try_object(kind, id).ok_or_else(|| self.damaged(Damage::Object))
    }

    #[inline(always)]
    fn try_object(&self, kind: ObjectKind, id: ObjectId) -> Option<Words<'y>> {
        let pfn = self.yard().counted().linked(id.frame())?;
        state_words(self.yard(), pfn, Order::ZERO)?.try_part(id.slot() * kind.words(), kind.words())
    }

    /// Deletes an object. The caller has exclusive access.
    ///
    /// If the lock of the kind cannot be taken, or the id is damaged, the slot is lost.
    pub(crate) fn delete_object(&self, kind: ObjectKind, id: ObjectId) {
        let (Ok(words), Some(page)) = (self.object(kind, id), self.objects_page(kind, id.frame())) else { return };
        (0..words.len()).for_each(|word| words.at(word).store(0, Ordering::Relaxed));
        let Ok(held) = self.lock_objects(kind) else { return };
        let record = self.root().objects(kind as usize);
        let before = page.spare(FREE_SLOTS) & self.all_slots(kind);
        if before >> id.slot() & 1 != 0 {
            // An object is deleted once.
            self.damaged(Damage::Object);
            return;
        }
        let free = before | 1 << id.slot();
        page.set_spare(FREE_SLOTS, free);
        record.at(LIVE).fetch_sub(1, Ordering::Relaxed);
        if kind.is_stable() {
            if before == 0 {
                self.open_frame(kind, page);
            }
            return;
        }
        let is_empty = free == self.all_slots(kind);
        match (before == 0, is_empty) {
            (true, false) => self.link_frame(kind, page),
            (false, true) => self.unlink_frame(kind, page),
            _ => {}
        }
        if is_empty {
            record.at(FRAMES).fetch_sub(1, Ordering::Relaxed);
            drop(held);
            self.free_state(page);
        }
    }

    /// The number of live objects of a kind.
    pub(crate) fn live_objects(&self, kind: ObjectKind) -> u64 {
        self.root().objects(kind as usize).at(LIVE).load(Ordering::Relaxed)
    }

    /// The objects of a stable kind, live or not.
    pub(crate) fn stable_objects(&self, kind: ObjectKind) -> impl Iterator<Item = ObjectId> {
        debug_assert!(kind.is_stable());
        self.listed_frames(kind).flat_map(move |page| {
            let link = self.yard().counted().link(page.pfn());
            (0..self.slots(kind) as u64).map(move |slot| ObjectId::new(link, slot))
        })
    }

    fn listed_frames(&self, kind: ObjectKind) -> impl Iterator<Item = CountedPage<'y, P>> {
        // Acquire: pairs with the Release in `link_frame`. A frame found is zeroed and linked to the earlier ones.
        let mut at = FrameLink::from_bits(self.root().objects(kind as usize).at(FIRST).load(Ordering::Acquire) as u32);
        let pages = core::iter::from_fn(move || {
            let page = self.objects_page(kind, at)?;
            at = page.next();
            Some(page)
        });
        pages.take(self.frames_of(kind))
    }

    /// The number of frames of a kind, at most all frames of the yard.
    fn frames_of(&self, kind: ObjectKind) -> usize {
        let frames = self.root().objects(kind as usize).at(FRAMES).load(Ordering::Relaxed);
        usize::try_from(frames).unwrap_or(usize::MAX).min(self.most_frames())
    }

    /// The frames of a stable kind with free slots. Requires quiescence.
    fn open_frames(&self, kind: ObjectKind) -> impl Iterator<Item = CountedPage<'y, P>> {
        let mut at = FrameLink::from_bits(self.root().objects(kind as usize).at(OPEN).load(Ordering::Relaxed) as u32);
        let pages = core::iter::from_fn(move || {
            let page = self.objects_page(kind, at)?;
            at = page.prev();
            Some(page)
        });
        pages.take(self.frames_of(kind))
    }

    /// Frees the frames of stable kinds once all their objects are dead.
    pub(crate) fn free_stable_frames(&self) {
        for kind in ObjectKind::ALL.into_iter().filter(|kind| kind.is_stable()) {
            let record = self.root().objects(kind as usize);
            for _ in 0..self.frames_of(kind) {
                let Some(page) = ({ self.listed_frames(kind).next() }) else { break };
                record.at(FIRST).store(u64::from(page.next().bits()), Ordering::Relaxed);
                record.at(FRAMES).fetch_sub(1, Ordering::Relaxed);
                self.free_state(page);
            }
            record.at(OPEN).store(u64::from(FrameLink::NONE.bits()), Ordering::Relaxed);
        }
    }

    /// Recounts the objects of the kinds whose frames are all listed. Requires quiescence.
    pub(crate) fn validate_objects(&self) -> Result<(), VmValidateError> {
        for kind in ObjectKind::ALL {
            let (mut used, mut open) = (0, 0);
            for page in self.listed_frames(kind) {
                if PageKind::of_word(page.owner()) != Some(PageKind::Objects) || page.index() != kind as u64 {
                    return Err(VmValidateError::Frame {
                        pfn: page.pfn(),
                        what: "is listed as a frame of objects and has another kind or owner",
                    });
                }
                used +=
                    self.slots(kind) as u64 - u64::from((page.spare(FREE_SLOTS) & self.all_slots(kind)).count_ones());
                open += u64::from(page.spare(FREE_SLOTS) != 0 && kind.is_stable());
            }
            let found =
                self.open_frames(kind).take(1 + open as usize).filter(|page| page.spare(FREE_SLOTS) != 0).count()
                    as u64;
            if found != open {
                return Err(VmValidateError::Count { what: "frames with free slots", kept: open, found });
            }
            let kept = self.live_objects(kind);
            // Frames without a free slot are on no list, unless the kind is stable.
            if used > kept || (kind.is_stable() && used != kept) {
                return Err(VmValidateError::Count { what: kind.name(), kept, found: used });
            }
        }
        Ok(())
    }
}

/// Frames of small objects, for cost accounting.
impl<P: Platform> Vm<'_, P> {
    /// The number of frames with small objects.
    #[must_use]
    pub fn object_frames(&self) -> frameyard::PageCount {
        let frames = |kind: ObjectKind| self.root().objects(kind as usize).at(FRAMES).load(Ordering::Relaxed);
        frameyard::PageCount(ObjectKind::ALL.into_iter().map(frames).fold(0, u64::wrapping_add))
    }

    /// Whether a frame never moves, because it contains small objects, page tables or the root.
    #[must_use]
    pub fn is_fixed(&self, pfn: Pfn) -> bool {
        self.try_page(pfn).is_some_and(|page| {
            let kind = PageKind::of_word(page.owner());
            page.is_counted() && matches!(kind, Some(PageKind::Objects | PageKind::PageTable | PageKind::Root))
        })
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
