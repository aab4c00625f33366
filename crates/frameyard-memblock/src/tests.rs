//! Behaviour of the map, case by case; `model_tests` runs random sequences.

use super::map::GrowthRules;
use super::test_memory::TestMemory;
use super::{
    AllocDirection, EarlyRequest, Memblock, MemblockError, MovableNodes, NodeChoice, NodeFilter, NothingMapped, Region,
    RegionFlags, RegionList,
};
use frameyard_units::{ByteSize, Geometry, NodeId, Pfn, PfnRange, PhysAddr};

mod allocating;
mod cutting;
mod editing;
mod growing;
mod walking;

type Map = Memblock<NothingMapped>;

const MIB: u64 = 1 << 20;
const N0: Option<NodeId> = Some(NodeId(0));
const N1: Option<NodeId> = Some(NodeId(1));

fn at(mib: u64) -> PhysAddr {
    PhysAddr(mib * MIB)
}

fn mib(count: u64) -> ByteSize {
    ByteSize::mib(count)
}

/// A region without node and flags, in MiB.
fn plain(start: u64, end: u64) -> Region {
    of_node(start, end, None)
}

fn of_node(start: u64, end: u64, node: Option<NodeId>) -> Region {
    Region { base: at(start), size: mib(end - start), flags: RegionFlags::NONE, node: node.into() }
}

fn flagged(start: u64, end: u64, flags: RegionFlags) -> Region {
    Region { flags, ..plain(start, end) }
}

/// A map with one memory region of no node.
fn map_of(start: u64, end: u64) -> Map {
    let mut map = Map::new(NothingMapped);
    map.add(at(start), mib(end - start)).unwrap();
    map
}

/// A map with memory of node 0 from 16 to 32 MiB and of node 1 from 32 to 64 MiB.
fn two_nodes() -> Map {
    let mut map = Map::new(NothingMapped);
    map.add_node(at(16), mib(16), NodeId(0), RegionFlags::NONE).unwrap();
    map.add_node(at(32), mib(32), NodeId(1), RegionFlags::NONE).unwrap();
    map
}
