//! Placement: which pageblock serves a request, where types mix, and which pageblocks are emptied.
//!
//! | module | rule |
//! |---|---|
//! | [`fallback`] | a request whose type has nothing left: which other types it takes from, and when a pageblock changes its type |
//! | [`highatomic`] | pageblocks that are kept for requests that must not wait |
//! | [`boost`] | watermarks rise for a while when types mix |
//! | [`lines`] | which lines of bits serve a refill: the fullest first |
//! | [`emptying`] | the emptiest pageblocks become whole |
//! | [`regions`], [`clean_lines`] | regions of 1 GiB stay free of frames that cannot move: on free lists, and among bits |
//! | [`defrag`] | how many whole pageblocks are kept in stock |

pub(crate) mod boost;
pub(crate) mod clean_lines;
pub(crate) mod defrag;
pub(crate) mod emptying;
pub(crate) mod fallback;
pub(crate) mod highatomic;
pub(crate) mod lines;
pub(crate) mod regions;

use crate::zone::mechanisms::{Placement, PlacementTypes};
pub use defrag::{DefragMode, Stock};

impl PlacementTypes for Placement {
    type OfZone = emptying::State;
    type OfCpu = emptying::Part;
}
