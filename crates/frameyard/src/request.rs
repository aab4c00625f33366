//! Requests: everything that the fast paths leave, because no list of the caller's CPU can serve it.
//!
//! | step or kind of request | module |
//! |---|---|
//! | 1. walk the zonelist, refill a list, collect frames that the transfer policy keeps | [`search`] |
//! | 2. compact and reclaim, with owners | [`slow_path`], [`compact`] |
//! | 3. drain the lists of all CPUs | [`drain`] |
//! | many single frames at once | [`bulk`] |
//! | an allocation with more options than order and flags | [`alloc_request`] |
//! | counts that are not a power of two, ranges of free frames | [`exact`] |
//! | contiguous ranges of memory in use, and contiguous areas | [`contig`], [`cma`] |
//! | blocks above the maximum order, joined blocks | [`large`], [`join`] |
//! | blocks with an owner: guards, counted blocks, huge pages of a pool | [`frames`], [`counted`], [`huge_pages`] |
//! | frames that leave the yard and come back | [`offline`], [`reporting`] |

mod alloc_request;
pub(crate) mod bulk;
mod cma;
mod compact;
mod contig;
mod counted;
mod drain;
mod exact;
mod frames;
mod huge_pages;
mod join;
mod large;
mod offline;
mod reporting;
pub(crate) mod search;
mod slow_path;

pub use alloc_request::{AllocRequest, Wanted};
pub use cma::CmaReleaseError;
pub use compact::CompactStatistics;
pub use frames::Frames;
pub use huge_pages::{HugePage, Reserved};
pub use offline::OnlineError;
pub use reporting::{ReportError, ReportOutcome};
