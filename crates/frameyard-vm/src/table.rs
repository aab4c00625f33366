//! Page tables: four levels in the format of x86-64, in unmovable frames of the yard.
//!
//! A page of page tables is a counted block of [`PageKind::PageTable`] with one reference, its owner's word names the space,
//! its index is the first address behind it and, in the low bits, its [`Level`]. It has a lock of its own.
//!
//! # Who may do what
//!
//! - Under the map lock for reading: anybody looks at entries, without any lock. Entries change under the lock of their
//!   table: an empty one becomes a table or a page, one of a page gets its bits of use or loses the one that ageing
//!   clears, or the page is moved. A table that is linked stays, and so does an entry that leads to one.
//! - Under the map lock for writing: pages go, tables go, huge mappings are split.
//!
//! An entry is written with Release and read with Acquire, so whoever follows one to a table or a page sees it as it was
//! when it was linked.
//!
//! # Counting equations
//!
//! - the use of a table (first spare word) = how many of its entries are not empty, and how many of those map anonymous
//!   memory by themselves;
//! - the tables set aside in a table of level 1 (second spare word) = its entries that map anonymous memory, one for each,
//!   so that splitting one needs no memory;
//! - the page tables of a space = those linked and those set aside.

use frameyard::owners::Adoption;
use frameyard::page::{CountedPage, Counts, FrameLink};
use frameyard::platform::{Access, LineKind, LockId, SharedLine};
use frameyard::sync::{AtomicU64, Ordering};
use frameyard::{Gfp, Order, Pfn, Platform};

use crate::error::VmError;
use crate::inject::Step;
use crate::lock::Held;
use crate::lru::Gathered;
use crate::page::{PageKind, owner_word};
use crate::space::{SpaceRef, SpaceWord};
use crate::words::Words;

mod entry;
mod validate;

pub(crate) use entry::{ENTRIES, Entry, HUGE, Level};

/// A page of page tables: its frame and its entries.
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

    /// An entry, a moment ago.
    #[inline(always)]
    pub(crate) fn entry(self, index: usize) -> Entry {
        // Acquire: pairs with the Release in `set`.
        Entry::from_bits(self.word(index).load(Ordering::Acquire))
    }
}

/// Where the walk to an address ended: at an entry that leads to no further table.
#[derive(Clone, Copy)]
pub(crate) struct Spot<'y> {
    pub(crate) table: Table<'y>,
    pub(crate) level: Level,
    pub(crate) index: usize,
    /// The entry, as it was.
    pub(crate) entry: Entry,
}

/// How many entries of a table are in use.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct TableUse {
    /// Those that are not empty.
    pub(crate) used: u32,
    /// Those that map anonymous memory by themselves.
    pub(crate) anonymous: u32,
}

/// Anonymous memory that is mapped.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Mapped {
    /// Pages of 4 KiB, those of huge mappings among them.
    pub(crate) pages: u64,
    /// Huge mappings.
    pub(crate) huge: u64,
}

/// A table that was found is kept instead of another one when the entry's place is a multiple of this.
const LEAF_STAYS: usize = 32;

/// Spare words of a table's page.
const USE: usize = 0;
const SET_ASIDE: usize = 1;

impl TableUse {
    #[inline(always)]
    pub(crate) fn of<P: Platform>(page: CountedPage<'_, P>) -> Self {
        let bits = page.spare(USE);
        Self { used: bits as u32, anonymous: (bits >> 32) as u32 }
    }

    #[inline(always)]
    fn store<P: Platform>(self, page: CountedPage<'_, P>) {
        page.set_spare(USE, u64::from(self.used) | u64::from(self.anonymous) << 32);
    }
}

/// A table whose lock is held.
pub(crate) struct LockedTable<'y, P: Platform> {
    pub(crate) page: CountedPage<'y, P>,
    words: Words<'y>,
    held: Held<'y, P>,
}

impl<'y, P: Platform> LockedTable<'y, P> {
    /// An entry. The platform is told of it by who has walked to it, or writes it.
    #[inline(always)]
    pub(crate) fn entry(&self, index: usize) -> Entry {
        Entry::from_bits(self.words.at(index).load(Ordering::Relaxed))
    }

    /// Writes an entry, and leaves the table's use as it is.
    #[inline(always)]
    pub(crate) fn set(&self, index: usize, entry: Entry) {
        let word = self.words.at(index);
        self.held.platform().touch_line(SharedLine::of(LineKind::PageTable, word), Access::Write);
        // Release: pairs with the Acquire in `Table::entry`.
        self.words.at(index).store(entry.bits(), Ordering::Release);
    }

    /// Writes an entry that was empty.
    #[inline(always)]
    pub(crate) fn fill(&self, index: usize, entry: Entry, level: Level) {
        debug_assert!(self.entry(index).is_empty() && !entry.is_empty());
        self.set(index, entry);
        let anonymous = u32::from(!entry.is_table(level) && !entry.is_device());
        self.change_use(|at| TableUse { used: at.used + 1, anonymous: at.anonymous + anonymous });
    }

    #[inline(always)]
    pub(crate) fn change_use(&self, change: impl FnOnce(TableUse) -> TableUse) {
        change(TableUse::of(self.page)).store(self.page);
    }

    /// Sets a table aside, for a huge mapping that may have to be split.
    pub(crate) fn set_aside(&self, link: FrameLink, table: CountedPage<'y, P>) {
        table.set_next(FrameLink::from_bits(self.page.spare(SET_ASIDE) as u32));
        self.page.set_spare(SET_ASIDE, u64::from(link.bits()));
    }

    /// Takes one of the tables set aside.
    pub(crate) fn take_aside(&self, space: &SpaceRef<'y, P>) -> Option<Table<'y>> {
        let link = FrameLink::from_bits(self.page.spare(SET_ASIDE) as u32);
        let pfn = space.vm().yard().linked(link)?;
        let page = space.vm().page(pfn);
        self.page.set_spare(SET_ASIDE, u64::from(page.next().bits()));
        page.set_next(FrameLink::NONE);
        Some(space.table(pfn))
    }
}

/// The tables set aside in a table of level 1, by the link of the first.
pub(crate) fn set_aside_in<P: Platform>(page: CountedPage<'_, P>) -> FrameLink {
    FrameLink::from_bits(page.spare(SET_ASIDE) as u32)
}

impl<'y, P: Platform> SpaceRef<'y, P> {
    /// The table in a frame.
    #[inline(always)]
    pub(crate) fn table(&self, pfn: Pfn) -> Table<'y> {
        Table { pfn, words: self.vm().words(pfn) }
    }

    /// What stands in a frame as if it were a table; `None` where there is no memory. The frame may be anything by now, for
    /// who walks without a lock: what is read of it proves nothing.
    #[inline(always)]
    pub(crate) fn try_table(&self, pfn: Pfn) -> Option<Table<'y>> {
        self.vm().try_page(pfn)?;
        // SAFETY: the frame has memory, and a lock-free walk only loads from it. If the table was freed meanwhile, the new
        // owner may write there as bytes: the loads then return any value, as the kernel's lockless walks accept too, and the
        // walk discards it when it checks the entry again.
        Some(Table { pfn, words: unsafe { Words::of(self.vm().yard(), pfn, Order::ZERO) }? })
    }

    /// The topmost table.
    ///
    /// # Panics
    ///
    /// Where the space has none yet.
    #[inline(always)]
    pub(crate) fn topmost(&self) -> Table<'y> {
        self.table(self.root_table().expect("a space that is used has a topmost table"))
    }

    #[inline(always)]
    pub(crate) fn lock_table(&self, table: Table<'y>) -> LockedTable<'y, P> {
        let page = self.vm().page(table.pfn);
        let held = Held::lock(self.vm().yard().platform(), LockId::PageTable(table.pfn), page.lock_word());
        LockedTable { page, words: table.words, held }
    }

    /// As [`lock_table`](Self::lock_table), if nobody has the lock.
    pub(crate) fn try_lock_table(&self, table: Table<'y>) -> Option<LockedTable<'y, P>> {
        let page = self.vm().page(table.pfn);
        let held = Held::try_lock(self.vm().yard().platform(), LockId::PageTable(table.pfn), page.lock_word())?;
        Some(LockedTable { page, words: table.words, held })
    }

    /// Makes the topmost table of a space that has none; it is the caller's to link.
    pub(crate) fn new_root_table(&self) -> Result<FrameLink, VmError> {
        if self.vm().yard().geometry().page_shift() != 12 {
            return Err(VmError::BadConfig("address spaces need pages of 4K"));
        }
        Ok(self.vm().yard().link(self.new_table(Level::ROOT, 0)?.pfn))
    }

    /// Makes a table, all empty, for the addresses around `addr`.
    pub(crate) fn new_table(&self, level: Level, addr: u64) -> Result<Table<'y>, VmError> {
        let vm = self.vm();
        let pfn = vm.alloc_zeroed(Order::ZERO, Gfp::KERNEL, Step::AllocatePageTable)?;
        let owner = owner_word(PageKind::PageTable, self.object(), 0);
        let adoption =
            Adoption { counts: Counts { references: 1, mappings: 0 }, owner, index: table_index(level, addr) };
        vm.yard().adopt(pfn, Order::ZERO, adoption)?;
        self.add(SpaceWord::PAGE_TABLES, 1);
        Ok(self.table(pfn))
    }

    /// Frees tables that nothing leads to any more. Whoever took one for another page and got a reference frees it instead.
    pub(crate) fn free_table_frames(&self, tables: &[Pfn]) {
        for some in tables.chunks(Gathered::MOST) {
            let mut unused = Gathered::new();
            for pfn in some.iter().copied() {
                match self.vm().page(pfn).put() {
                    Ok(0) => unused.push(pfn),
                    // Somebody has found the frame by number and looks what it is; he frees it.
                    Ok(_) => {}
                    Err(underflow) => debug_assert!(false, "a table has a user: {underflow}"),
                }
            }
            let freed = self.vm().yard().free_counted_bulk(unused.frames());
            debug_assert!(freed.is_ok(), "{freed:?}");
        }
        if !tables.is_empty() {
            self.subtract(SpaceWord::PAGE_TABLES, tables.len() as u64);
        }
    }

    /// An entry, on the way to an address.
    #[inline(always)]
    fn look(&self, table: Table<'y>, level: Level, index: usize) -> Entry {
        let kind = if level == Level::SMALL { LineKind::PageTable } else { LineKind::PageDirectory };
        let line = SharedLine::of(kind, table.word(index));
        self.vm().yard().platform().touch_line(line, Access::Read);
        table.entry(index)
    }

    /// Goes down to the entry for an address. The caller has the map lock, for reading at least.
    ///
    /// Cost: a load for each level; two where the table was found lately ([`SpaceWord::LEAVES`]).
    #[inline(always)]
    pub(crate) fn walk(&self, addr: u64) -> Spot<'y> {
        // Acquire: pairs with the Release in `walk_from_top`. The table may have been linked since the map lock was taken.
        self.tell(self.leaf_word(addr), Access::Read);
        let leaf = self.leaf_word(addr).load(Ordering::Acquire);
        if leaf >> 32 == addr >> Level::HUGE.shift()
            && let Some(pfn) = self.vm().yard().linked(FrameLink::from_bits(leaf as u32))
        {
            let (table, index) = (self.table(pfn), Level::SMALL.index(addr));
            return Spot { table, level: Level::SMALL, index, entry: self.look(table, Level::SMALL, index) };
        }
        self.walk_from_top(addr)
    }

    #[inline(never)]
    fn walk_from_top(&self, addr: u64) -> Spot<'y> {
        let (mut table, mut level) = (self.topmost(), Level::ROOT);
        loop {
            let index = level.index(addr);
            let entry = self.look(table, level, index);
            if !entry.is_table(level) {
                return Spot { table, level, index, entry };
            }
            level = level.below();
            table = self.table(entry.pfn());
            let leaf = self.leaf_word(addr);
            // What others may be using goes only now and then: tasks that share a space and a word would else take its line from
            // each other all the time. Who goes through a table from its first entry on has the word at once.
            let is_due = Level::SMALL.index(addr).is_multiple_of(LEAF_STAYS) || leaf.load(Ordering::Relaxed) == 0;
            if level == Level::SMALL && is_due {
                let link = u64::from(self.vm().yard().link(table.pfn).bits());
                self.tell(leaf, Access::Write);
                // Release: pairs with the Acquire in `walk`. A walk that finds the table here sees its initial contents.
                leaf.store(addr >> Level::HUGE.shift() << 32 | link, Ordering::Release);
            }
        }
    }

    /// The word that may know the table of level 0 for an address: number of the 2 MiB in the upper half, link of the
    /// table in the lower.
    #[inline(always)]
    fn leaf_word(&self, addr: u64) -> &'y AtomicU64 {
        self.word(SpaceWord::LEAVES + (addr >> Level::HUGE.shift()) as usize % SpaceWord::LEAF_COUNT)
    }

    /// Forgets the tables found lately, before tables go. The caller has the map lock for writing.
    pub(crate) fn forget_leaves(&self) {
        for at in 0..SpaceWord::LEAF_COUNT {
            self.word(SpaceWord::LEAVES + at).store(0, Ordering::Relaxed);
        }
    }

    /// Goes on from an empty entry down to a level, making the tables that are missing. Ends above it where somebody else
    /// has mapped a large page meanwhile.
    pub(crate) fn descend(&self, mut spot: Spot<'y>, addr: u64, to: Level) -> Result<Spot<'y>, VmError> {
        while spot.level > to && spot.entry.is_empty() {
            let below = spot.level.below();
            let made = self.new_table(below, addr)?;
            let parent = self.lock_table(spot.table);
            let found = parent.entry(spot.index);
            if found.is_empty() {
                parent.fill(spot.index, Entry::table(made.pfn), spot.level);
                drop(parent);
                spot = Spot { table: made, level: below, index: below.index(addr), entry: Entry::EMPTY };
                continue;
            }
            drop(parent);
            self.free_table_frames(&[made.pfn]);
            spot = self.follow(Spot { entry: found, ..spot }, addr);
        }
        Ok(spot)
    }

    /// What is mapped of anonymous memory, a moment ago. The caller has the map lock, for reading at least.
    pub(crate) fn count_mapped(&self) -> Mapped {
        let mut mapped = Mapped::default();
        self.count_below(self.topmost(), Level::ROOT, &mut mapped);
        mapped
    }

    fn count_below(&self, table: Table<'y>, level: Level, mapped: &mut Mapped) {
        let anonymous = u64::from(TableUse::of(self.vm().page(table.pfn)).anonymous);
        mapped.pages += anonymous * level.pages();
        if level == Level::SMALL {
            return;
        }
        mapped.huge += anonymous;
        for index in 0..ENTRIES {
            let entry = table.entry(index);
            if entry.is_table(level) {
                self.count_below(self.table(entry.pfn()), level.below(), mapped);
            }
        }
    }

    /// Follows an entry further down, if it leads to a table.
    fn follow(&self, mut spot: Spot<'y>, addr: u64) -> Spot<'y> {
        while spot.entry.is_table(spot.level) {
            let (level, table) = (spot.level.below(), self.table(spot.entry.pfn()));
            let index = level.index(addr);
            spot = Spot { table, level, index, entry: table.entry(index) };
        }
        spot
    }
}

/// What the index of a table's page says: the first address behind it, and its level.
pub(crate) const fn table_index(level: Level, addr: u64) -> u64 {
    if level.0 == Level::ROOT.0 { level.0 as u64 } else { Level(level.0 + 1).align_down(addr) | level.0 as u64 }
}
