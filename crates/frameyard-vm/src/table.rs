//! Page tables: four levels in x86-64 format, in unmovable frames of the yard.
//!
//! A page table is a counted block of [`PageKind::PageTable`] with one reference. Its owner's word names the space. Its
//! index is its first address, with its [`Level`] in the low bits. Each table has its own lock.
//!
//! # Locking
//!
//! - Map lock held for reading: any CPU reads entries without a lock. Entries change under the lock of their table: an
//!   empty entry becomes a table or a page; an entry of a page gets accessed and dirty bits, or loses the accessed bit
//!   to ageing, or changes for a migration; an entry of a page of a file becomes writable, or one of an anonymous copy.
//!   A linked table stays, and so does the entry that leads to it.
//! - Map lock held for writing: pages and tables are removed, and huge mappings are split.
//!
//! Entries are written with Release and read with Acquire, so a CPU that follows an entry sees the table or page as it
//! was when the entry was written.
//!
//! # Counting equations
//!
//! - The use of a table (first spare word) = the number of its non-empty entries, and the number of those that map
//!   anonymous memory directly.
//! - The tables deposited in a table of level 1 (second spare word) = its entries that map anonymous memory: one each,
//!   so that a split needs no memory.
//! - The page tables of a space = the linked ones and the deposited ones.

use frameyard::page::{CountedPage, FrameLink};
use frameyard::platform::{Access, LineKind, LockId, Probe, SharedLine};
use frameyard::sync::{AtomicU64, Ordering};
use frameyard::{Order, Pfn, Platform};

use crate::block::state_words;
use crate::error::{Damage, VmError};
use crate::frame_vec::Gathered;
use crate::inject::Step;
use crate::lock::Held;
use crate::page::{PageKind, owner_word};
use crate::space::{SpaceRef, SpaceWord};
use crate::words::Words;

mod entry;
mod validate;

pub(crate) use entry::{ENTRIES, Entry, HUGE, Level};

/// A page table: its frame and its entries.
#[derive(Clone, Copy)]
pub(crate) struct Table<'y> {
    pub(crate) pfn: Pfn,
    words: Words<'y>,
}

impl<'y> Table<'y> {
    #[inline(always)]
    fn word(self, index: usize) -> &'y AtomicU64 {
        self.words.at(index)
    }

    /// An entry; may be stale.
    #[inline(always)]
    pub(crate) fn entry(self, index: usize) -> Entry {
        // Acquire: pairs with the Release in `set`.
        Entry::from_bits(self.word(index).load(Ordering::Acquire))
    }
}

/// The end of the walk to an address: an entry that leads to no further table.
#[derive(Clone, Copy)]
pub(crate) struct Spot<'y> {
    pub(crate) table: Table<'y>,
    pub(crate) level: Level,
    pub(crate) index: usize,
    /// The entry as read.
    pub(crate) entry: Entry,
}

/// The used entries of a table.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct TableUse {
    /// Non-empty entries.
    pub(crate) used: u32,
    /// Entries that map anonymous memory directly.
    pub(crate) anonymous: u32,
}

/// Mapped anonymous memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Mapped {
    /// Pages of 4 KiB, including those of huge mappings.
    pub(crate) pages: u64,
    /// Huge mappings.
    pub(crate) huge: u64,
}

/// A found table replaces the cached one only if the entry's index is a multiple of this.
const CACHE_INTERVAL: usize = 32;

/// Spare words of a table's page.
const USE: usize = 0;
const DEPOSITED: usize = 1;

impl TableUse {
    #[inline(always)]
    pub(crate) fn of<P: Platform>(page: CountedPage<'_, P>) -> Self {
        let bits = page.spare(USE);
        Self { used: bits as u32, anonymous: (bits >> 32) as u32 }
    }

    /// The use with more entries. Wraps: the counts may have been overwritten.
    #[inline(always)]
    pub(crate) fn more(self, used: u32, anonymous: u32) -> Self {
        Self { used: self.used.wrapping_add(used), anonymous: self.anonymous.wrapping_add(anonymous) }
    }

    /// The use with fewer entries.
    #[inline(always)]
    pub(crate) fn less(self, used: u32, anonymous: u32) -> Self {
        Self { used: self.used.wrapping_sub(used), anonymous: self.anonymous.wrapping_sub(anonymous) }
    }

    #[inline(always)]
    fn store<P: Platform>(self, page: CountedPage<'_, P>) {
        page.set_spare(USE, u64::from(self.used) | u64::from(self.anonymous) << 32);
    }
}

/// A table with its lock held.
pub(crate) struct LockedTable<'y, P: Platform> {
    pub(crate) page: CountedPage<'y, P>,
    words: Words<'y>,
    held: Held<'y, P>,
}

impl<'y, P: Platform> LockedTable<'y, P> {
    /// An entry. The caller reports the access to the platform.
    #[inline(always)]
    pub(crate) fn entry(&self, index: usize) -> Entry {
        Entry::from_bits(self.words.at(index).load(Ordering::Relaxed))
    }

    /// Writes an entry without changing the table's use.
    #[inline(always)]
    pub(crate) fn set(&self, index: usize, entry: Entry) {
        let word = self.words.at(index);
        self.held.platform().probe().touch_line(SharedLine::of(LineKind::PageTable, word), Access::Write);
        // Release: pairs with the Acquire in `Table::entry`.
        self.words.at(index).store(entry.bits(), Ordering::Release);
    }

    /// Fills an empty entry.
    #[inline(always)]
    pub(crate) fn fill(&self, index: usize, entry: Entry, level: Level) {
        self.set(index, entry);
        let anonymous = u32::from(!entry.is_table(level) && entry.is_anonymous());
        self.change_use(|at| at.more(1, anonymous));
    }

    #[inline(always)]
    pub(crate) fn change_use(&self, change: impl FnOnce(TableUse) -> TableUse) {
        change(TableUse::of(self.page)).store(self.page);
    }

    /// Deposits a table for splitting a huge mapping later.
    pub(crate) fn deposit(&self, link: FrameLink, table: CountedPage<'y, P>) {
        table.set_next(FrameLink::from_bits(self.page.spare(DEPOSITED) as u32));
        self.page.set_spare(DEPOSITED, u64::from(link.bits()));
    }

    /// Withdraws a deposited table. One is deposited for each huge mapping.
    pub(crate) fn withdraw(&self, space: &SpaceRef<'y, P>) -> Result<Table<'y>, VmError> {
        let link = FrameLink::from_bits(self.page.spare(DEPOSITED) as u32);
        let page = space.vm().linked_page(link).filter(|page| page.owner() == space.owner_of_tables());
        let page = page.ok_or_else(|| space.vm().damaged(Damage::PageTable))?;
        let table = space.table(page.pfn())?;
        self.page.set_spare(DEPOSITED, u64::from(page.next().bits()));
        page.set_next(FrameLink::NONE);
        Ok(table)
    }
}

/// The first of the tables deposited in a table of level 1.
pub(crate) fn deposited_in<P: Platform>(page: CountedPage<'_, P>) -> FrameLink {
    FrameLink::from_bits(page.spare(DEPOSITED) as u32)
}

impl<'y, P: Platform> SpaceRef<'y, P> {
    /// The frame of an entry or a link, read as a table. Whatever its contents are, they are words of a frame of the yard.
    #[inline(always)]
    pub(crate) fn table(&self, pfn: Pfn) -> Result<Table<'y>, VmError> {
        Ok(Table { pfn, words: self.vm().words(pfn)? })
    }

    /// The owner's word of the space's tables.
    #[inline(always)]
    fn owner_of_tables(&self) -> u64 {
        owner_word(PageKind::PageTable, self.object(), 0)
    }

    /// The page of a table of this space.
    #[inline(always)]
    pub(crate) fn page_of_table(&self, pfn: Pfn) -> Result<CountedPage<'y, P>, VmError> {
        if self.vm().trusts_frames() {
            return Ok(self.vm().page(pfn));
        }
        let page = self.vm().try_page(pfn).filter(|page| page.owner() == self.owner_of_tables());
        page.ok_or_else(|| self.vm().damaged(Damage::PageTable))
    }

    /// The table below an entry of a level that covers `addr`. No other entry leads there, so a walk of all tables ends.
    pub(crate) fn table_below(&self, entry: Entry, level: Level, addr: u64) -> Result<Table<'y>, VmError> {
        let page = self.page_of_table(entry.pfn())?;
        if page.index() != table_index(level.below(), addr) {
            return Err(self.vm().damaged(Damage::PageTable));
        }
        self.table(entry.pfn())
    }

    /// A frame read as a table; `None` if it has no memory. For unlocked walks: the frame may have another use by now,
    /// so its contents prove nothing.
    #[inline(always)]
    pub(crate) fn try_table(&self, pfn: Pfn) -> Option<Table<'y>> {
        self.vm().try_page(pfn)?;
        // SAFETY: the frame has memory, and a lock-free walk only loads from it. If the table was freed meanwhile, the new
        // owner may write there as bytes: the loads then return any value, as the kernel's lockless walks accept too, and the
        // walk discards it when it checks the entry again.
        Some(Table { pfn, words: unsafe { Words::of(self.vm().yard(), pfn, Order::ZERO) }? })
    }

    /// The root table, which a space in use has.
    #[inline(always)]
    pub(crate) fn root_of_tables(&self) -> Result<Table<'y>, VmError> {
        self.table(self.root_table().ok_or_else(|| self.vm().damaged(Damage::PageTable))?)
    }

    /// Takes the lock of a table of this space.
    #[inline(always)]
    pub(crate) fn lock_table(&self, table: Table<'y>) -> Result<LockedTable<'y, P>, VmError> {
        let page = self.page_of_table(table.pfn)?;
        let held = Held::lock(self.vm().yard().platform(), LockId::PageTable(table.pfn), page.lock_word())?;
        Ok(LockedTable { page, words: table.words, held })
    }

    /// Like [`lock_table`](Self::lock_table), if the lock is free.
    pub(crate) fn try_lock_table(&self, table: Table<'y>) -> Option<LockedTable<'y, P>> {
        let page = self.page_of_table(table.pfn).ok()?;
        let held = Held::try_lock(self.vm().yard().platform(), LockId::PageTable(table.pfn), page.lock_word())?;
        Some(LockedTable { page, words: table.words, held })
    }

    /// Allocates a root table; the caller links it.
    pub(crate) fn new_root_table(&self) -> Result<FrameLink, VmError> {
        if self.vm().yard().geometry().page_shift() != 12 {
            return Err(VmError::BadConfig("address spaces need pages of 4K"));
        }
        Ok(self.vm().yard().counted().link(self.new_table(Level::ROOT, 0)?.pfn))
    }

    /// Allocates an empty table for the addresses around `addr`.
    pub(crate) fn new_table(&self, level: Level, addr: u64) -> Result<Table<'y>, VmError> {
        let vm = self.vm();
        let pfn = vm.alloc_state(self.owner_of_tables(), table_index(level, addr), Step::AllocatePageTable)?;
        self.add(SpaceWord::PAGE_TABLES, 1);
        self.table(pfn)
    }

    /// Frees unreachable tables. A CPU that took one for another page and got a reference frees it instead.
    pub(crate) fn free_table_frames(&self, tables: &[Pfn]) {
        for some in tables.chunks(Gathered::CAPACITY) {
            let mut unused = Gathered::new();
            for pfn in some.iter().copied() {
                // A CPU that found the frame by number may hold a reference. It frees the frame.
                match self.page_of_table(pfn).map(|page| page.put()) {
                    Ok(Ok(0)) => unused.push(pfn),
                    Ok(put) => self.vm().expect(put, Damage::PageTable),
                    Err(_) => {}
                }
            }
            // SAFETY: this thread put the last reference of each table in `unused`.
            let freed = unsafe { self.vm().yard().counted().free_bulk(unused.frames()) };
            self.vm().expect(freed, Damage::PageTable);
        }
        if !tables.is_empty() {
            self.subtract(SpaceWord::PAGE_TABLES, tables.len() as u64);
        }
    }

    /// Reads an entry on the way to an address.
    #[inline(always)]
    fn look(&self, table: Table<'y>, level: Level, index: usize) -> Entry {
        let kind = if level == Level::SMALL { LineKind::PageTable } else { LineKind::PageDirectory };
        let line = SharedLine::of(kind, table.word(index));
        self.vm().yard().platform().probe().touch_line(line, Access::Read);
        table.entry(index)
    }

    /// Walks to the entry of an address. The caller holds the map lock, at least for reading.
    ///
    /// Cost: one load per level; two if the table is cached ([`SpaceWord::LEAVES`]).
    #[inline(always)]
    pub(crate) fn walk(&self, addr: u64) -> Result<Spot<'y>, VmError> {
        match self.cached_table(addr) {
            Some(table) => {
                let index = Level::SMALL.index(addr);
                Ok(Spot { table, level: Level::SMALL, index, entry: self.look(table, Level::SMALL, index) })
            }
            None => self.walk_from_top(addr),
        }
    }

    /// The cached table of level 0 for an address.
    #[inline(always)]
    fn cached_table(&self, addr: u64) -> Option<Table<'y>> {
        self.report_access(self.leaf_word(addr), Access::Read);
        // Acquire: pairs with the Release in `walk_from_top`. The table may have been linked after this CPU took the
        // map lock.
        let leaf = self.leaf_word(addr).load(Ordering::Acquire);
        if leaf >> 32 != addr >> Level::HUGE.shift() {
            return None;
        }
        let yard = self.vm().yard();
        let pfn = yard.counted().linked(FrameLink::from_bits(leaf as u32))?;
        Some(Table { pfn, words: state_words(yard, pfn, Order::ZERO)? })
    }

    #[inline(never)]
    fn walk_from_top(&self, addr: u64) -> Result<Spot<'y>, VmError> {
        let (mut table, mut level) = (self.root_of_tables()?, Level::ROOT);
        loop {
            let index = level.index(addr);
            let entry = self.look(table, level, index);
            if !entry.is_table(level) {
                return Ok(Spot { table, level, index, entry });
            }
            level = level.below();
            table = self.table(entry.pfn())?;
            let leaf = self.leaf_word(addr);
            // Replace a cached table rarely: tasks that share a space and a word would otherwise transfer its cache
            // line on each fault. A walk that starts at a table's first entry caches it at once.
            let is_due = Level::SMALL.index(addr).is_multiple_of(CACHE_INTERVAL) || leaf.load(Ordering::Relaxed) == 0;
            if level == Level::SMALL && is_due && self.vm().try_page(table.pfn).is_some() {
                let link = u64::from(self.vm().yard().counted().link(table.pfn).bits());
                self.report_access(leaf, Access::Write);
                // Release: pairs with the Acquire in `walk`. A walk that finds the table here sees its initial contents.
                leaf.store(addr >> Level::HUGE.shift() << 32 | link, Ordering::Release);
            }
        }
    }

    /// The cache word for an address: the number of the 2 MiB range in the upper half, the link of the table of level 0
    /// in the lower.
    #[inline(always)]
    fn leaf_word(&self, addr: u64) -> &'y AtomicU64 {
        self.word(SpaceWord::LEAVES + (addr >> Level::HUGE.shift()) as usize % SpaceWord::LEAF_COUNT)
    }

    /// Clears the table cache before tables are removed. The caller holds the map lock for writing.
    pub(crate) fn clear_table_cache(&self) {
        for at in 0..SpaceWord::LEAF_COUNT {
            self.word(SpaceWord::LEAVES + at).store(0, Ordering::Relaxed);
        }
    }

    /// Descends from an empty entry to a level and allocates missing tables. Stops above it if another CPU has mapped a
    /// large page meanwhile.
    pub(crate) fn descend(&self, mut spot: Spot<'y>, addr: u64, to: Level) -> Result<Spot<'y>, VmError> {
        while spot.level > to && spot.entry.is_empty() {
            let below = spot.level.below();
            let made = self.new_table(below, addr)?;
            let parent = self.lock_table(spot.table).inspect_err(|_| self.free_table_frames(&[made.pfn]))?;
            let found = parent.entry(spot.index);
            if found.is_empty() {
                parent.fill(spot.index, Entry::table(made.pfn), spot.level);
                drop(parent);
                spot = Spot { table: made, level: below, index: below.index(addr), entry: Entry::EMPTY };
                continue;
            }
            drop(parent);
            self.free_table_frames(&[made.pfn]);
            spot = self.follow(Spot { entry: found, ..spot }, addr)?;
        }
        Ok(spot)
    }

    /// The mapped anonymous memory; may be stale. The caller holds the map lock, at least for reading.
    pub(crate) fn count_mapped(&self) -> Result<Mapped, VmError> {
        let mut mapped = Mapped::default();
        self.count_below(self.root_of_tables()?, (Level::ROOT, 0), &mut mapped)?;
        Ok(mapped)
    }

    fn count_below(&self, table: Table<'y>, (level, base): (Level, u64), mapped: &mut Mapped) -> Result<(), VmError> {
        let anonymous = u64::from(TableUse::of(self.page_of_table(table.pfn)?).anonymous);
        mapped.pages = mapped.pages.wrapping_add(anonymous.wrapping_mul(level.pages()));
        if level == Level::SMALL {
            return Ok(());
        }
        mapped.huge = mapped.huge.wrapping_add(anonymous);
        for index in 0..ENTRIES {
            let (entry, addr) = (table.entry(index), base + ((index as u64) << level.shift()));
            if entry.is_table(level) {
                self.count_below(self.table_below(entry, level, addr)?, (level.below(), addr), mapped)?;
            }
        }
        Ok(())
    }

    /// Follows an entry down while it leads to a table.
    fn follow(&self, mut spot: Spot<'y>, addr: u64) -> Result<Spot<'y>, VmError> {
        while spot.entry.is_table(spot.level) {
            let (level, table) = (spot.level.below(), self.table(spot.entry.pfn())?);
            let index = level.index(addr);
            spot = Spot { table, level, index, entry: table.entry(index) };
        }
        Ok(spot)
    }
}

/// The index of a table's page: its first address and its level.
pub(crate) const fn table_index(level: Level, addr: u64) -> u64 {
    if level.0 == Level::ROOT.0 { level.0 as u64 } else { Level(level.0 + 1).align_down(addr) | level.0 as u64 }
}
