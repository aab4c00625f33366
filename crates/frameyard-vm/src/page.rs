//! The owner's word of pages: what a frame is to this crate, in one word.
//!
//! | bits | meaning |
//! |---|---|
//! | 0–7 | [`PageKind`], the kind of owner |
//! | 8–17 | [`Flags`] |
//! | 18–23 | shard of the lists of used pages that it is on, or was last |
//! | 24–63 | the [`ObjectId`] of its space, file or table |
//!
//! Flags change by atomic operations of the word, kind and object only while somebody has the page alone.

use frameyard::owners::OwnerKind;

use crate::object_id::ObjectId;

/// What a frame is to this crate: its kind of owner.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub(crate) enum PageKind {
    /// A page of an address space. Object: its space; index: its address.
    Anonymous = 1,
    /// A page of a file. Object: its file; index: its number in it.
    Cache = 2,
    /// A page of page tables. Object: its space.
    PageTable = 3,
    /// Small objects. Never moves.
    Objects = 4,
    /// What all views find everything by. Never moves.
    Root = 5,
    /// A page of whoever uses this crate, counted by itself.
    Plain = 6,
}

impl PageKind {
    /// The kind as the core knows it.
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
    /// On a list of used pages. Who clears it, by exchange, is the one who may take the page off.
    pub(crate) const LRU: u64 = 1 << 8;
    /// On an active list, or on its way there.
    pub(crate) const ACTIVE: u64 = 1 << 9;
    /// Used since it was last looked at.
    pub(crate) const REFERENCED: u64 = 1 << 10;
    /// Written since it was last written back.
    pub(crate) const DIRTY: u64 = 1 << 11;
    /// Somebody has the page's bytes or its place in a file for himself.
    pub(crate) const LOCKED: u64 = 1 << 12;
    /// Its bytes are what the file holds.
    pub(crate) const UPTODATE: u64 = 1 << 13;
    /// Set aside for migration.
    pub(crate) const ISOLATED: u64 = 1 << 14;
    /// Brought by readahead: reading it brings more.
    pub(crate) const READAHEAD: u64 = 1 << 15;
    /// Taken out of its file; who still has a reference frees it.
    pub(crate) const TRUNCATED: u64 = 1 << 16;
}

const SHARD_SHIFT: u32 = 17;
/// How many shards a page can name.
pub(crate) const MAX_SHARDS: u16 = 128;
const SHARD_MASK: u64 = (MAX_SHARDS as u64 - 1) << SHARD_SHIFT;
const OBJECT_SHIFT: u32 = 24;

/// An owner's word of those parts, with some flags.
pub(crate) const fn owner_word(kind: PageKind, object: ObjectId, flags: u64) -> u64 {
    kind as u64 | flags | object.bits() << OBJECT_SHIFT
}

/// The object that a word names.
pub(crate) const fn object_of(word: u64) -> ObjectId {
    ObjectId::from_bits(word >> OBJECT_SHIFT)
}

/// The shard that a word names.
pub(crate) const fn shard_of(word: u64) -> u16 {
    ((word & SHARD_MASK) >> SHARD_SHIFT) as u16
}

/// The word with another shard.
pub(crate) const fn with_shard(word: u64, shard: u16) -> u64 {
    word & !SHARD_MASK | (shard as u64) << SHARD_SHIFT & SHARD_MASK
}
