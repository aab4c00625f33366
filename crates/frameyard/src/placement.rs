//! Placement: which pageblock serves a request, where types mix, and which pageblocks are emptied.
//!
//! | module | holds |
//! |---|---|
//! | [`fallback`] | when a type has nothing left: which other types a request takes from, and when a pageblock changes its type |
//! | [`highatomic`] | pageblocks kept for high-order requests that must not wait |
//! | [`boost`] | raising watermarks for a while when types mix |
//! | [`lines`] | refills from lines of bits, with any [`Rule`] |
//! | [`clean_lines`], [`emptying`] | the rule of the policy `bits`: take from the fullest lines, empty the emptiest pageblocks |
//! | [`trees`] | the rule of the policy `bits-trees`: a CPU takes from one tree of neighbouring lines until nothing there fits |
//! | [`regions`], [`clean_lines`] | keeping regions of 1 GiB free of frames that cannot move, on free lists and among bits |
//! | [`defrag`] | the stock of whole free pageblocks |
//!
//! # A rule of its own
//!
//! A [`Rule`] decides which lines a refill from bits searches. To add a rule, write a module here, add a line to
//! `by_rule` below, and add a [`PlacementRule`] and a policy that uses it.

pub(crate) mod boost;
pub(crate) mod clean_lines;
pub(crate) mod defrag;
pub(crate) mod emptying;
pub(crate) mod fallback;
pub(crate) mod highatomic;
pub(crate) mod lines;
pub(crate) mod regions;
pub(crate) mod trees;

use crate::platform::Platform;
use crate::store::RefillRequest;
use crate::store::batch::Batch;
use crate::store::bits::taking::Choice;
use crate::sync::all_atomic;
use crate::units::{CpuId, MigrateType, Order};
use crate::zone::mechanisms::{Placement, PlacementTypes};
use crate::zone::policy::PlacementRule;
use crate::zone::view::ZoneView;
pub use defrag::{DefragMode, Stock};
pub(crate) use lines::give_to_free_lists;

impl PlacementTypes for Placement {
    type OfZone = emptying::State;
    type OfCpu = OfCpu;
}

/// What the rules know of a CPU in a zone.
#[derive(Default)]
pub(crate) struct OfCpu {
    emptying: emptying::Part,
    trees: trees::Part,
}

all_atomic!(OfCpu { emptying, trees });

/// A placement rule: among which lines of bits a refill searches.
pub(crate) trait Rule: Choice {
    /// Where a refill of that type searches first.
    fn first<P: Platform>(view: ZoneView<'_, P>, list_type: MigrateType) -> Self;

    /// Where it searches once it has found nothing there; `None` if it has seen all lines.
    fn rest(self) -> Option<Self>;

    /// What the rule does while a CPU moves that many blocks between a list and the bits.
    fn step<P: Platform>(view: ZoneView<'_, P>, cpu: CpuId, blocks: usize);
}

/// An expression for the rule in force, which it calls `Rule`.
macro_rules! by_rule {
    ($view:expr, $call:expr) => {{
        macro_rules! call {
            ($rule:ty) => {{
                type Rule = $rule;
                $call
            }};
        }
        match $view.zone.policy().parts().placement {
            PlacementRule::Tree if !$view.zone.keeps_regions() => call!(trees::Trees),
            _ => call!(clean_lines::Among),
        }
    }};
}

/// Fetches blocks for a list, or one block of an order without lists, and gives them to `deliver`.
pub(crate) fn fetch<P: Platform>(view: ZoneView<'_, P>, refill: RefillRequest, deliver: impl FnMut(&Batch)) -> usize {
    by_rule!(view, lines::fetch::<P, Rule>(view, refill, deliver))
}

/// Takes blocks of the line that a CPU has reserved while the zone is not near its watermarks, and, while it has plenty, of a few that it
/// reserves next.
pub(crate) fn take_ready<P: Platform>(
    view: ZoneView<'_, P>,
    cpu: CpuId,
    of: (Order, MigrateType),
    amount: (usize, usize),
    batch: &mut Batch,
) {
    by_rule!(view, lines::take_ready::<P, Rule>(view, cpu, of, amount, batch));
}

/// What the rule does while a CPU moves that many blocks between a list and the bits.
pub(crate) fn step<P: Platform>(view: ZoneView<'_, P>, cpu: CpuId, blocks: usize) {
    by_rule!(view, <Rule as self::Rule>::step(view, cpu, blocks));
}
