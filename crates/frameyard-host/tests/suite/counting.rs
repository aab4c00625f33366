//! A counted run on memory of this host.

use crate::checked_yard::{CheckedYard, range};
use frameyard::counting::TaskCounters;
use frameyard::platform::LockKind;
use frameyard::policy::ZonePolicy;
use frameyard::{Gfp, NodeId, Order, PageCount, Pfn, YardConfig};
use frameyard_host::{Backing, HostYard};

#[test]
fn a_counting_view_works_on_the_same_yard() {
    let config = YardConfig { policy: ZonePolicy::Vanilla, ..YardConfig::new(&[NodeId(0)]) };
    let memory = [range(0x10_0000, 1 << 15, 0)];
    let yard = CheckedYard::new(HostYard::builder().backing(Backing::Phantom), &memory, &config);
    let rows: Vec<TaskCounters> = std::iter::repeat_with(TaskCounters::default).take(1).collect();
    let counting = yard.counting(&rows, || 0).unwrap();
    let free = yard.stats().free_pages();
    let held: Vec<Pfn> = (0..1000).map(|_| counting.alloc(Order::ZERO, Gfp::HIGHUSER_MOVABLE).unwrap()).collect();
    assert_eq!(yard.stats().free_pages(), free - PageCount(1000));
    held.into_iter().for_each(|pfn| yard.free(pfn, Order::ZERO).unwrap());
    let counted = counting.platform().counted();
    assert_eq!(counted.drain.spans, 0, "operations through another view were counted");
    assert!(counted.refill.lines_under_lock_per_page().unwrap() > 0.5, "{counted:?}");
    assert_eq!(counted.locks(LockKind::Zone).acquisitions, counted.refill.spans);
    assert_eq!((counted.lost, counted.forgotten), (0, 0));
}
