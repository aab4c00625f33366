//! The owner's word of a page: the role of a frame in this crate, in one word.
//!
//! | bits | meaning |
//! |---|---|
//! | 0–7 | [`PageKind`], the kind of owner |
//! | 8–15 | [`Flags`] |
//! | 17–23 | shard of the LRU list that it is on, or was last on |
//! | 24–63 | the [`ObjectId`] of its space, file or table |
//!
//! Flags change by atomic operations on the word. Kind and object change only under exclusive access to the page.

use frameyard::owners::OwnerKind;

use crate::object_id::ObjectId;

mod users;

pub use users::{PAGE_FIELDS, PageField, PageUser};

/// The role of a frame in this crate: its kind of owner.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub(crate) enum PageKind {
    /// A page of an address space. Object: its space; index: its address.
    Anonymous = 1,
    /// A page of a file. Object: its file; index: its number in the file.
    Cache = 2,
    /// A page of page tables. Object: its space.
    PageTable = 3,
    /// Small objects. Never moves.
    Objects = 4,
    /// The root. Never moves.
    Root = 5,
    /// A page of the crate's user, counted by itself.
    Plain = 6,
}

impl PageKind {
    /// The kind in the core's type.
    #[must_use]
    pub(crate) const fn owner(self) -> OwnerKind {
        OwnerKind(self as u8)
    }

    pub(crate) const fn of_word(word: u64) -> Option<Self> {
        match word as u8 {
            1 => Some(Self::Anonymous),
            2 => Some(Self::Cache),
            3 => Some(Self::PageTable),
            4 => Some(Self::Objects),
            5 => Some(Self::Root),
            6 => Some(Self::Plain),
            _ => None,
        }
    }
}

/// Flags of a page, as bits of the owner's word.
pub(crate) struct Flags;

impl Flags {
    /// On an LRU list. The CPU that clears it with an exchange may remove the page from the list.
    pub(crate) const LRU: u64 = 1 << 8;
    /// On an active list, or headed for one.
    pub(crate) const ACTIVE: u64 = 1 << 9;
    /// Used since the last ageing look.
    pub(crate) const REFERENCED: u64 = 1 << 10;
    /// Written since it was last written back.
    pub(crate) const DIRTY: u64 = 1 << 11;
    /// Its bytes are the file's contents.
    pub(crate) const UPTODATE: u64 = 1 << 12;
    /// Isolated for migration.
    pub(crate) const ISOLATED: u64 = 1 << 13;
    /// Read ahead. Reading it starts the next readahead.
    pub(crate) const READAHEAD: u64 = 1 << 14;
    /// Removed from its file. The holder of the last reference frees it.
    pub(crate) const TRUNCATED: u64 = 1 << 15;
}

const FLAGS_SHIFT: u32 = 8;
const SHARD_SHIFT: u32 = 17;
/// The number of shards that a page can name.
pub(crate) const MAX_SHARDS: u16 = 128;
const SHARD_MASK: u64 = (MAX_SHARDS as u64 - 1) << SHARD_SHIFT;
const OBJECT_SHIFT: u32 = 24;

/// Builds an owner's word.
pub(crate) const fn owner_word(kind: PageKind, object: ObjectId, flags: u64) -> u64 {
    kind as u64 | flags | object.bits() << OBJECT_SHIFT
}

/// The object in the word.
pub(crate) const fn object_of(word: u64) -> ObjectId {
    ObjectId::from_bits(word >> OBJECT_SHIFT)
}

/// The shard in the word.
pub(crate) const fn shard_of(word: u64) -> u16 {
    ((word & SHARD_MASK) >> SHARD_SHIFT) as u16
}

/// The word with another shard.
pub(crate) const fn with_shard(word: u64, shard: u16) -> u64 {
    word & !SHARD_MASK | (shard as u64) << SHARD_SHIFT & SHARD_MASK
}
