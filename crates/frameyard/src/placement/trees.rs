//! Trees: the rule of the policy `bits-trees`, after LLFree. A CPU takes blocks of a type from one tree, a few neighbouring lines, until
//! nothing there fits.
//!
//! CPUs seldom meet in the same tree. A partly free tree is used before one that is entirely free, so memory in use
//! stays together without a look at every pageblock.
//!
//! # Where a refill searches
//!
//! 1. In the tree of the line that the CPU has just left, from that line on and wrapping around, and in the trees of
//!    the lines that it still has.
//! 2. In trees nearby that are nearly full, then in trees nearby that are at least half free, but not entirely.
//! 3. In all trees, from near to far. The first line that fits is taken.
//! 4. In trees that other CPUs have reserved.
//!
//! A search for whole lines begins at the tree where the last one was found. It first looks at trees in which no line
//! is used for smaller blocks.
//!
//! # Reservations
//!
//! There is no table of trees. A tree counts as reserved while a CPU has reserved a line of it, and how much of a tree
//! is free is computed from its lines. This saves counters that every free would have to change. In return, a search
//! reads a word for each line that it passes, and the bits of lines nearby.
//!
//! # Differences from LLFree
//!
//! - Per-CPU lists are in front: most freed blocks go to a list, which hands them out again, and never reach their
//!   tree.
//! - A CPU has two trees for a type if the tree that it takes single frames from has no larger block left.
//! - Pageblocks have types; trees do not.
//!
//! While the zone keeps regions of 1 GiB clean, the rule of [`clean_lines`](crate::placement::clean_lines) is in force instead.

use crate::placement::Rule;
use crate::platform::Platform;
use crate::store::bits::bitmap::Standing;
use crate::store::bits::taking::{Choice, Search, start_of};
use crate::sync::{AtomicU32, Ordering, all_atomic};
use crate::units::{CpuId, MigrateType};
use crate::zone::view::ZoneView;
use core::ops::Range;

/// The lines of a tree: LLFree's default.
const TREE: usize = 4;
/// One tree in this many is nearby, within these bounds. LLFree has no upper one; it reads a counter of each, where this reads bits.
const NEAR: usize = 16;
const LEAST_NEAR: usize = 4;
const MOST_NEAR: usize = 32;
/// Nearly full trees have at least this part of their frames free, and less than a half: with fewer, a CPU would soon search again.
const LEAST_FREE: usize = 64;

#[derive(Clone, Copy)]
pub(crate) struct Trees;

/// What the rule knows of a CPU in a zone.
#[derive(Default)]
pub(crate) struct Part {
    /// The whole line that a search tried last, plus 1; 0: none yet.
    whole: AtomicU32,
}

all_atomic!(Part { whole });

impl Rule for Trees {
    fn first<P: Platform>(_: ZoneView<'_, P>, _: MigrateType) -> Self {
        Self
    }

    fn rest(self) -> Option<Self> {
        None
    }

    fn step<P: Platform>(_: ZoneView<'_, P>, _: CpuId, _: usize) {}
}

impl Choice for Trees {
    fn lines<P: Platform>(self, view: ZoneView<'_, P>, search: Search) -> impl Iterator<Item = Range<usize>> {
        let Search { cpu, order, list_type, left } = search;
        let is_small = order < view.free_bits().line_order();
        let passes = if is_small { Pass::OF_BLOCKS } else { Pass::OF_LINES };
        let whole = view.bits_of_cpu(cpu).map(|cpu| &cpu.placement.trees.whole).filter(|_| !is_small);
        let last_whole = move || whole.and_then(|whole| (whole.load(Ordering::Relaxed) as usize).checked_sub(1));
        let of_slots = move || left.into_iter().chain(view.lines_of_cpu(cpu, list_type)).filter(move |_| is_small);
        let own = move || of_slots().chain(last_whole());
        let start = own().next();
        let in_own = own().flat_map(move |line| {
            let tree = view.lines().find(|run| run.contains(&line)).map_or(0..0, |run| tree_of(line / TREE, &run));
            (line.max(tree.start)..tree.end).chain(tree.start..line.min(tree.end))
        });
        let elsewhere = passes.iter().flat_map(move |pass| {
            let serves = move |run: &Range<usize>| view.free_bits().largest_run_racy(list_type, run) >= Some(order);
            view.lines().filter(serves).flat_map(move |run| pass.trees(view, search, run, start)).flatten()
        });
        in_own.chain(elsewhere).map(move |line| {
            whole.into_iter().for_each(|whole| whole.store(line as u32 + 1, Ordering::Relaxed));
            line..line + 1
        })
    }
}

/// The lines of a tree that lie in a run.
fn tree_of(tree: usize, run: &Range<usize>) -> Range<usize> {
    (tree * TREE).max(run.start)..((tree + 1) * TREE).min(run.end)
}

/// Which trees a search looks at.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Pass {
    NearlyFull,
    PartlyFree,
    /// Those without lines in use by smaller blocks.
    WithoutParts,
    Unreserved,
    Reserved,
}

impl Pass {
    /// For blocks below the order of a line.
    const OF_BLOCKS: &[Self] = &[Self::NearlyFull, Self::PartlyFree, Self::Unreserved, Self::Reserved];
    /// For whole lines.
    const OF_LINES: &[Self] = &[Self::WithoutParts, Self::Unreserved, Self::Reserved];

    /// These trees of a run, on both sides of where the neighbourhood of the line `start` begins.
    fn trees<P: Platform>(
        self,
        view: ZoneView<'_, P>,
        search: Search,
        run: Range<usize>,
        start: Option<usize>,
    ) -> impl Iterator<Item = Range<usize>> {
        let first = run.start / TREE;
        let count = run.end.div_ceil(TREE) - first;
        let near = (count / NEAR).clamp(LEAST_NEAR, MOST_NEAR);
        let most = match (self, start) {
            (Self::NearlyFull | Self::PartlyFree, Some(line)) if !run.contains(&line) => 0,
            (Self::NearlyFull | Self::PartlyFree, _) => near.min(count),
            _ => count,
        };
        let start =
            start.filter(|line| run.contains(line)).unwrap_or_else(|| start_of(search.cpu, &run)) / TREE - first;
        // CPUs that search in one neighbourhood for parts of lines begin at the same tree, and fill it up.
        let is_small = search.order < view.free_bits().line_order();
        let begin = if is_small { start & !((2 * near).next_power_of_two() - 1) } else { start };
        let at = move |step: usize| begin + if step.is_multiple_of(2) { step / 2 } else { count - step.div_ceil(2) };
        let trees = (0..most).map(move |step| tree_of(first + at(step) % count, &run));
        trees.filter(move |tree| self.has(view, search.list_type, tree.clone()))
    }

    fn has<P: Platform>(self, view: ZoneView<'_, P>, list_type: MigrateType, tree: Range<usize>) -> bool {
        let (bits, of_line) = (view.free_bits(), 1 << view.free_bits().line_order().0);
        let size = tree.len() * of_line;
        let has = |wanted| tree.clone().any(|line| bits.standing_racy(view.platform, line) == wanted);
        let free_in = |line| match bits.standing_racy(view.platform, line) {
            Standing::Whole => of_line,
            Standing::Partial if view.type_of_line(line) == Some(list_type) => bits.free_frames_racy(line) as usize,
            _ => 0,
        };
        let free = || tree.clone().map(free_in).sum::<usize>();
        match self {
            _ if has(Standing::Reserved) => self == Self::Reserved,
            Self::NearlyFull => (size / LEAST_FREE..size / 2).contains(&free()),
            Self::PartlyFree => (size / 2..size).contains(&free()),
            Self::WithoutParts => !has(Standing::Partial),
            Self::Unreserved => true,
            Self::Reserved => false,
        }
    }
}
