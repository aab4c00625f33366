//! The zones that tasks prefer, and filling them.
//!
//! A request walks a list of zones. The first one with memory, its home, serves it until that zone is at its low watermark. Then
//! requests spill: each looks at the home in vain and takes a block of a zone behind it, on the same node first.
//!
//! Where a node without tasks has room, all zones of the tasks' nodes are filled, so that a neighbour serves. Otherwise the homes alone are,
//! and a lower zone serves: DMA32 when Normal is full.

use std::collections::BTreeSet;
use std::fmt;
use std::num::NonZeroU32;

use frameyard::stats::ZoneStatistics;
use frameyard::units::ZoneKind;
use frameyard::{AllocError, Block, ByteSize, Gfp, NodeId, Order, Pfn, Platform, Yard, ZoneId};

use super::{GFP, GROUP};
use crate::error::WorkloadError;
use crate::tasks::{TaskError, TaskRunner};

/// The home of each task.
pub(super) struct Homes(Vec<ZoneId>);

/// No zone behind the homes has room for the blocks that the tasks hold at once.
#[derive(Debug)]
struct NoRoom {
    homes: BTreeSet<ZoneId>,
    blocks: u64,
    size: ByteSize,
}

impl fmt::Display for NoRoom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let homes: Vec<String> = self.homes.iter().map(ZoneId::to_string).collect();
        write!(
            f,
            "the tasks fill {}, and no other zone has room for {} blocks of {}: choose a machine with a further node that no task runs on, \
             or with memory on both sides of 4 GiB",
            homes.join(" and "),
            self.blocks,
            self.size
        )
    }
}

impl std::error::Error for NoRoom {}

impl Homes {
    /// Finds the homes by a request of each task. All zones must have free memory.
    pub(super) fn find<P: Platform>(
        yard: &Yard<P>,
        runner: &impl TaskRunner,
        tasks: NonZeroU32,
    ) -> Result<Self, WorkloadError> {
        let home = |_| {
            let frame = yard.alloc(Order::ZERO, GFP)?;
            let zone = zone_of(yard, frame);
            yard.free(frame, Order::ZERO)?;
            Ok(zone)
        };
        Ok(Self(runner.set_up(tasks, home)?))
    }

    /// The home of a task.
    pub(super) fn of(&self, task: usize) -> ZoneId {
        self.0[task]
    }

    /// A task's share of half its home, in blocks.
    pub(super) fn share<P: Platform>(&self, yard: &Yard<P>, task: usize, order: Order) -> usize {
        let home = self.of(task);
        let neighbours = self.0.iter().filter(|zone| **zone == home).count();
        (yard.zone(home).statistics().managed.0 >> order.0) as usize / 2 / neighbours
    }

    /// The zones to fill so that requests of an order spill.
    ///
    /// # Errors
    ///
    /// [`WorkloadError::Input`] where no zone would be left to serve them.
    pub(super) fn to_fill<P: Platform>(&self, yard: &Yard<P>, order: Order) -> Result<BTreeSet<ZoneId>, WorkloadError> {
        let zones: Vec<ZoneStatistics> = yard.stats().zones().collect();
        let homes: BTreeSet<ZoneId> = self.0.iter().copied().collect();
        let nodes: BTreeSet<NodeId> = homes.iter().map(|zone| zone.node()).collect();
        let of_nodes = zones.iter().map(|zone| zone.id).filter(|zone| nodes.contains(&zone.node())).collect();
        // Twice: a CPU's list takes a batch beside the blocks in use.
        let blocks = 2 * GROUP as u64 * self.0.len() as u64;
        let has_room = |zone: &ZoneStatistics| {
            let kept = zone.watermarks.low + zone.protection[ZoneKind::Movable as usize];
            zone.free.0.saturating_sub(kept.0) >> order.0 >= blocks
        };
        let leaves_room = |full: &BTreeSet<ZoneId>| zones.iter().any(|zone| !full.contains(&zone.id) && has_room(zone));
        let size = yard.geometry().size_of(order.pages());
        let chosen = [of_nodes, homes.clone()].into_iter().find(leaves_room);
        chosen.ok_or_else(|| WorkloadError::input(NoRoom { homes, blocks, size }))
    }
}

/// Allocates blocks, large ones first, until none of `zones` serves even a single frame.
pub(super) fn fill<P: Platform>(yard: &Yard<P>, zones: &BTreeSet<ZoneId>) -> Result<Vec<Block>, TaskError> {
    let mut held = Vec::new();
    for order in (0..=yard.geometry().max_order().0).rev().map(Order) {
        loop {
            let pfn = match yard.alloc(order, GFP | Gfp::NOWARN) {
                Ok(pfn) => pfn,
                Err(AllocError::OutOfMemory { .. }) => break,
                Err(error) => return Err(error.into()),
            };
            if !zones.contains(&zone_of(yard, pfn)) {
                yard.free(pfn, order)?;
                break;
            }
            held.push(Block { pfn, order });
        }
    }
    Ok(held)
}

/// The zone of an allocated block.
pub(super) fn zone_of<P: Platform>(yard: &Yard<P>, block: Pfn) -> ZoneId {
    yard.zone_of(block).expect("an allocated frame is memory")
}
