//! A small yard of one zone, filled with movable blocks in random places.
use frameyard::boot::{MapInit, Poisoning, ZoneLimits};
use frameyard::policy::ZonePolicy;
use frameyard::stats::ZoneStatistics;
use frameyard::units::ZoneKind;
use frameyard::{
    ByteSize, Geometry, MemoryTable, MigrateType, NodeId, Order, PageCount, Pfn, PfnRange, YardConfig, ZoneId,
};

use crate::fixture::random::Random;
use crate::fixture::{Fixture, Frames};
use crate::movers::Movers;

pub(crate) const FIRST: Pfn = Pfn(0x1000);
pub(crate) const PAGES: u64 = 0x1000;
pub(crate) const ZONE: ZoneId = ZoneId(ZoneKind::Normal as u16);

/// Pageblocks of 64 frames, maximum blocks of 256.
pub(crate) fn geometry() -> Geometry {
    Geometry::new(ByteSize::kib(4), ByteSize::mib(4), Order(6), Order(8)).unwrap()
}

pub(crate) fn memory() -> PfnRange {
    PfnRange::new(FIRST, PageCount(PAGES))
}

pub(crate) fn at(start: u64, count: u64) -> PfnRange {
    PfnRange::new(Pfn(FIRST.0 + start), PageCount(count))
}

pub(crate) struct Made<'a> {
    pub(crate) cma: &'a [PfnRange],
    pub(crate) reserved: &'a [PfnRange],
    pub(crate) map_init: MapInit,
    pub(crate) poisoning: Poisoning,
    pub(crate) frames: Frames,
    pub(crate) policy: ZonePolicy,
}

impl Default for Made<'_> {
    fn default() -> Self {
        let (map_init, poisoning) = (MapInit::default(), Poisoning::Off);
        let policy = ZonePolicy::default();
        Self { cma: &[], reserved: &[], map_init, poisoning, frames: Frames::Real, policy }
    }
}

pub(crate) fn made(made: &Made<'_>) -> Fixture {
    let cpus = [NodeId(0); 4];
    let zone_limits = ZoneLimits::NONE;
    let Made { map_init, poisoning, policy, .. } = *made;
    let config =
        YardConfig { geometry: geometry(), zone_limits, map_init, poisoning, policy, ..YardConfig::new(&cpus) };
    let memory = [(memory(), NodeId(0))];
    Fixture::new(&MemoryTable { memory: &memory, reserved: made.reserved, cma: made.cma }, &config, made.frames)
}

/// The zone's type counts and free blocks, after a drain: what a failure must leave as it was.
pub(crate) fn shape(yard: &Fixture) -> (Vec<u64>, ZoneStatistics) {
    yard.drain_all();
    let types = MigrateType::ALL.map(|of| yard.zone(ZONE).pageblocks(of)).to_vec();
    (types, yard.zone(ZONE).statistics())
}

pub(crate) fn assert_same_shape(before: &(Vec<u64>, ZoneStatistics), after: &(Vec<u64>, ZoneStatistics)) {
    assert_eq!(before.0, after.0, "pageblock types are restored");
    assert_eq!(before.1.free, after.1.free, "free frames");
    assert_eq!(before.1.free_cma, after.1.free_cma, "free frames of areas");
    assert_eq!(before.1.reserved_highatomic, after.1.reserved_highatomic);
}

/// Fills about `percent` of the yard with movable blocks in random places.
pub(crate) fn fill(yard: &Fixture, movers: &Movers<'_>, random: &mut Random, percent: u64) {
    let mut names = Vec::new();
    while let Ok(name) = movers.take(Order(random.below(3) as u8)) {
        names.push(name);
    }
    while yard.stats().free_pages().0 * 100 < yard.stats().managed_pages().0 * (100 - percent) {
        let name = names.swap_remove(random.below(names.len() as u64) as usize);
        assert!(movers.give_back(name));
    }
}
