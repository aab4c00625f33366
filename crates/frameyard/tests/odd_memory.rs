//! Yards on memory whose borders are where nobody would wish them.

mod fixture;

use fixture::{Fixture, Frames};
use frameyard::{Gfp, MemoryTable, NodeId, PageCount, Pfn, PfnRange, YardConfig, ZoneLimits};

fn frames(start: u64, count: u64) -> PfnRange {
    PfnRange::new(Pfn(start), PageCount(count))
}

#[test]
fn neighbouring_ranges_of_one_zone_are_one_range() {
    let memory = [(frames(0x1000, 0x123), NodeId(0)), (frames(0x1123, 0xedd), NodeId(0))];
    let cpus = [NodeId(0)];
    let config = YardConfig { zone_limits: ZoneLimits::NONE, ..YardConfig::new(&cpus) };
    let yard = Fixture::new(&MemoryTable { memory: &memory, ..MemoryTable::default() }, &config, Frames::Phantom);
    assert_eq!(yard.memory_ranges().map(|(range, _)| range).collect::<Vec<_>>(), [frames(0x1000, 0x1000)]);
    let across = yard.alloc_range(frames(0x1100, 0x40), Gfp::KERNEL).unwrap();
    yard.free_range(across).unwrap();
}
