//! A packed batch: a batch of blocks stored in the page structures of its own members.
//!
//! The *head* is the first block of the batch. Its page has the size of the batch, the link to the next batch of the
//! chain, and the indices of the next ten blocks. The pages of these *members* have ten more indices each, as far as
//! the batch needs them. So a batch of 64 blocks needs no memory of its own, and packing, moving or unpacking it
//! touches seven pages instead of 64.
//!
//! If the blocks are at equal distances, as neighbours from one larger block are, the head stores the distance instead
//! of indices, and no other page is touched.
//!
//! Packing does not touch the word of counts, because a thread that found the page by number may still read there
//! whether it has users. Pages that store no indices keep only their tag, if they have one. The caller of each function
//! owns all blocks of the batch.

use crate::memmap::MemMap;
use crate::page::{COUNTS, FrameName, Link, PAYLOAD_WORDS, PageRef};
use crate::platform::Platform;
use crate::store::batch::BATCH;
use crate::units::{Order, Pfn, ZoneId};
use crate::zone::fixed_vec::FixedVec;

/// The payload words that hold two indices each.
const INDEX_WORDS: [usize; PAYLOAD_WORDS - 1] = [0, 2, 3, 4, 5];
const PER_PAGE: usize = 2 * INDEX_WORDS.len();

/// Set together with the size of a batch: the blocks follow each other at equal steps, and [`STEP`] holds the step.
const STEPPED: u32 = 1 << 31;
/// The head's payload word that holds the step as a wrapping 32-bit number.
const STEP: usize = INDEX_WORDS[0];

/// The most blocks of a packed batch, also in models.
const LONGEST: usize = 64;

const _: () = assert!(COUNTS == 1, "the word of counts holds no index");
const _: () = assert!(BATCH <= LONGEST, "a batch can be packed");
const _: () =
    assert!((LONGEST - 1).div_ceil(PER_PAGE) <= 1 + PER_PAGE, "the head holds the indices of all storing members");

/// Packs up to [`LONGEST`] blocks and puts the batch in front of `next`. Returns the link to its head.
///
/// # Panics
///
/// If `entries` is empty or longer than a batch.
pub(crate) fn pack<P: Platform>(map: MemMap, platform: &P, entries: &[u32], next: Link) -> Link {
    assert!((1..=LONGEST).contains(&entries.len()), "a batch has 1 to {LONGEST} blocks");
    if let Some(step) = step_of(entries) {
        return pack_steps(map, platform, (entries[0], step, entries.len()), next);
    }
    let page = |at: usize| map.page(map.checked(entries[at]), platform);
    let head = page(0);
    head.set_next(next);
    head.set_prev(Link(entries.len() as u32));
    let (pages, rest) = entries[1..].as_chunks::<PER_PAGE>();
    for (storing, indices) in pages.iter().enumerate() {
        // By their places in an array of known length: without a condition for each.
        let page = page(storing);
        for (at, word) in INDEX_WORDS.into_iter().enumerate() {
            page.set_payload(word, u64::from(indices[2 * at]) | u64::from(indices[2 * at + 1]) << 32);
        }
    }
    for (word, pair) in INDEX_WORDS.into_iter().zip(rest.chunks(2)) {
        let high = pair.get(1).copied().unwrap_or(0);
        page(pages.len()).set_payload(word, u64::from(pair[0]) | u64::from(high) << 32);
    }
    map.link_at(entries[0])
}

/// As [`pack`], for up to [`LONGEST`] blocks that follow each other at equal steps: the first, the step, and their number.
#[inline(always)]
pub(crate) fn pack_steps<P: Platform>(
    map: MemMap,
    platform: &P,
    (first, step, blocks): (u32, u32, usize),
    next: Link,
) -> Link {
    let head = map.page(map.checked(first), platform);
    head.set_next(next);
    head.set_prev(Link(blocks as u32 | STEPPED));
    head.set_payload(STEP, step.into());
    map.link_at(first)
}

/// The step between all neighbouring entries, if it is the same everywhere.
fn step_of(entries: &[u32]) -> Option<u32> {
    let [first, second, .., last] = entries else { return None };
    let step = second.wrapping_sub(*first);
    // Unordered entries most likely differ at the far end. All are compared without branches, several at a time.
    if last.wrapping_sub(*first) != step.wrapping_mul(entries.len() as u32 - 1) {
        return None;
    }
    let (mut expected, mut bits) = (*first, 0);
    for entry in entries {
        bits |= entry ^ expected;
        expected = expected.wrapping_add(step);
    }
    (bits == 0).then_some(step)
}

fn len_in(size: Link) -> usize {
    ((size.0 & !STEPPED) as usize).clamp(1, LONGEST)
}

/// Unpacks a batch of blocks of an order, all of that zone, into `batch`, which is empty, in the order it was packed in, and restores
/// the words that it used to their initial values. Returns the next batch of the chain; `None`, and an empty batch, if a block cannot begin where an
/// index says.
pub(crate) fn unpack<P: Platform, const N: usize>(
    map: MemMap,
    (platform, zone): (&P, ZoneId),
    (head, order): (Link, Order),
    batch: &mut FixedVec<u32, N>,
) -> Option<Link> {
    let first = head.0.wrapping_sub(1);
    let read = read(first, batch, |index| Some(map.page(map.entry(index)?, platform)));
    let Some(Unpacked { is_stepped, next }) = read.filter(|_| map.may_all_begin(batch, order)) else {
        batch.clear();
        return None;
    };
    let pages = if is_stepped { 1 } else { (batch.len() - 1).div_ceil(PER_PAGE).max(1) };
    for (storing, entry) in batch.iter().enumerate().take(pages) {
        let at = map.checked(*entry);
        let page = map.page(at, platform);
        if storing == 0 {
            page.set_next(Link::NONE);
            page.set_prev(Link::NONE);
        }
        let fresh = map.template_at(at, Some(zone)).payload();
        INDEX_WORDS.into_iter().for_each(|word| page.set_payload(word, fresh[word]));
    }
    Some(next)
}

/// A packed batch, read.
#[derive(Clone, Copy, Debug)]
struct Unpacked {
    is_stepped: bool,
    /// The next batch of the chain.
    next: Link,
}

/// Reads a batch, without a change, that may be damaged or change meanwhile. Returns the next batch of the chain; `None` if a page
/// that stores indices has no memory, according to `page_of`. The entries may be anything.
pub(crate) fn read_checked<'p, P: Platform + 'p, const N: usize>(
    map: MemMap,
    head: Link,
    batch: &mut FixedVec<u32, N>,
    page_of: impl Fn(Pfn) -> Option<PageRef<'p, P>>,
) -> Option<Link> {
    let first = head.0.checked_sub(1).filter(|place| u64::from(*place) < map.places())?;
    Some(read(first, batch, |index| page_of(map.pfn(index)))?.next)
}

/// Reads a batch into `batch`, which is empty, without a change. Looks only at pages that `page_at` returns.
#[inline(always)]
fn read<'p, P: Platform + 'p, F: FrameName, const N: usize>(
    first: u32,
    batch: &mut FixedVec<u32, N>,
    page_at: impl Fn(u32) -> Option<PageRef<'p, P, F>>,
) -> Option<Unpacked> {
    debug_assert!(batch.is_empty(), "a batch is read into an empty one");
    batch.push(first);
    let page = page_at(first)?;
    let size = page.prev();
    let (len, is_stepped) = (len_in(size).min(N), size.0 & STEPPED != 0);
    if is_stepped {
        let step = page.payload(STEP) as u32;
        let mut entry = first;
        batch.extend((1..len).map(|_| {
            entry = entry.wrapping_add(step);
            entry
        }));
    } else {
        for storing in 0..(len - 1).div_ceil(PER_PAGE) {
            let page = page_at(batch[storing])?;
            let words = INDEX_WORDS.map(|word| page.payload(word));
            let stored = (len - batch.len()).min(PER_PAGE);
            batch.extend_by::<PER_PAGE>(stored, |at| (words[at / 2] >> (32 * (at % 2))) as u32);
        }
    }
    Some(Unpacked { is_stepped, next: page.next() })
}
