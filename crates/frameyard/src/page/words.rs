//! The page-word table: each word's offset and its use in each state, for `frameyard layout` and for readers.

use core::mem::{offset_of, size_of};

use super::{CLUSTER, COUNTS, FrameState, IDENTITY, INDEX, OWNER, PAYLOAD_WORDS, Page, SPARE};
use crate::sync::{AtomicU32, AtomicU64};

/// One word of a [`Page`], and its content in each state.
#[derive(Clone, Copy, Debug)]
pub struct PageWord {
    /// The word's name in the code.
    pub name: &'static str,
    /// Its offset in bytes.
    pub offset: usize,
    /// Its size in bytes.
    pub size: usize,
    uses: fn(FrameState) -> &'static str,
}

impl PageWord {
    /// The content in a frame of that state: `"0"` if it must be zero, `"as interior"` if it is that of a fresh page.
    #[must_use]
    pub fn holds(&self, state: FrameState) -> &'static str {
        (self.uses)(state)
    }
}

/// Every word of a [`Page`], in order, from the real offsets.
pub const PAGE_WORDS: [PageWord; 9] = [
    PageWord { name: "tag", offset: offset_of!(Page, tag), size: size_of::<AtomicU64>(), uses: tag },
    PageWord { name: "next", offset: offset_of!(Page, next), size: size_of::<AtomicU32>(), uses: next },
    PageWord { name: "prev", offset: offset_of!(Page, prev), size: size_of::<AtomicU32>(), uses: prev },
    payload("identity", IDENTITY, 1, identity),
    payload("counts", COUNTS, 1, counts),
    payload("owner", OWNER, 1, owner),
    payload("index", INDEX, 1, index),
    payload("spare", SPARE, CLUSTER - SPARE, spare),
    payload("cluster", CLUSTER, PAYLOAD_WORDS - CLUSTER, cluster),
];

const fn payload(name: &'static str, first: usize, words: usize, uses: fn(FrameState) -> &'static str) -> PageWord {
    let word = size_of::<AtomicU64>();
    PageWord { name, offset: offset_of!(Page, payload) + first * word, size: words * word, uses }
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

fn tag(state: FrameState) -> &'static str {
    match state {
        FrameState::Interior => "0",
        FrameState::BuddyFree => "state, order, list's migration type, whether reported, unmerged, in a cluster, zone",
        FrameState::PerCpu | FrameState::Allocated => "either of per-cpu and allocated, order, migration type, zone",
        _ => "state, order, migration type, zone",
    }
}

fn next(state: FrameState) -> &'static str {
    match state {
        FrameState::BuddyFree | FrameState::HeldFree => "next block of the list",
        FrameState::PerCpu => "head of a packed batch: next batch; else 0",
        FrameState::Counted | FrameState::Device => OWNERS,
        _ => "0",
    }
}

fn prev(state: FrameState) -> &'static str {
    match state {
        FrameState::BuddyFree | FrameState::HeldFree => "previous block of the list",
        FrameState::PerCpu => "head of a packed batch: its size; else 0",
        FrameState::Counted | FrameState::Device => OWNERS,
        _ => "0",
    }
}

const OWNERS: &str = "its owner's";

fn identity(state: FrameState) -> &'static str {
    match state {
        FrameState::Interior => "0; kernel-like content: zone and section",
        FrameState::PerCpu => MEMBER,
        _ => "as interior",
    }
}

fn counts(state: FrameState) -> &'static str {
    match state {
        FrameState::Interior => "0; kernel-like content: map count -1",
        FrameState::Counted | FrameState::Device => "references and mappings",
        _ => "as interior",
    }
}

fn owner(state: FrameState) -> &'static str {
    carried(state, "kind of owner, and its data")
}

fn index(state: FrameState) -> &'static str {
    carried(state, "place in the owner's object")
}

fn spare(state: FrameState) -> &'static str {
    carried(state, OWNERS)
}

fn cluster(state: FrameState) -> &'static str {
    match state {
        FrameState::BuddyFree => "number of its cluster plus 1, or 0",
        _ => carried(state, OWNERS),
    }
}

const MEMBER: &str = "member of a packed batch: frame indices; else as interior";

fn carried(state: FrameState, counted: &'static str) -> &'static str {
    match state {
        FrameState::Interior => "0",
        FrameState::PerCpu => MEMBER,
        FrameState::Counted | FrameState::Device => counted,
        _ => "as interior",
    }
}
