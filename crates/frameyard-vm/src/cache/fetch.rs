//! Pages enter the tree: look-up, creation, fill, and readahead.

use frameyard::owners::Ownership;
use frameyard::page::Counts;
use frameyard::{Gfp, Order, Pfn, Platform};

use super::error::FileError;
use super::file::FileRef;
use super::mapped::is_mapped;
use super::page_lock::{LockedPage, PageUse};
use super::readahead::{Cause, MAX_WINDOW, Stream, Window};
use super::tree::{Inserted, Spare, Tree};
use crate::counters::VmCounter;
use crate::error::{Damage, VmError};
use crate::inject::Step;
use crate::page::{Flags, PageKind, object_of, owner_word};

/// The pages that may enter the tree.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Limit {
    /// Pages inside the file.
    Size,
    /// Any page: the caller holds the size lock and extends the file.
    None,
}

/// The result of adding a page.
enum Place<'y, P: Platform> {
    /// The caller's page was added: locked, and not up to date.
    Made(LockedPage<'y, P>),
    /// A page exists.
    Taken(PageUse<'y, P>),
    /// The page is behind the end of the file.
    Behind,
}

const GFP: Gfp = Gfp::HIGHUSER_MOVABLE;
/// No caller waits for these pages (the kernel's `readahead_gfp_mask`).
const GFP_AHEAD: Gfp = GFP.union(Gfp::NORETRY).union(Gfp::NOWARN);

impl<'y, P: Platform> FileRef<'y, P> {
    /// The number of pages of a file of that size.
    pub(super) fn pages_of(&self, size: u64) -> u64 {
        size.div_ceil(self.vm().yard().geometry().page_size().0)
    }

    /// The page with that number, if it exists.
    pub(super) fn lookup(&self, index: u64) -> Result<Option<PageUse<'y, P>>, VmError> {
        let tree = self.lock()?;
        let Some(pfn) = tree.find(index) else { return Ok(None) };
        self.use_page(&tree, index, pfn).map(Some)
    }

    /// A reference of a page in the tree. The tree's reference keeps the page while the lock is held.
    pub(super) fn use_page(&self, _tree: &Tree<'y, P>, index: u64, pfn: Pfn) -> Result<PageUse<'y, P>, VmError> {
        let vm = self.vm();
        let page = vm.found_page(pfn)?;
        let word = page.owner();
        if PageKind::of_word(word) != Some(PageKind::Cache) || object_of(word) != self.object() || page.index() != index
        {
            return Err(vm.damaged(Damage::File));
        }
        page.get();
        Ok(PageUse::of(vm, page, self.lock_id()))
    }

    /// Adds a new page, locked and not up to date, if there is none.
    fn make(&self, index: u64, gfp: Gfp, limit: Limit) -> Result<Place<'y, P>, VmError> {
        let vm = self.vm();
        let pfn = vm.alloc_frames(Order::ZERO, gfp, Step::AllocateCachePage)?.into_pfn();
        let owner = owner_word(PageKind::Cache, self.object(), 0);
        let counts = Counts { references: 1, mappings: 0 };
        vm.yard().counted().init_refs(pfn, Order::ZERO, Ownership { counts, owner, index })?;
        let page = vm.page(pfn);
        // The only user, unless it enters the tree.
        let locked = LockedPage::created(vm, page, self.lock_id());
        let mut spare = Spare::new(vm);
        // Terminates: spare nodes only accumulate, and a path of the highest tree always suffices.
        loop {
            let mut tree = self.lock()?;
            if limit == Limit::Size && index >= self.pages_of(tree.size()) {
                return Ok(Place::Behind);
            }
            match tree.insert(index, pfn, &mut spare)? {
                Inserted::Done => {
                    // One reference for the tree, one for the batch.
                    page.get();
                    page.get();
                    break;
                }
                Inserted::Occupied(found) => {
                    return self.use_page(&tree, index, found).map(Place::Taken);
                }
                Inserted::Lacking(nodes) => {
                    drop(tree);
                    spare.fill(nodes)?;
                }
            }
        }
        vm.lru_add(page);
        vm.count(VmCounter::PgcacheAdd, 1);
        Ok(Place::Made(locked))
    }

    /// Fills a locked page if it is not up to date. If the store fails, removes the page from the file.
    pub(super) fn fill(&self, page: &mut LockedPage<'y, P>) -> Result<(), FileError> {
        if page.is(Flags::UPTODATE) {
            return Ok(());
        }
        let index = page.page().index();
        let filled = page.bytes().with(|bytes| self.fill_bytes(index, 0, bytes));
        match filled.map_err(FileError::from).and_then(|filled| Ok(filled?)) {
            Ok(()) => {
                page.set(Flags::UPTODATE);
                Ok(())
            }
            Err(problem) => {
                // A mapped page stays in the tree. The next access fills it.
                if !is_mapped(page.page()) {
                    self.remove_page(page)?;
                }
                Err(problem)
            }
        }
    }

    /// Removes a locked page from the tree, dirty or not.
    fn remove_page(&self, page: &LockedPage<'y, P>) -> Result<(), VmError> {
        self.remove_from(self.lock()?, page)
    }

    /// Removes the last page of the file and moves the file's end before it, unless a space maps it.
    pub(super) fn truncate_page(&self, page: &LockedPage<'y, P>, end: u64) -> Result<(), VmError> {
        if is_mapped(page.page()) {
            return Err(VmError::InUse("a page behind the new end is mapped: unmap it first"));
        }
        let mut tree = self.lock()?;
        tree.set_size(end);
        self.remove_from(tree, page)
    }

    fn remove_from(&self, mut tree: Tree<'y, P>, page: &LockedPage<'y, P>) -> Result<(), VmError> {
        let page = page.page();
        // A locked page that was not truncated is in the tree.
        if tree.remove(page.index()) != Some(page.pfn()) {
            return Err(self.vm().damaged(Damage::File));
        }
        drop(tree);
        page.set_owner_bits(Flags::TRUNCATED);
        // The tree's reference. The caller has another.
        match page.put() {
            Ok(left) if left > 0 => Ok(()),
            _ => Err(self.vm().damaged(Damage::Frame)),
        }
    }

    /// Locks a page that is or was in the tree; `None` if it has left the tree.
    pub(super) fn lock_page(&self, used: PageUse<'y, P>) -> Result<Option<LockedPage<'y, P>>, VmError> {
        let locked = used.lock()?;
        Ok(if locked.is(Flags::TRUNCATED) { None } else { Some(locked) })
    }

    /// The locked page with that number, for a write, up to date or not. `None` if it was just removed or is behind the
    /// end: retry.
    pub(super) fn page_to_write(&self, index: u64, limit: Limit) -> Result<Option<LockedPage<'y, P>>, FileError> {
        let vm = self.vm();
        if let Some(used) = self.lookup(index)? {
            vm.count(VmCounter::PgcacheHit, 1);
            return Ok(self.lock_page(used)?);
        }
        vm.count(VmCounter::PgcacheMiss, 1);
        match self.make(index, GFP, limit)? {
            Place::Made(page) => Ok(Some(page)),
            Place::Taken(used) => Ok(self.lock_page(used)?),
            Place::Behind => Ok(None),
        }
    }

    /// The locked and filled page with that number, the first of `requested`, for a read. `None` as for
    /// [`page_to_write`](Self::page_to_write).
    pub(super) fn page_to_read(
        &self,
        index: u64,
        requested: u64,
        stream: &Stream,
    ) -> Result<Option<LockedPage<'y, P>>, FileError> {
        let vm = self.vm();
        let used = match self.lookup(index)? {
            Some(used) => {
                vm.count(VmCounter::PgcacheHit, 1);
                self.read_on(&used, requested, stream);
                used
            }
            None => {
                vm.count(VmCounter::PgcacheMiss, 1);
                let window = stream.plan(index, requested, Cause::Miss);
                let mut page = match self.make(index, GFP, Limit::Size)? {
                    Place::Made(page) => page,
                    Place::Taken(used) => return self.up_to_date(used),
                    Place::Behind => return Ok(None),
                };
                self.fill(&mut page)?;
                if window.pages <= 1 {
                    return Ok(Some(page));
                }
                // The request covers the whole window: its first page has the mark and is being read.
                if window.mark() == Some(index) {
                    page.set(Flags::READAHEAD);
                }
                // Unlock the page while the rest of the window is read.
                let used = page.unlock();
                self.fetch_window(window, index);
                self.read_on(&used, requested, stream);
                used
            }
        };
        self.up_to_date(used)
    }

    fn up_to_date(&self, used: PageUse<'y, P>) -> Result<Option<LockedPage<'y, P>>, FileError> {
        let Some(mut page) = self.lock_page(used)? else { return Ok(None) };
        self.fill(&mut page)?;
        Ok(Some(page))
    }

    /// Reads the next window if this page is marked.
    fn read_on(&self, used: &PageUse<'y, P>, requested: u64, stream: &Stream) {
        let page = used.page();
        let marked = |owner: u64| owner & Flags::READAHEAD != 0;
        if !marked(page.owner()) || !marked(page.clear_owner_bits(Flags::READAHEAD)) {
            return;
        }
        let index = page.index();
        let hole = if stream.expects(index) {
            Some(index.saturating_add(1))
        } else {
            // Without the lock there is no readahead.
            let Ok(tree) = self.lock() else { return };
            (index.saturating_add(1)..=index.saturating_add(MAX_WINDOW)).find(|next| tree.find(*next).is_none())
        };
        // The next window is already in memory.
        let Some(hole) = hole else { return };
        let window = stream.plan(index, requested, Cause::Mark(hole));
        self.fetch_window(window, index);
    }

    /// Reads the missing pages of a window, except one. Errors are ignored: a later read of such a page returns them.
    fn fetch_window(&self, window: Window, except: u64) {
        let vm = self.vm();
        let end = window.end().min(self.pages_of(self.size()));
        let mut fetched = 0;
        for index in (window.start..end).filter(|index| *index != except) {
            let there = { self.lock().map(|tree| tree.find(index).is_some()) };
            match there {
                Ok(true) => continue,
                Ok(false) => {}
                Err(_) => break,
            }
            match self.make(index, GFP_AHEAD, Limit::Size) {
                Ok(Place::Made(mut page)) => {
                    if window.mark() == Some(index) {
                        page.set(Flags::READAHEAD);
                    }
                    if self.fill(&mut page).is_err() {
                        break;
                    }
                    fetched += 1;
                }
                Ok(Place::Taken(_)) => {}
                Ok(Place::Behind) | Err(_) => break,
            }
        }
        vm.count(VmCounter::PgcacheReadahead, fetched);
    }
}
