//! The page-word table: each word's offset and its use in each state, for `frameyard layout` and for readers.

use core::mem::{offset_of, size_of};

use super::{FrameState, PAYLOAD_WORDS, Page};
use crate::sync::{AtomicU32, AtomicU64};

/// One word of a [`Page`] and what it holds, state by state.
#[derive(Clone, Copy, Debug)]
pub struct PageWord {
    /// The word's name in the code.
    pub name: &'static str,
    /// Where it begins, in bytes.
    pub offset: usize,
    /// How many bytes it has.
    pub size: usize,
    uses: fn(FrameState) -> &'static str,
}

impl PageWord {
    /// What the word holds in a frame of that state; `"0"` where it must be zero, `"as interior"` where it is what the
    /// map's content says.
    #[must_use]
    pub fn holds(&self, state: FrameState) -> &'static str {
        (self.uses)(state)
    }
}

/// Every word of a [`Page`], in order, from the real offsets.
pub const PAGE_WORDS: [PageWord; 4] = [
    PageWord { name: "tag", offset: offset_of!(Page, tag), size: size_of::<AtomicU64>(), uses: tag },
    PageWord { name: "next", offset: offset_of!(Page, next), size: size_of::<AtomicU32>(), uses: next },
    PageWord { name: "prev", offset: offset_of!(Page, prev), size: size_of::<AtomicU32>(), uses: prev },
    PageWord {
        name: "payload",
        offset: offset_of!(Page, payload),
        size: size_of::<[AtomicU64; PAYLOAD_WORDS]>(),
        uses: payload,
    },
];

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
        FrameState::BuddyFree => "state, order, list's migration type, zone",
        _ => "state, order, migration type, zone",
    }
}

fn next(state: FrameState) -> &'static str {
    match state {
        FrameState::BuddyFree => "next block of the list",
        FrameState::PerCpu => "leader of a packed batch: next batch; else 0",
        _ => "0",
    }
}

fn prev(state: FrameState) -> &'static str {
    match state {
        FrameState::BuddyFree => "previous block of the list",
        FrameState::PerCpu => "leader of a packed batch: its size; else 0",
        _ => "0",
    }
}

fn payload(state: FrameState) -> &'static str {
    match state {
        FrameState::PerCpu => "carrier of a packed batch: 12 frame indices; else as interior",
        FrameState::Interior => "0; kernel-like content: zone and section, counts, 0",
        _ => "as interior",
    }
}
