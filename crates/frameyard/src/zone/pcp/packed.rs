//! A batch of blocks packed into the pages of its own members.
//!
//! The leader (the batch's first block) holds the size of the batch, the link to the next batch of the chain
//! and the frame indices of the next ten members; the members that follow it, the carriers, hold ten
//! further indices each. So a batch of 64 blocks needs no memory, and packing, moving or unpacking it touches
//! seven pages instead of 64. The word of counts stays as it is: who found the page by number, while it was in use, may
//! still look there whether it has users.
//!
//! A batch whose members follow each other at equal steps, as neighbours do that were cut from one block or freed one behind
//! the other, is a *row*: its leader holds the size and the step, and there are no carriers.
//!
//! Members other than leader and carriers keep nothing but their tag. Whoever packs or unpacks owns all members.

use crate::memmap::MemMap;
use crate::page::{COUNTS, Link, PAYLOAD_WORDS, PageRef};
use crate::platform::Platform;

/// The most blocks a batch has. (Few in models, so that small ones reach every path.)
pub(crate) const BATCH: usize = if cfg!(loom) { 2 } else { 64 };

/// The payload words that hold two indices each.
const CARRYING: [usize; PAYLOAD_WORDS - 1] = [0, 2, 3, 4, 5];
const PER_PAGE: usize = 2 * CARRYING.len();

/// With the size of a batch: it is a row, and [`STEP`] holds the step from one member to the next.
const ROW: u32 = 1 << 31;
/// The payload word of a row's leader that holds the step, as a number of 32 bits that wraps around.
const STEP: usize = CARRYING[0];

const _: () = assert!(COUNTS == 1, "the word of counts carries nothing");
const _: () = assert!((BATCH - 1).div_ceil(PER_PAGE) <= 1 + PER_PAGE, "the leader names all carriers");

/// The page that holds entry `at` of a batch, and the half word it stands in.
fn place(at: usize) -> (usize, usize, u32) {
    let stored = at - 1;
    let within = stored % PER_PAGE;
    (stored / PER_PAGE, CARRYING[within / 2], 32 * (within as u32 % 2))
}

/// Packs up to [`BATCH`] blocks and puts the batch in front of `next`.
///
/// # Panics
///
/// Where `entries` is empty or longer than a batch.
pub(crate) fn pack<P: Platform>(map: MemMap, platform: &P, entries: &[u32], next: Link) -> Link {
    assert!((1..=BATCH).contains(&entries.len()), "a batch has 1 to {BATCH} blocks");
    let page = |at: usize| map.page(map.listed(entries[at]), platform);
    let leader = page(0);
    leader.set_next(next);
    if let Some(step) = step_of(entries) {
        leader.set_prev(Link(entries.len() as u32 | ROW));
        leader.set_payload(STEP, step.into());
        return map.link(map.pfn(entries[0]));
    }
    leader.set_prev(Link(entries.len() as u32));
    for carrier in 0..(entries.len() - 1).div_ceil(PER_PAGE) {
        let page = page(carrier);
        let stored = &entries[1 + carrier * PER_PAGE..];
        for (word, pair) in CARRYING.into_iter().zip(stored.chunks(2)) {
            let high = pair.get(1).copied().unwrap_or(0);
            page.set_payload(word, u64::from(pair[0]) | u64::from(high) << 32);
        }
    }
    map.link(map.pfn(entries[0]))
}

/// The step by which entries follow each other, where all do by the same.
fn step_of(entries: &[u32]) -> Option<u32> {
    let [first, second, ..] = entries else { return None };
    let step = second.wrapping_sub(*first);
    // From the far end: entries in no order differ there as soon as anywhere, and most batches are looked at no further.
    entries.windows(2).rev().all(|pair| pair[1].wrapping_sub(pair[0]) == step).then_some(step)
}

/// How many blocks a leader's batch has.
pub(crate) fn len_of<P: Platform>(leader: &PageRef<'_, P>) -> usize {
    ((leader.prev().0 & !ROW) as usize).clamp(1, BATCH)
}

/// What [`unpack`] found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Unpacked {
    pub(crate) len: usize,
    is_row: bool,
    pub(crate) next: Link,
}

/// Unpacks a batch into `entries`, in the order it was packed from, and makes what it used of the pages
/// as it was when they were initialised.
pub(crate) fn unpack<P: Platform>(map: MemMap, platform: &P, leader: Link, entries: &mut [u32; BATCH]) -> Unpacked {
    let found = read(map, platform, leader, entries);
    let pages = if found.is_row { 1 } else { (found.len - 1).div_ceil(PER_PAGE).max(1) };
    for (carrier, entry) in entries.iter().enumerate().take(pages) {
        let page = map.page(map.listed(*entry), platform);
        if carrier == 0 {
            page.set_next(Link::NONE);
            page.set_prev(Link::NONE);
        }
        let fresh = map.template(map.pfn(*entry), Some(page.tag().zone())).payload();
        for word in CARRYING {
            page.set_payload(word, fresh[word]);
        }
    }
    found
}

/// Reads a batch and changes nothing.
pub(crate) fn read<P: Platform>(map: MemMap, platform: &P, leader: Link, entries: &mut [u32; BATCH]) -> Unpacked {
    let first = map.index(map.linked(leader).unwrap_or(map.range().start));
    entries[0] = first;
    let page: PageRef<'_, P> = map.page(map.listed(first), platform);
    let (len, is_row) = (len_of(&page), page.prev().0 & ROW != 0);
    if is_row {
        let step = page.payload(STEP) as u32;
        for (at, entry) in entries[..len].iter_mut().enumerate() {
            *entry = first.wrapping_add(step.wrapping_mul(at as u32));
        }
        return Unpacked { len, is_row, next: page.next() };
    }
    for at in 1..len {
        let (carrier, word, shift) = place(at);
        let page = map.page(map.listed(entries[carrier]), platform);
        entries[at] = (page.payload(word) >> shift) as u32;
    }
    Unpacked { len, is_row, next: page.next() }
}
