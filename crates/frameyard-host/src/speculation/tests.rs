use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;

use frameyard::devices::{DeviceRequest, MapLayout, MapPlacement, Removal};
use frameyard::{MemoryTable, NodeId, Order, PageCount, Pfn, PfnRange, YardConfig};

use super::*;
use crate::{Backing, HostYard};

/// A bound for waits that end.
const LONG: Duration = Duration::from_secs(60);
/// A bound for waits that do not end.
const SHORT: Duration = Duration::from_millis(5);

/// Waits for all gets. Gets of other tests may delay it.
fn wait() {
    wait_for_gets(LONG).unwrap();
}

/// A get as the core does it.
fn get(inside: impl FnOnce()) {
    let mark = begin_get();
    inside();
    mark.end();
}

/// Runs `get` on a thread that stays inside it until a wait for it has timed out.
fn delays_a_wait(get: impl FnOnce(&dyn Fn()) + Send) {
    let ((began, begun), (go_on, gone_on)) = (mpsc::channel(), mpsc::channel());
    thread::scope(|scope| {
        scope.spawn(move || {
            get(&|| {
                began.send(()).unwrap();
                gone_on.recv().unwrap();
            });
        });
        begun.recv().unwrap();
        assert_eq!(wait_for_gets(SHORT).unwrap_err().kind(), io::ErrorKind::ResourceBusy);
        go_on.send(()).unwrap();
    });
    wait();
}

#[test]
fn a_wait_lasts_until_the_get_ends() {
    delays_a_wait(|inside| get(inside));
    // The second get of a thread takes the fast path if there is one.
    delays_a_wait(|inside| {
        get(|| ());
        assert_eq!(MARK.get().is_some(), ProcessBarrier::registered().is_some());
        get(inside);
    });
}

#[test]
fn a_wait_ignores_later_gets() {
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                get(|| ());
            }
        });
        (0..100).for_each(|_| wait());
        stop.store(true, Ordering::Relaxed);
    });
}

#[test]
fn a_thread_that_has_returned_its_mark_gets_another() {
    struct Late;
    impl Drop for Late {
        fn drop(&mut self) {
            assert!(RETURN_AT_EXIT.try_with(|_| ()).is_err() && OWN.get().is_none());
            waits_for_this_thread();
            WAS_LATE.store(true, Ordering::Relaxed);
        }
    }
    /// A get of this thread, and another thread's wait for it.
    fn waits_for_this_thread() {
        get(|| {
            let waited = thread::spawn(|| wait_for_gets(SHORT)).join().unwrap();
            assert_eq!(waited.unwrap_err().kind(), io::ErrorKind::ResourceBusy);
        });
    }
    static WAS_LATE: AtomicBool = AtomicBool::new(false);
    thread_local! {
        static FIRST: Late = const { Late };
    }
    let used = thread::spawn(|| {
        // Created first, so dropped last.
        FIRST.with(|_| ());
        waits_for_this_thread();
        std::ptr::from_ref(OWN.get().unwrap()) as usize
    });
    let used = used.join().unwrap();
    assert!(WAS_LATE.load(Ordering::Relaxed));
    assert!(marks().all.iter().any(|mark| std::ptr::from_ref(*mark) as usize == used));
    wait();
}

#[test]
fn a_thread_that_stays_in_a_get_stops_no_device() {
    const SPACE: PfnRange = PfnRange { start: Pfn(0x20_0000), end: Pfn(0x20_8000) };
    let memory = [(PfnRange::new(Pfn(0x10_0000), PageCount(0x4000)), NodeId(0))];
    let memory = MemoryTable { memory: &memory, ..MemoryTable::default() };
    let config = YardConfig { device_space: Some(SPACE), ..YardConfig::new(&[NodeId(0)]) };
    let yard = HostYard::builder().machine(&memory, &config).backing(Backing::Phantom).shared().build().unwrap();
    let (layout, placement) = (MapLayout::Deduplicated, MapPlacement::Memory);
    let asked = DeviceRequest { range: SPACE, node: NodeId(0), order: Order(9), layout, placement };
    get(|| {
        let id = thread::scope(|scope| scope.spawn(|| yard.map_device(asked).unwrap()).join().unwrap());
        yard.devices().unmap(id, Removal::Refuse).unwrap();
    });
}
