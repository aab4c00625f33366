//! Second frees, one after the other. A model has those that race.

use crate::fixture::{Fixture, Frames};
use frameyard::boot::ZoneLimits;
use frameyard::{Gfp, MemoryTable, NodeId, Order, Pfn, PfnRange, YardConfig};

const MEMORY: PfnRange = PfnRange { start: Pfn(0x8000), end: Pfn(0xa000) };
const GFP: Gfp = Gfp::HIGHUSER_MOVABLE;

fn yard() -> Fixture {
    let memory = [(MEMORY, NodeId(0))];
    let config = YardConfig { zone_limits: ZoneLimits::NONE, ..YardConfig::new(&[NodeId(0)]) };
    Fixture::new(&MemoryTable { memory: &memory, ..MemoryTable::default() }, &config, Frames::Phantom)
}

#[test]
fn a_second_free_after_the_first_is_refused() {
    let yard = yard();
    for order in [0, 3, 9].map(Order) {
        let pfn = yard.alloc(order, GFP).unwrap();
        assert!(yard.free(pfn, Order(order.0 + 1)).is_err(), "another order");
        yard.free(pfn, order).unwrap();
        assert_eq!(yard.free(pfn, order).map_err(|error| error.pfn), Err(pfn), "{order}");
        assert_eq!(yard.free_bulk(&[pfn]).map_err(|error| error.pfn), Err(pfn));
    }
    yard.validate().unwrap();
}

#[test]
fn frames_at_the_end_of_the_run_are_told_from_those_outside() {
    let yard = yard();
    for pfn in [MEMORY.end, Pfn(MEMORY.start.0 - 1), Pfn(u64::MAX), Pfn(0)] {
        assert!(yard.free(pfn, Order::ZERO).is_err());
    }
}
