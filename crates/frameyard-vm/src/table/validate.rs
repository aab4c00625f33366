//! Validation of page tables and their mappings.

use frameyard::page::{CountedPage, Counts, references_of_pins};
use frameyard::{Pfn, Platform};

use super::{ENTRIES, Entry, HUGE, Level, Table, TableUse, deposited_in, table_index};
use crate::address::{VirtAddr, VirtRange};
use crate::area::{Area, MapKind, Protection, Sharing};
use crate::error::{VmError, VmValidateError};
use crate::file_id::FileId;
use crate::page::{Flags, PageKind, object_of};
use crate::space::{SpaceRef, SpaceWord};
use crate::vm::Vm;

fn wrong(pfn: Pfn, what: &'static str) -> VmValidateError {
    VmValidateError::Frame { pfn, what }
}

fn equal(what: &'static str, kept: u64, found: u64) -> Result<(), VmValidateError> {
    if kept == found { Ok(()) } else { Err(VmValidateError::Count { what, kept, found }) }
}

impl<'y, P: Platform> SpaceRef<'y, P> {
    /// Recounts the page tables and their mappings in a quiet space: the equations above, each entry inside an area of
    /// its kind, and each page with the right place and number of mappings.
    pub(crate) fn validate_tables(&self) -> Result<(), VmValidateError> {
        use frameyard::sync::Ordering::Relaxed;
        let found = self.validate_below(self.root_of_tables()?, Level::ROOT, 0)?;
        equal("page tables of a space", self.word(SpaceWord::PAGE_TABLES).load(Relaxed), found)?;
        for at in 0..SpaceWord::LEAF_COUNT {
            let known = self.word(SpaceWord::LEAVES + at).load(Relaxed);
            let addr = known >> 32 << Level::HUGE.shift();
            if known == 0 {
                continue;
            }
            let spot = self.walk_from_top(addr)?;
            let link = u64::from(self.vm().yard().counted().link(spot.table.pfn).bits());
            if spot.level != Level::SMALL || link != known & u64::from(u32::MAX) {
                return Err(wrong(spot.table.pfn, "is not the cached table of its addresses"));
            }
        }
        Ok(())
    }

    /// Recounts a table and those below it; returns their number, including deposited ones.
    fn validate_below(&self, table: Table<'y>, level: Level, base: u64) -> Result<u64, VmValidateError> {
        let page = self.table_page(table.pfn, table_index(level, base))?;
        let (mut found, mut tables) = (TableUse::default(), 1);
        for index in 0..ENTRIES {
            let (entry, addr) = (table.entry(index), base + ((index as u64) << level.shift()));
            if entry.is_empty() {
                continue;
            }
            found.used += 1;
            if entry.is_table(level) {
                tables += self.validate_below(self.table_below(entry, level, addr)?, level.below(), addr)?;
            } else {
                found.anonymous += u32::from(entry.is_anonymous());
                self.validate_mapping(table, level, index, addr)?;
            }
        }
        let kept = TableUse::of(page);
        equal("entries used of a page table", u64::from(kept.used), u64::from(found.used))?;
        equal("anonymous entries of a page table", u64::from(kept.anonymous), u64::from(found.anonymous))?;
        let deposited = self.count_deposited(page, table)?;
        equal("deposited page tables", if level == Level::HUGE { u64::from(found.anonymous) } else { 0 }, deposited)?;
        Ok(tables + deposited)
    }

    fn table_page(&self, pfn: Pfn, index: u64) -> Result<CountedPage<'y, P>, VmValidateError> {
        let page = self.vm().try_page(pfn).filter(CountedPage::is_counted);
        let page = page.ok_or(wrong(pfn, "is linked as a page table and is not a counted page"))?;
        let word = page.owner();
        if PageKind::of_word(word) != Some(PageKind::PageTable) || object_of(word) != self.object() {
            return Err(wrong(pfn, "is linked as a page table of a space and is not one"));
        }
        if page.index() != index {
            return Err(wrong(pfn, "is a page table of other addresses or of another level"));
        }
        if page.counts() != (Counts { references: 1, mappings: 0 }) {
            return Err(wrong(pfn, "is a page table with users other than the space"));
        }
        Ok(page)
    }

    fn count_deposited(&self, page: CountedPage<'y, P>, table: Table<'y>) -> Result<u64, VmValidateError> {
        let (mut count, mut at) = (0, deposited_in(page));
        while let Some(pfn) = self.vm().yard().counted().linked(at) {
            let deposited = self.table(pfn)?;
            let Some(its) = self.vm().try_page(pfn) else {
                return Err(wrong(pfn, "is a deposited table without a page"));
            };
            self.table_page(pfn, its.index())?;
            if (0..ENTRIES).any(|index| !deposited.entry(index).is_empty()) || count >= ENTRIES as u64 {
                return Err(wrong(table.pfn, "has a deposited table in use"));
            }
            count += 1;
            at = its.next();
        }
        Ok(count)
    }

    fn validate_mapping(&self, table: Table<'y>, level: Level, index: usize, addr: u64) -> Result<(), VmValidateError> {
        let entry = table.entry(index);
        if !entry.is_present() {
            return Err(wrong(entry.pfn(), "is in migration in a quiet space"));
        }
        let area = self.first_area_ending_after(VirtAddr(addr)).filter(|area| area.range.contains(VirtAddr(addr)));
        let area = area.ok_or(wrong(entry.pfn(), "is mapped outside an area"))?;
        let fits = match area.kind {
            MapKind::Anonymous { .. } => entry.is_anonymous(),
            MapKind::Device { .. } => entry.is_device() && !entry.is_pooled(),
            MapKind::Pooled { .. } => entry.is_pooled(),
            // A private mapping has copies of pages that were written.
            MapKind::File { sharing, .. } => entry.is_file() || entry.is_anonymous() && sharing == Sharing::Private,
        };
        if !fits {
            return Err(wrong(entry.pfn(), "is mapped outside an area of its kind"));
        }
        if entry.is_file() {
            return self.validate_file_entry(&area, entry, addr);
        }
        let protection = if entry.is_writable() { Protection::ReadWrite } else { Protection::ReadOnly };
        if area.protection != protection {
            return Err(wrong(entry.pfn(), "has other rights than its area"));
        }
        if entry.is_counted_device() {
            let mapped = self.vm().yard().devices().at(entry.pfn()).is_some_and(|device| device.mappings > 0);
            return if mapped { Ok(()) } else { Err(wrong(entry.pfn(), "is mapped and its device does not count it")) };
        }
        if entry.is_pooled() {
            let page = self.vm().pooled_page(entry.pfn()).filter(|(page, _)| page.counts().mappings > 0);
            return page.map(drop).ok_or(wrong(entry.pfn(), "is mapped and its page in the pool does not count it"));
        }
        if entry.is_device() { Ok(()) } else { self.validate_anonymous(table, level, entry, addr) }
    }

    /// The mappings of the page are counted together with its file.
    fn validate_file_entry(&self, area: &Area, entry: Entry, addr: u64) -> Result<(), VmValidateError> {
        let pfn = entry.pfn();
        let MapKind::File { file, first, sharing } = area.kind else {
            return Err(wrong(pfn, "is mapped outside an area of its kind"));
        };
        let page = self.vm().try_page(pfn).filter(CountedPage::is_counted);
        let page = page.ok_or(wrong(pfn, "is mapped and is not a counted page"))?;
        let owner = page.owner();
        let index = first.wrapping_add((addr - area.range.start.0) >> Level::SMALL.shift());
        let is_of_file = PageKind::of_word(owner) == Some(PageKind::Cache) && object_of(owner) == file.object();
        if !is_of_file || page.index() != index {
            return Err(wrong(pfn, "is mapped as another page of a file than it is"));
        }
        if owner & Flags::TRUNCATED != 0 || page.counts().mappings == 0 {
            return Err(wrong(pfn, "is mapped and not in its file, or not counted as mapped"));
        }
        let may_write = sharing == Sharing::Shared && area.protection == Protection::ReadWrite;
        if entry.is_writable() && (!may_write || owner & Flags::DIRTY == 0) {
            return Err(wrong(pfn, "is writable, and its area is not or the page is not dirty"));
        }
        Ok(())
    }

    fn validate_anonymous(
        &self,
        table: Table<'y>,
        level: Level,
        entry: Entry,
        addr: u64,
    ) -> Result<(), VmValidateError> {
        let head = entry.head();
        let Some(page) = self.vm().try_page(head) else {
            return Err(wrong(head, "is mapped and has no page"));
        };
        let (word, counts) = (page.owner(), page.counts());
        if !page.is_counted() || PageKind::of_word(word) != Some(PageKind::Anonymous) {
            return Err(wrong(head, "is mapped but not a page of an address space"));
        }
        let order = if level == Level::HUGE || entry.is_part() { HUGE.0 } else { 0 };
        let in_block = (entry.pfn().0 - head.0) << Level::SMALL.shift();
        if page.tag().order().0 != order
            || object_of(word) != self.object()
            || page.index().wrapping_add(in_block) != addr
        {
            return Err(wrong(head, "is mapped at an address that its page does not name"));
        }
        let is_same = |index: &usize| {
            let other = table.entry(*index);
            other.is_part() && other.head() == head
        };
        let found = if entry.is_part() { (0..ENTRIES).filter(is_same).count() } else { 1 };
        equal("mappings of a page", u64::from(counts.mappings), found as u64)?;
        // A page on no list is in a batch or isolated, with one reference for that.
        let pins = u32::try_from(page.pins()).ok().and_then(|pins| references_of_pins(page.tag().order(), pins));
        let pins = u64::from(pins.ok_or(wrong(head, "has more pins than references"))?);
        let known = found as u64 + pins + u64::from(word & Flags::LRU == 0);
        if u64::from(counts.references) < known {
            return Err(VmValidateError::Count {
                what: "references of a page",
                kept: counts.references.into(),
                found: known,
            });
        }
        Ok(())
    }
}

impl<P: Platform> Vm<'_, P> {
    /// The page-table entries of all spaces that map a page of a file. Requires quiescence. Cost: a walk for each area
    /// that maps the file there.
    pub(crate) fn count_file_entries(&self, id: FileId, index: u64, pfn: Pfn) -> Result<u64, VmError> {
        let mut found = 0;
        for space in self.spaces() {
            for area in space.areas_in(VirtRange { start: VirtAddr(0), end: VirtAddr::END }) {
                let MapKind::File { file, first, .. } = area.kind else { continue };
                let Some(distance) = index.checked_sub(first).filter(|_| file == id) else { continue };
                let addr = distance.checked_mul(Level::SMALL.span()).and_then(|by| area.range.start.0.checked_add(by));
                let Some(addr) = addr.filter(|addr| area.range.contains(VirtAddr(*addr))) else { continue };
                let spot = space.walk(addr)?;
                found += u64::from(spot.entry.is_present() && spot.entry.is_file() && spot.entry.pfn() == pfn);
            }
        }
        Ok(found)
    }
}
