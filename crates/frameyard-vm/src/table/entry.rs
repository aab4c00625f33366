//! [`Entry`]: one entry of a page table, in the format of x86-64, and the levels of tables.

use core::fmt;

use frameyard::{Order, Pfn};

use crate::address::{ENTRY_FRAMES_END, LEVEL_BITS};
use crate::area::Protection;
use crate::space::MemoryAccess;

/// Entries of a table.
pub(crate) const ENTRIES: usize = 1 << LEVEL_BITS;
/// The order of the block that an entry of a level-1 table maps.
pub(crate) const HUGE: Order = Order(LEVEL_BITS as u8);

/// Height above the pages: 0 for tables of 4 KiB pages (the kernel's PTE), 1 (PMD), 2 (PUD), 3 for the root (PGD).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Level(pub(crate) u8);

impl Level {
    pub(crate) const SMALL: Self = Self(0);
    pub(crate) const HUGE: Self = Self(1);
    pub(crate) const ROOT: Self = Self(3);

    /// Binary logarithm of the bytes that an entry covers.
    #[inline(always)]
    pub(crate) const fn shift(self) -> u32 {
        12 + LEVEL_BITS * self.0 as u32
    }

    /// The bytes that an entry covers.
    #[inline(always)]
    pub(crate) const fn span(self) -> u64 {
        1 << self.shift()
    }

    /// The level below.
    #[inline(always)]
    pub(crate) const fn below(self) -> Self {
        Self(self.0 - 1)
    }

    /// The index of an address in a table of this level.
    #[inline(always)]
    pub(crate) const fn index(self, addr: u64) -> usize {
        (addr >> self.shift()) as usize % ENTRIES
    }

    /// The first address of the entry that covers `addr`.
    #[inline(always)]
    pub(crate) const fn align_down(self, addr: u64) -> u64 {
        addr & !(self.span() - 1)
    }

    /// The 4 KiB pages that an entry covers.
    #[inline(always)]
    pub(crate) const fn pages(self) -> u64 {
        self.span() >> 12
    }
}

/// One entry of a page table.
///
/// | bit | meaning |
/// |---|---|
/// | 0 | present: the other bits have their processor meaning |
/// | 1, 2 | writable; user |
/// | 5, 6 | accessed; dirty |
/// | 7 | above level 0: a large page instead of a table |
/// | 9 | software: a page of a device, or a huge page of a pool |
/// | 10 | software: at level 0, a part of a block of order 9, whose head counts the mapping |
/// | 11 | software, with bit 0 clear: the page is in migration. All other bits are unchanged |
/// | 12–51 | frame number |
/// | 52 | software: a page of a device mapped in the yard, which counts this entry and the page's users |
/// | 53 | software: at level 0, a page of a file, which counts the mapping |
/// | 54 | software: a huge page of a pool; the entry is one of its users |
/// | 63 | no execution |
///
/// 0 is an empty entry.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Entry(u64);

impl Entry {
    const PRESENT: u64 = 1 << 0;
    const WRITE: u64 = 1 << 1;
    const USER: u64 = 1 << 2;
    const ACCESSED: u64 = 1 << 5;
    const DIRTY: u64 = 1 << 6;
    const LARGE: u64 = 1 << 7;
    const DEVICE: u64 = 1 << 9;
    const PART: u64 = 1 << 10;
    const MOVING: u64 = 1 << 11;
    const FRAME: u64 = (ENTRY_FRAMES_END.0 - 1) << 12;
    const COUNTED: u64 = 1 << 52;
    const FILE: u64 = 1 << 53;
    const POOLED: u64 = 1 << 54;
    const NO_EXECUTE: u64 = 1 << 63;

    pub(crate) const EMPTY: Self = Self(0);

    const fn of(pfn: Pfn, bits: u64) -> Self {
        debug_assert!(pfn.0 < ENTRY_FRAMES_END.0, "a view of a yard refuses larger frame numbers");
        Self(pfn.0 << 12 & Self::FRAME | bits)
    }

    /// An entry that leads to a table. The processor checks rights at the last level.
    pub(crate) const fn table(pfn: Pfn) -> Self {
        Self::of(pfn, Self::PRESENT | Self::WRITE | Self::USER | Self::ACCESSED)
    }

    /// A writable, unaccessed page at a level.
    #[inline(always)]
    pub(crate) const fn page(pfn: Pfn, level: Level) -> Self {
        let large = if level.0 > 0 { Self::LARGE } else { 0 };
        Self::of(pfn, Self::PRESENT | Self::WRITE | Self::USER | Self::NO_EXECUTE | large)
    }

    /// A page of a device.
    pub(crate) const fn device(pfn: Pfn, level: Level) -> Self {
        Self(Self::page(pfn, level).0 | Self::DEVICE)
    }

    /// A page of a file, not writable.
    pub(crate) const fn file(pfn: Pfn) -> Self {
        Self((Self::page(pfn, Level::SMALL).0 | Self::FILE) & !Self::WRITE)
    }

    /// The entry, writable.
    pub(crate) const fn writable(self) -> Self {
        Self(self.0 | Self::WRITE)
    }

    /// A huge page of a pool, or a part of it.
    pub(crate) const fn pooled(pfn: Pfn, level: Level) -> Self {
        Self(Self::device(pfn, level).0 | Self::POOLED)
    }

    /// The entry for a device that counts its entries and users.
    pub(crate) const fn counted(self) -> Self {
        Self(self.0 | Self::COUNTED)
    }

    #[inline(always)]
    pub(crate) const fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    #[inline(always)]
    pub(crate) const fn bits(self) -> u64 {
        self.0
    }

    #[inline(always)]
    pub(crate) const fn pfn(self) -> Pfn {
        Pfn((self.0 & Self::FRAME) >> 12)
    }

    #[inline(always)]
    pub(crate) const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Whether it maps a page that is not in migration, or leads to a table.
    #[inline(always)]
    pub(crate) const fn is_present(self) -> bool {
        self.0 & Self::PRESENT != 0
    }

    /// Whether it leads to a table, as an entry of a table of that level.
    #[inline(always)]
    pub(crate) const fn is_table(self, level: Level) -> bool {
        level.0 > 0 && self.0 & (Self::PRESENT | Self::LARGE) == Self::PRESENT
    }

    #[inline(always)]
    pub(crate) const fn is_moving(self) -> bool {
        self.0 & (Self::PRESENT | Self::MOVING) == Self::MOVING
    }

    /// Whether it maps a huge page of a pool.
    #[inline(always)]
    pub(crate) const fn is_pooled(self) -> bool {
        self.0 & Self::POOLED != 0
    }

    /// Whether it maps a page of a device, or a huge page of a pool.
    #[inline(always)]
    pub(crate) const fn is_device(self) -> bool {
        self.0 & Self::DEVICE != 0
    }

    /// Whether it maps a page of a file.
    #[inline(always)]
    pub(crate) const fn is_file(self) -> bool {
        self.0 & Self::FILE != 0
    }

    /// Whether it maps neither a device nor a file: anonymous memory, unless it is empty or leads to a table.
    #[inline(always)]
    pub(crate) const fn is_anonymous(self) -> bool {
        self.0 & (Self::DEVICE | Self::FILE) == 0
    }

    /// Whether it maps a page of a device that counts its entries and users.
    #[inline(always)]
    pub(crate) const fn is_counted_device(self) -> bool {
        self.0 & (Self::DEVICE | Self::COUNTED) == Self::DEVICE | Self::COUNTED
    }

    /// Whether it maps a part of a block of order 9.
    #[inline(always)]
    pub(crate) const fn is_part(self) -> bool {
        self.0 & Self::PART != 0
    }

    pub(crate) const fn is_accessed(self) -> bool {
        self.0 & Self::ACCESSED != 0
    }

    pub(crate) const fn is_dirty(self) -> bool {
        self.0 & Self::DIRTY != 0
    }

    pub(crate) const fn is_writable(self) -> bool {
        self.0 & Self::WRITE != 0
    }

    /// Whether it allows the access.
    #[inline(always)]
    pub(crate) const fn allows(self, access: MemoryAccess) -> bool {
        matches!(access, MemoryAccess::Read) || self.is_writable()
    }

    /// The entry with the rights of its area.
    #[inline(always)]
    pub(crate) const fn protected(self, protection: Protection) -> Self {
        match protection {
            Protection::ReadWrite => self,
            Protection::ReadOnly => Self(self.0 & !Self::WRITE),
        }
    }

    /// The head of the frame's counted block.
    #[inline(always)]
    pub(crate) const fn head(self) -> Pfn {
        if self.is_part() { self.pfn().align_down(HUGE) } else { self.pfn() }
    }

    /// The entry with the accessed bit.
    #[inline(always)]
    pub(crate) const fn read(self) -> Self {
        Self(self.0 | Self::ACCESSED)
    }

    /// The entry with the accessed and dirty bits.
    #[inline(always)]
    pub(crate) const fn written(self) -> Self {
        Self(self.0 | Self::ACCESSED | Self::DIRTY)
    }

    /// The entry without the accessed bit.
    #[inline(always)]
    pub(crate) const fn unused(self) -> Self {
        Self(self.0 & !Self::ACCESSED)
    }

    /// The entry marked as in migration.
    pub(crate) const fn moving(self) -> Self {
        Self(self.0 & !Self::PRESENT | Self::MOVING)
    }

    /// The entry after a migration, for the new or the old frame.
    pub(crate) const fn moved(self, to: Pfn) -> Self {
        Self::of(to, self.0 & !(Self::FRAME | Self::MOVING) | Self::PRESENT)
    }

    /// One of the small entries that replace a split large entry of level 1, for a single page.
    pub(crate) const fn split(self, part: u64) -> Self {
        Self::of(Pfn((self.pfn().0 + part) % ENTRY_FRAMES_END.0), self.0 & !(Self::FRAME | Self::LARGE))
    }

    /// The small entry, marked as a part of a block.
    pub(crate) const fn of_block(self) -> Self {
        Self(self.0 | Self::PART)
    }

    /// The small entry without the mark: it maps a single page.
    pub(crate) const fn single(self) -> Self {
        Self(self.0 & !Self::PART)
    }
}

impl fmt::Debug for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Entry({:#x})", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_have_x86_64_bits() {
        let small = Entry::page(Pfn(0x12345), Level::SMALL);
        assert_eq!(small.bits(), 0x8000_0000_1234_5007, "present, writable, user, no code");
        assert_eq!(small.written().bits(), 0x8000_0000_1234_5067, "accessed and dirty");
        let huge = Entry::page(Pfn(0x200), Level::HUGE);
        assert_eq!(small.written().unused().bits(), 0x8000_0000_1234_5047, "the dirty bit stays");
        assert_eq!(huge.bits(), 0x8000_0000_0020_0087, "a large page");
        let guarded = small.protected(Protection::ReadOnly);
        assert_eq!(guarded.bits(), 0x8000_0000_1234_5005, "not writable");
        assert!(guarded.allows(MemoryAccess::Read) && !guarded.written().allows(MemoryAccess::Write));
        assert_eq!(Entry::table(Pfn(3)).bits(), 0x3027);
        assert!(
            Entry::table(Pfn(3)).is_table(Level::ROOT) && !huge.is_table(Level::HUGE) && !small.is_table(Level::SMALL)
        );
    }

    #[test]
    fn entries_of_files_are_neither_anonymous_nor_writable_at_first() {
        let entry = Entry::file(Pfn(0x12345)).read();
        assert_eq!(entry.bits(), 0x8020_0000_1234_5025, "present, user, accessed, a file, no code");
        assert!(entry.is_file() && !entry.is_anonymous() && !entry.is_device() && !entry.is_table(Level::SMALL));
        assert_eq!(entry.writable().written().bits(), 0x8020_0000_1234_5067);
        assert!(Entry::page(Pfn(1), Level::SMALL).is_anonymous() && !Entry::device(Pfn(1), Level::HUGE).is_anonymous());
    }

    #[test]
    fn moving_entry_keeps_flags_and_is_not_present() {
        let before = Entry::page(Pfn(7), Level::SMALL).written();
        let moving = before.moving();
        assert!(moving.is_moving() && !moving.is_present() && !moving.is_empty());
        assert_eq!((moving.pfn(), moving.moved(Pfn(7))), (Pfn(7), before));
        assert_eq!(moving.moved(Pfn(9)), Entry::page(Pfn(9), Level::SMALL).written());
    }

    #[test]
    fn parts_name_the_head_of_their_block() {
        let huge = Entry::page(Pfn(0x400), Level::HUGE).written();
        let part = huge.split(5);
        assert_eq!(part, Entry::page(Pfn(0x405), Level::SMALL).written());
        assert_eq!((part.head(), part.of_block().head()), (Pfn(0x405), Pfn(0x400)));
    }

    #[test]
    fn each_level_translates_nine_address_bits() {
        let addr = 0x0000_7fff_ffff_f000;
        assert_eq!(Level::ROOT.index(addr), 255);
        assert_eq!((Level(2).index(addr), Level::HUGE.index(addr), Level::SMALL.index(addr)), (511, 511, 511));
        assert_eq!((Level::HUGE.span(), Level(2).span(), Level::ROOT.pages()), (2 << 20, 1 << 30, 1 << 27));
    }
}
