//! Clusters: single free pages that are neighbours on a free list, and leave or join it together.
//!
//! A zone has a fixed number of cluster records in the control region ([`tables`]), and a bit for each that says whether it is in
//! use. A record is one word ([`record`]): the cluster's last page on the list, its number of pages, how many of them skipped
//! merging, and its state. Each page of a cluster names the record in its payload ([`MECHANISM`](crate::page::MECHANISM)) and has a
//! bit in its tag. A page that joins a list joins the cluster of its neighbour there, or starts a new one; if all records are in
//! use it stays alone. Reported pages stay alone as well: they wait at the end of their list to be used last.
//!
//! | policy | refill | drain |
//! |---|---|---|
//! | `cluster` | [`detach`]: one cluster at a time | page by page with deferred merge; each page joins a cluster |
//! | `cluster-bulk` | `detach`: up to two clusters in one hold of the lock | [`splice`]: a whole batch as one cluster |
//!
//! # Protocol
//!
//! A record is free, listed, or held by one CPU. Lists and listed records change under the zone lock. A held record
//! belongs to a cluster in transit, either detached from its list or about to be spliced in. Its holder walks the pages
//! without the lock, and meanwhile they look free although they are not. So code that finds a free page by number also
//! reads, under the lock, the record that the page names: only a page of a listed cluster is on a list
//! ([`LockedZone::is_listed`](crate::zone::view::LockedZone::is_listed)). Merging, moving or isolating a pageblock,
//! taking a range, and compaction all do this.
//!
//! Tag and record suffice although the holder changes pages while other CPUs read them:
//!
//! - The holder of a detached cluster writes a page's tag first, then clears the word that names the cluster. A reader with the
//!   old tag and a cleared word knows what a held record says: the page is not free.
//! - A record is released, with Release, after all its pages are cleared, and acquired with Acquire. So a reader that finds the
//!   record in a new use sees the old pages cleared: the record can become listed under the lock only.
//! - A held record becomes listed under the lock, by its holder. So the next holder of the lock sees all of the cluster.
//!
//! A splice tags the pages of its batch as free before it takes the lock, with relaxed stores: first links and the word that names
//! the record, then the tag. A weakly ordered CPU may see them in any order. A reader under the lock that finds such a page by number
//! still never takes it for a listed one:
//!
//! - It sees the new tag and an older word. That is 0, or indices of a packed batch, which name no cluster, or a record of the
//!   page's last cluster. That record was released after the word was cleared, so if it is listed again, the reader, which holds
//!   the lock that it was listed under, sees the word cleared.
//! - It sees the new tag and the new word, and a record that is not held. The record was listed before, for other pages, until a
//!   detachment held it under the lock. The splice acquired it after that, so a reader that sees the word holds the lock later than
//!   the detachment and sees the record held, free or listed by the splice itself: under the lock, with all pages complete.
//! - It follows no link of a page that is not listed.
//!
//! Likewise a reader may see the tag of a detached page, and then a word that was written after the page was cleared: indices of a
//! packed batch again. So a word that names a cluster differs from all indices.
//!
//! # Counting equations
//!
//! - A listed record's size = the number of its pages, which are consecutive on one list and end with its tail;
//!   likewise for the pages among them that skipped merging.
//! - Bits set = records that are not free = `used`. At rest all of these are listed.

mod detach;
mod list;
#[cfg(all(test, loom))]
mod loom_models;
mod plan;
mod record;
#[cfg(all(test, shuttle))]
mod shuttle_tests;
mod splice;
mod statistics;
mod tables;
mod validate;

pub(in crate::store::published) use {
    list::{State, collect, is_in_listed_cluster, join, leave},
    statistics::{COUNTERS, Counts, count},
    tables::{Table, assign, fits, plan},
    validate::validate,
};

pub(crate) use detach::fetch;
pub(crate) use splice::give_back;
pub(crate) use tables::{batch_words, batch_words_bound};
