//! The table of page words: the offset of each word and what it contains in each state, for `frameyard layout` and for
//! readers.

use core::mem::offset_of;

use crate::page::FrameState::{self, Allocated, BuddyFree, Counted, Device, Interior, PerCpu, Pooled};
use crate::page::{COUNTS, IDENTITY, INDEX, MECHANISM, OWNER, PAYLOAD_WORDS, Page, SPARE};

/// The states in which a word has some content; none: all other states.
type Use = (&'static [FrameState], &'static str);

/// One word of a [`Page`], with its content in each state.
#[derive(Clone, Copy, Debug)]
pub struct PageWord {
    /// The word's name in the code.
    pub name: &'static str,
    /// Its offset in bytes.
    pub offset: usize,
    /// Its size in bytes.
    pub size: usize,
    uses: &'static [Use],
}

impl PageWord {
    /// What the word contains in a frame of that state: `"0"` if it must be zero, `"as interior"` if it is as in a
    /// fresh page.
    #[must_use]
    pub fn holds(&self, state: FrameState) -> &'static str {
        let of_state = self.uses.iter().find(|(states, _)| states.is_empty() || states.contains(&state));
        of_state.map_or("", |(_, content)| content)
    }
}

const USERS: &[FrameState] = &[Counted, Device, Pooled];
const ZERO: Use = (&[Interior], "0");
const MEMBER: Use = (&[PerCpu], "member of a packed batch: frame indices; else as interior");
const OWNERS: Use = (USERS, "its owner's");
const FRESH: Use = (&[], "as interior");

const TAG: &[Use] = &[
    ZERO,
    (&[BuddyFree], "state, order, list's migration type, whether reported, unmerged, tentative, zone"),
    (&[PerCpu, Allocated], "either of per-cpu and allocated, order, migration type, zone; a single frame may have 0"),
    (&[], "state, order, migration type, zone"),
];
const NEXT_BATCH: Use = (&[PerCpu], "head of a packed batch: next batch; else 0");
const POOL: Use = (&[Pooled], "next free page of the pool; else 0");
const NEXT: &[Use] = &[(&[BuddyFree], "next block of the list"), NEXT_BATCH, POOL, OWNERS, (&[], "0")];
const BATCH_SIZE: Use = (&[PerCpu], "head of a packed batch: its size; else 0");
const PREV: &[Use] = &[(&[BuddyFree], "previous block of the list"), BATCH_SIZE, (&[Pooled], "0"), OWNERS, (&[], "0")];
const COUNTED: &[Use] =
    &[(&[Interior], "0; kernel-like content: map count -1"), (USERS, "references and mappings"), FRESH];

/// Every word of a [`Page`] in order, with the real offsets.
pub const PAGE_WORDS: [PageWord; 9] = [
    PageWord { name: "tag", offset: offset_of!(Page, tag), size: 8, uses: TAG },
    PageWord { name: "next", offset: offset_of!(Page, next), size: 4, uses: NEXT },
    PageWord { name: "prev", offset: offset_of!(Page, prev), size: 4, uses: PREV },
    payload("identity", IDENTITY, 1, &[(&[Interior], "0; kernel-like content: zone and section"), MEMBER, FRESH]),
    payload("counts", COUNTS, 1, COUNTED),
    payload("owner", OWNER, 1, &[ZERO, MEMBER, (USERS, "kind of owner, and its data"), FRESH]),
    payload(
        "index",
        INDEX,
        1,
        &[ZERO, MEMBER, (&[Pooled], "bytes of the map given back"), (USERS, "place in the owner's object"), FRESH],
    ),
    payload("spare", SPARE, MECHANISM - SPARE, &[ZERO, MEMBER, OWNERS, FRESH]),
    payload(
        "mechanism",
        MECHANISM,
        PAYLOAD_WORDS - MECHANISM,
        &[ZERO, (&[BuddyFree], "a transfer mechanism's if the tag is tentative, or 0"), MEMBER, OWNERS, FRESH],
    ),
];

const fn payload(name: &'static str, first: usize, words: usize, uses: &'static [Use]) -> PageWord {
    PageWord { name, offset: offset_of!(Page, payload) + first * 8, size: words * 8, uses }
}

#[cfg(not(loom))]
const _: () = {
    let mut end = 0;
    let mut word = 0;
    while word < PAGE_WORDS.len() {
        assert!(PAGE_WORDS[word].offset == end, "the table has no gap and no overlap");
        end += PAGE_WORDS[word].size;
        word += 1;
    }
    assert!(end == size_of::<Page>(), "the table covers the whole page");
};
