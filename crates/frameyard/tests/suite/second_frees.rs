//! Second frees, by [`DoubleFreeCheck`]: one after the other, and at once where the check does not decide that. A model has racing frees
//! under the exact check.

use std::cell::Cell;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::fixture::HeapRegion;
use frameyard::boot::{DoubleFreeCheck, ZoneLimits};
use frameyard::platform::{Access, LineKind, LockId, MapBacking, Probe, SharedLine};
use frameyard::{CpuId, FreeError, Gfp, Layout, MemoryTable, NodeId, Order, Pfn, PfnRange, Platform, Yard, YardConfig};

const MEMORY: PfnRange = PfnRange { start: Pfn(0x8000), end: Pfn(0xa000) };
const GFP: Gfp = Gfp::HIGHUSER_MOVABLE;

thread_local! {
    /// Runs once, when a free is about to change the byte of its block.
    static BETWEEN: Cell<Option<Box<dyn FnOnce()>>> = const { Cell::new(None) };
}

/// A platform on which another free comes between the steps of a free.
#[derive(Default)]
struct Racing {
    /// How often a list was found corrupt.
    corrupt: AtomicU32,
}

impl Platform for Racing {
    type Guard = ();
    fn guard(&self) {}
    fn current_cpu(&self) -> CpuId {
        CpuId(0)
    }
    fn spin(&self, _round: u32) {}
    fn frame_bytes(&self, _pfn: Pfn) -> Option<NonNull<u8>> {
        None
    }
    fn note_corrupt(&self, lock: LockId) {
        assert!(matches!(lock, LockId::PerCpu(..)));
        self.corrupt.fetch_add(1, Ordering::Relaxed);
    }
}

impl MapBacking for Racing {}

impl Probe for Racing {
    fn touch_line(&self, line: SharedLine, access: Access) {
        if line.kind == LineKind::AllocationMap
            && access != Access::Read
            && let Some(between) = BETWEEN.take()
        {
            between();
        }
    }
}

/// A yard, for `test`.
fn with_yard(double_free_check: DoubleFreeCheck, test: impl FnOnce(&'static Yard<Racing>)) {
    let memory = [(MEMORY, NodeId(0))];
    let table = MemoryTable { memory: &memory, ..MemoryTable::default() };
    let config = YardConfig { zone_limits: ZoneLimits::NONE, double_free_check, ..YardConfig::new(&[NodeId(0)]) };
    let layout = Layout::plan(&table, &config).unwrap();
    let (map, control) = (HeapRegion::new(layout.map_bytes()), HeapRegion::new(layout.control_bytes()));
    // SAFETY: the regions are as large as planned and zeroed. They are never freed, like the yard.
    let yard = unsafe { Yard::create(&table, &config, &layout, map.raw(), control.raw(), Racing::default()) }.unwrap();
    std::mem::forget((map, control));
    test(Box::leak(Box::new(yard)));
}

/// Two frees of a frame at once: the second one runs between the steps of the first. What became of both.
fn race(yard: &'static Yard<Racing>, pfn: Pfn) -> [Result<(), FreeError>; 2] {
    thread_local! {
        static OTHER: Cell<Option<Result<(), FreeError>>> = const { Cell::new(None) };
    }
    BETWEEN.set(Some(Box::new(move || OTHER.set(Some(yard.free(pfn, Order::ZERO))))));
    let first = yard.free(pfn, Order::ZERO);
    [first, OTHER.take().expect("the other free has run")]
}

#[test]
fn a_second_free_after_the_first_is_refused_under_each_check() {
    for check in DoubleFreeCheck::ALL {
        with_yard(check, |yard| {
            for order in [0, 3, 9].map(Order) {
                let pfn = yard.alloc(order, GFP).unwrap();
                assert!(yard.free(pfn, Order(order.0 + 1)).is_err(), "another order");
                yard.free(pfn, order).unwrap();
                assert_eq!(yard.free(pfn, order).map_err(|error| error.pfn), Err(pfn), "{check}, {order}");
                assert_eq!(yard.free_bulk(&[pfn]).map_err(|error| error.pfn), Err(pfn));
            }
            assert!(yard.frames(Order::ZERO, GFP).is_ok(), "a guard");
            assert_eq!(yard.platform().corrupt.load(Ordering::Relaxed), 0);
            yard.validate().unwrap();
        });
    }
}

#[test]
fn a_block_on_a_list_twice_is_allocated_once_under_the_sequential_check() {
    // By the fast path, and in bulk.
    fn alone(yard: &Yard<Racing>) -> Option<Pfn> {
        yard.alloc(Order::ZERO, GFP).ok()
    }
    fn in_bulk(yard: &Yard<Racing>) -> Option<Pfn> {
        let mut frames = [Pfn(0)];
        (yard.alloc_bulk(GFP, &mut frames) == Ok(1)).then_some(frames[0])
    }
    for way in [alone, in_bulk] {
        with_yard(DoubleFreeCheck::Sequential, |yard| {
            let pfn = yard.alloc(Order::ZERO, GFP).unwrap();
            let [first, other] = race(yard, pfn);
            assert!(first.is_ok() && other.is_ok(), "the check does not decide the race");
            assert_eq!(yard.alloc(Order::ZERO, GFP), Ok(pfn));
            assert_eq!(yard.platform().corrupt.load(Ordering::Relaxed), 0);
            assert_ne!(way(yard), Some(pfn), "its second entry");
            assert_eq!(yard.platform().corrupt.load(Ordering::Relaxed), 1);
        });
    }
}

#[test]
fn frames_at_the_end_of_the_run_are_told_from_those_outside() {
    for check in DoubleFreeCheck::ALL {
        with_yard(check, |yard| {
            for pfn in [MEMORY.end, Pfn(MEMORY.start.0 - 1), Pfn(u64::MAX), Pfn(0)] {
                assert!(yard.free(pfn, Order::ZERO).is_err());
            }
        });
    }
}
