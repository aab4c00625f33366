//! Pages of devices that become interior again.

use crate::page::{PageRef, PageTemplate, Tag};
use crate::platform::{Access, Platform};
use crate::sync::Ordering;

impl<P: Platform> PageRef<'_, P> {
    /// Makes the page interior. The caller owns it; other threads may read it.
    pub(crate) fn become_interior(&self, fresh: PageTemplate) {
        let page = self.words(Access::Write);
        page.tag.store(Tag::INTERIOR.bits(), Ordering::Relaxed);
        page.next.store(0, Ordering::Relaxed);
        page.prev.store(0, Ordering::Relaxed);
        for (word, fresh) in page.payload.iter().zip(fresh.payload()) {
            word.store(fresh, Ordering::Relaxed);
        }
    }
}
