//! Several references at once on pages of devices, by who may or may not find a page there.

use super::{COUNTS, PageRef, PageTemplate, Tag};
use crate::platform::{Access, Platform};
use crate::sync::Ordering;
use crate::units::Pfn;

impl<'a, P: Platform> PageRef<'a, P> {
    /// Gets so many references where there is one already. Writes nothing where there is none, and touches the line for
    /// writing only where there is: on some machines even an exchange that fails writes.
    ///
    /// `no_users` is what the word holds where there are none. Acquire: pairs with the Release of who has set the counts.
    #[inline(always)]
    pub(crate) fn try_get_references(&self, count: u32, no_users: u64) -> bool {
        let mut found = self.payload(COUNTS);
        loop {
            let references = found.wrapping_sub(no_users) as u32;
            if references == 0 || references.checked_add(count).is_none() {
                return false;
            }
            let word = self.payload_word(COUNTS, Access::ReadModifyWrite);
            let changed = found.wrapping_add(u64::from(count));
            match word.compare_exchange_weak(found, changed, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => return true,
                Err(other) => found = other,
            }
        }
    }

    /// Gives so many references back, which the caller has.
    #[inline(always)]
    pub(crate) fn put_references(&self, count: u32) {
        // Release: what was done under the references is done before whoever freezes the page has it.
        self.payload_word(COUNTS, Access::ReadModifyWrite).fetch_sub(u64::from(count), Ordering::Release);
    }

    /// Gives so many references back, but not the last one; how many are left.
    pub(crate) fn try_put_references(&self, count: u32, no_users: u64) -> Result<u32, ()> {
        let word = self.payload_word(COUNTS, Access::ReadModifyWrite);
        let mut found = word.load(Ordering::Relaxed);
        loop {
            let references = found.wrapping_sub(no_users) as u32;
            let left = references.checked_sub(count).filter(|left| *left > 0 || count == 0).ok_or(())?;
            let changed = found.wrapping_sub(u64::from(count));
            match word.compare_exchange_weak(found, changed, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => return Ok(left),
                Err(other) => found = other,
            }
        }
    }

    /// Makes the page one in which nothing begins. The caller has it alone; others may read it.
    pub(crate) fn become_interior(&self, fresh: PageTemplate) {
        let page = self.words(Access::Write);
        page.tag.store(Tag::INTERIOR.bits(), Ordering::Relaxed);
        page.next.store(0, Ordering::Relaxed);
        page.prev.store(0, Ordering::Relaxed);
        for (word, fresh) in page.payload.iter().zip(fresh.payload()) {
            word.store(fresh, Ordering::Relaxed);
        }
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
}
