//! The fields of a page structure by the user of the page: what each byte holds, for `frameyard layout` and for readers.
//!
//! Offsets come from the core's [`PAGE_WORDS`] and from the shifts of the owner's word. The test of this module uses pages in all
//! these ways, and compares every bit that their words ever have with the table.

use frameyard::page::{PAGE_WORDS, PageWord};
use frameyard::units::named;

use super::{FLAGS_SHIFT, OBJECT_SHIFT, SHARD_SHIFT};

/// The users of pages, told apart as far as their page structures differ.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum PageUser {
    /// Small objects of this crate: spaces, areas, files and nodes of files.
    SmallObjects,
    /// A page of a file.
    PageCache,
    /// A single page of an address space.
    Anonymous,
    /// The first page of a huge page of an address space.
    HugeHead,
    /// Any other page of a huge page.
    Tail,
    /// A page table.
    PageTable,
}

use PageUser::{Anonymous, HugeHead, PageCache, PageTable, SmallObjects, Tail};

named!(PageUser: SmallObjects => "small-objects", PageCache => "page-cache", Anonymous => "anonymous",
    HugeHead => "huge-head", Tail => "tail", PageTable => "page-table");

/// The users for which a field has some content; none: all other users but tails.
type Use = (&'static [PageUser], &'static str);

/// Some bytes of a page structure, and what they contain for each user.
#[derive(Clone, Copy, Debug)]
pub struct PageField {
    /// The name of the word of the core that contains the bytes.
    pub word: &'static str,
    /// The offset of the first byte.
    pub offset: usize,
    /// The number of bytes.
    pub size: usize,
    uses: &'static [Use],
}

impl PageField {
    /// What the bytes contain for that user: `"0"` if they are all zero.
    #[must_use]
    pub fn holds(&self, user: PageUser) -> &'static str {
        let fits = |users: &[PageUser]| users.contains(&user) || (users.is_empty() && user != Tail);
        self.uses.iter().find(|(users, _)| fits(users)).map_or(ZERO, |(_, content)| content)
    }
}

const ZERO: &str = "0";
const LISTED: &[PageUser] = &[PageCache, Anonymous, HugeHead];
const MAPPED: &[PageUser] = &[Anonymous, HugeHead];

/// Words of the core, as places in [`PAGE_WORDS`].
const TAG: usize = 0;
const NEXT: usize = 1;
const PREV: usize = 2;
const IDENTITY: usize = 3;
const COUNTS: usize = 4;
const OWNER: usize = 5;
const INDEX: usize = 6;
/// The two spare words.
const SPARE: [usize; 2] = [7, 8];

const SHARD_BYTE: usize = SHARD_SHIFT as usize / 8;
const OBJECT_BYTE: usize = OBJECT_SHIFT as usize / 8;

/// Every byte of a page structure, in order.
pub const PAGE_FIELDS: [PageField; 18] = [
    field(TAG, 0, 1, &[(&[], "state: counted")]),
    field(TAG, 1, 1, &[(&[HugeHead], "order: 9")]),
    field(TAG, 2, 1, &[(LISTED, "migration type"), (&[], "0: unmovable")]),
    field(TAG, 3, 1, &[]),
    field(TAG, 4, 2, &[(&[], "zone")]),
    field(TAG, 6, 2, &[]),
    field(
        NEXT,
        0,
        4,
        &[
            (LISTED, "next page of its LRU list"),
            (&[SmallObjects], "next frame with a free slot; spaces and files: next frame"),
            (&[PageTable], "deposited: next deposited table; else 0"),
        ],
    ),
    field(
        PREV,
        0,
        4,
        &[
            (LISTED, "previous page of its LRU list"),
            (&[SmallObjects], "previous frame with a free slot; spaces and files: next frame with a free slot"),
        ],
    ),
    field(IDENTITY, 0, 8, &[(&PageUser::ALL, "0; kernel-like content: zone and section")]),
    field(COUNTS, 0, 4, &[(&[], "references")]),
    field(
        COUNTS,
        4,
        4,
        &[(LISTED, "mappings; kernel-like content: less 1"), (&PageUser::ALL, "0; kernel-like content: -1")],
    ),
    field(OWNER, 0, FLAGS_SHIFT as usize / 8, &[(&[], "kind of owner")]),
    field(OWNER, FLAGS_SHIFT as usize / 8, SHARD_BYTE - FLAGS_SHIFT as usize / 8, &[(LISTED, "flags")]),
    field(OWNER, SHARD_BYTE, OBJECT_BYTE - SHARD_BYTE, &[(LISTED, "shard of its LRU list")]),
    field(
        OWNER,
        OBJECT_BYTE,
        8 - OBJECT_BYTE,
        &[(MAPPED, "its space"), (&[PageCache], "its file"), (&[PageTable], "its space")],
    ),
    field(
        INDEX,
        0,
        8,
        &[
            (&[SmallObjects], "kind of objects"),
            (&[PageCache], "number in the file"),
            (MAPPED, "address"),
            (&[PageTable], "first address and level"),
        ],
    ),
    field(
        SPARE[0],
        0,
        8,
        &[
            (&[SmallObjects], "free slots, a bit each"),
            (&[PageCache], "page lock: its holder"),
            (&[PageTable], "entries in use, and those that map anonymous memory"),
        ],
    ),
    field(
        SPARE[1],
        0,
        8,
        &[
            (&[PageCache], "references taken by gets and pins"),
            (&[HugeHead], "pins"),
            (&[PageTable], "first deposited table"),
        ],
    ),
];

const fn field(word: usize, from: usize, size: usize, uses: &'static [Use]) -> PageField {
    let PageWord { name: word, offset, .. } = PAGE_WORDS[word];
    PageField { word, offset: offset + from, size, uses }
}

#[cfg(not(loom))]
const _: () = {
    let (mut end, mut at) = (0, 0);
    while at < PAGE_FIELDS.len() {
        assert!(PAGE_FIELDS[at].offset == end, "the table has no gap and no overlap");
        end += PAGE_FIELDS[at].size;
        at += 1;
    }
    assert!(end == size_of::<frameyard::page::Page>(), "the table covers the whole page");
};

#[cfg(all(test, not(loom)))]
mod tests;
