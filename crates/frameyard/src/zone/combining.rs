//! Combined frees: CPUs that free single frames of draining pageblocks do not wait for each other.
//!
//! A frame freed in a draining pageblock goes to the free lists at once, which takes the zone lock. So a free pushes its frame on a
//! stack of the zone, and then tries the lock. Each holder of the lock frees the frames on the stack before it drops the lock: its
//! own, and those of CPUs whose try failed. (Flat combining, after Hendler, Incze, Shavit and Tzafrir.)
//!
//! # Protocol
//!
//! *Push* links the frame to the old top and exchanges the top word, with Release. *Take* exchanges the top word for none, with Acquire,
//! under the zone lock: the holder finds the frames as those that pushed them left them. All changes of the word are exchanges, so a take
//! acquires every push below the top, too. A link cannot be stale: only the holder of the lock takes, and it takes all.
//!
//! A free whose try fails just after the holder has emptied the stack leaves its frame there until the next hold of the lock.
//! [`ZoneView::finish_waiting_frees`] is for code that has to find every free frame, and for the end of the policy.
//!
//! # Bounds
//!
//! A free that finds [`MOST`] frames on the stack waits for the lock. So a holder frees at most that many frames, and one for each CPU,
//! before it drops the lock. These frames are in transit: neither allocated nor counted as free.

use super::view::{LockedZone, ZoneView};
use crate::memmap::Located;
use crate::page::Link;
use crate::platform::{Access, LineKind, Platform, SharedLine};
use crate::sync::{AtomicU64, Ordering};
use crate::units::{Order, Pfn};

/// The most frames on the stack before a free waits for the lock.
const MOST: u64 = 64;

/// The top word holds the link to the frame on top in bits 0 to 31, and the number of frames above that.
const COUNT_SHIFT: u32 = u32::BITS;

impl<'a, P: Platform> ZoneView<'a, P> {
    /// Frees a single frame of a draining pageblock, which the caller owns: see the [module](self).
    #[cold]
    #[inline(never)]
    pub(super) fn free_combined(self, pfn: Pfn) {
        let below = self.push_waiting(pfn);
        // Holders of a zone that heals no more leave the stack alone.
        let may_leave = below < MOST && self.zone.heals();
        let locked = if may_leave { self.try_lock() } else { self.lock().ok() };
        locked.into_iter().for_each(|mut locked| locked.free_waiting());
    }

    /// Frees the frames that wait for a holder of the zone lock, as far as they were pushed before.
    pub(crate) fn finish_waiting_frees(self) {
        if self.has_waiting_racy() {
            self.lock().into_iter().for_each(|mut locked| locked.free_waiting());
        }
    }

    fn has_waiting_racy(self) -> bool {
        self.top_for(Access::Read).load(Ordering::Relaxed) != 0
    }

    /// The top word, which is about to be used.
    fn top_for(self, access: Access) -> &'a AtomicU64 {
        let stack = &self.zone.healing.waiting;
        self.platform.touch_line(SharedLine::of(LineKind::Mechanism, stack), access);
        &stack.top
    }

    /// Pushes a frame. Returns how many are below.
    fn push_waiting(self, pfn: Pfn) -> u64 {
        let (frame, top) = (pfn.place(&self.map), self.top_for(Access::ReadModifyWrite));
        let mut found = top.load(Ordering::Relaxed);
        loop {
            self.page(frame).set_next(Link(found as u32));
            let below = found >> COUNT_SHIFT;
            let pushed = u64::from(frame.link().0) | below.wrapping_add(1) << COUNT_SHIFT;
            // Release: pairs with the Acquire in `take_waiting`.
            match top.compare_exchange_weak(found, pushed, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => return below,
                Err(other) => found = other,
            }
        }
    }
}

impl<P: Platform> LockedZone<'_, P> {
    /// Frees the frames on the stack.
    #[inline]
    pub(super) fn free_waiting(&mut self) {
        if self.has_waiting_racy() {
            self.take_waiting();
        }
    }

    #[cold]
    fn take_waiting(&mut self) {
        // An exchange for none; models exchange words of two values alone. Acquire: pairs with the Release in `push_waiting`.
        let found = self.top_for(Access::ReadModifyWrite).fetch_and(0, Ordering::Acquire);
        let mut next = Link(found as u32);
        // A neighbour may have written the word and the links: the walk ends, and stays in the map.
        for _ in 0..(found >> COUNT_SHIFT).min(self.map.places()) {
            let Some(frame) = self.map.next(next) else { return self.note_corrupt() };
            let page = self.page(frame);
            next = page.next();
            page.set_next(Link::NONE);
            self.free_by_type(frame, Order::ZERO);
            self.count_direct_free(Order::ZERO);
        }
    }
}
