//! `fork` while other threads use a private yard: the child's copy serves allocations and frees, and is sound.

use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use frameyard::policy::ZonePolicy;
use frameyard::{Gfp, MemoryTable, NodeId, Order, PageCount, Pfn, Platform, YardConfig};
use frameyard_host::{Backing, HostTopology, HostYard, ListAccess};

use crate::checked_yard::range;
use crate::own_process::is_own_process;

const THREADS: u64 = 4;
const FORKS: u32 = 200;
/// What a child may take, in seconds.
const LIMIT: u32 = 20;
const FRAMES: u64 = 1 << 15;

fn made(policy: ZonePolicy, access: ListAccess) -> HostYard {
    let host = HostTopology::current().unwrap();
    let cpus = vec![NodeId(0); host.online().as_slice().last().map_or(1, |cpu| cpu.index() + 1)];
    let config = YardConfig { policy, ..YardConfig::new(&cpus) };
    let table = MemoryTable { memory: &[range(1 << 20, FRAMES, 0)], ..MemoryTable::default() };
    HostYard::builder().list_access(access).machine(&table, &config).host(&host).build().unwrap()
}

const ORDERS: [u8; 16] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 2, 2, 3, 9];

/// Allocates and frees blocks of several orders, so that lists refill and drain all the time.
fn use_yard(yard: &HostYard, seed: u64, is_done: &AtomicBool) {
    let mut held: Vec<(Pfn, Order)> = Vec::new();
    let mut random = seed;
    while !is_done.load(Ordering::Relaxed) {
        random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        let order = Order(ORDERS[(random >> 60) as usize]);
        if random >> 59 & 1 == 0 && held.len() < 64 {
            held.extend(yard.alloc(order, Gfp::HIGHUSER_MOVABLE | Gfp::NOWARN).map(|pfn| (pfn, order)));
        } else if let Some((pfn, order)) = held.pop() {
            yard.free(pfn, order).expect("the block is ours alone");
        }
    }
    held.into_iter().for_each(|(pfn, order)| yard.free(pfn, order).expect("the block is ours alone"));
}

/// Runs `child` in a forked child, which ends with its result; the status that it ends with.
fn in_child(child: impl Fn() -> u8) -> i32 {
    // SAFETY: the child calls the yard, whose handlers make that safe, and the C library's allocator, which has its own.
    unsafe {
        let process = libc::fork();
        if process == 0 {
            libc::alarm(LIMIT);
            let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(child));
            libc::_exit(result.unwrap_or(100).into());
        }
        assert!(process > 0);
        let mut status = 0;
        assert_eq!(libc::waitpid(process, &raw mut status, 0), process);
        status
    }
}

/// What a child does with its copy of the yard; the number of the step that failed, or 0.
fn child_uses(yard: HostYard) -> u8 {
    let mut held = Vec::new();
    for step in 0..512 {
        let order = Order([0, 0, 0, 3][step % 4]);
        let Ok(pfn) = yard.alloc(order, Gfp::HIGHUSER_MOVABLE | Gfp::NOWARN) else { return 1 };
        held.push((pfn, order));
    }
    for (pfn, order) in held {
        if yard.free(pfn, order).is_err() || yard.free(pfn, order).is_ok() {
            return 2;
        }
    }
    if let Err(error) = yard.validate() {
        eprintln!("{error}");
        return 3;
    }
    yard.drain_all();
    if let Err(error) = yard.validate() {
        eprintln!("after a drain: {error}");
        return 4;
    }
    let left = yard.stats().zones().map(|zone| zone.per_cpu).sum::<PageCount>();
    drop(yard);
    if left == PageCount(0) { 0 } else { 5 }
}

/// Forks from a thread while other threads use the yard. The child ends with the number of the step that failed, or 0.
fn fork_under_use(yard: &HostYard, forks: u32, child: impl Fn() -> u8) {
    let free = yard.stats().free_pages();
    let is_done = AtomicBool::new(false);
    let failed = thread::scope(|scope| {
        for seed in 0..THREADS {
            let is_done = &is_done;
            scope.spawn(move || use_yard(yard, seed, is_done));
        }
        let status = (0..forks).map(|_| in_child(&child)).find(|status| *status != 0);
        is_done.store(true, Ordering::Relaxed);
        status
    });
    assert_eq!(failed, None, "the status of a child");
    yard.validate().unwrap();
    assert_eq!(yard.stats().free_pages(), free);
}

#[test]
fn a_forked_child_goes_on_with_its_copy_of_a_private_yard() {
    let name = "a_forked_child_goes_on_with_its_copy_of_a_private_yard";
    if !is_own_process(module_path!(), name) {
        return;
    }
    let cases = [
        (ZonePolicy::Bits, ListAccess::Sequences),
        (ZonePolicy::Bits, ListAccess::Locked),
        (ZonePolicy::Vanilla, ListAccess::Sequences),
    ];
    for (policy, access) in cases {
        println!("{policy} {access:?}");
        let yard = made(policy, access);
        if access == ListAccess::Sequences && !yard.platform().has_sequences() {
            println!("skipped: no restartable sequences here");
            continue;
        }
        // SAFETY: the child has a copy of the yard, which it drops, and exits. The parent's is dropped by the parent alone.
        fork_under_use(&yard, FORKS, || child_uses(unsafe { ptr::read(&raw const yard) }));
    }
}

#[test]
fn a_forked_child_attaches_a_shared_yard_anew() {
    let name = "a_forked_child_attaches_a_shared_yard_anew";
    if !is_own_process(module_path!(), name) {
        return;
    }
    let table = MemoryTable { memory: &[range(1 << 20, FRAMES, 0)], ..MemoryTable::default() };
    let config = YardConfig::new(&[NodeId(0); 2]);
    let yard = HostYard::builder().machine(&table, &config).backing(Backing::Phantom).shared().build().unwrap();
    let file = yard.shared_file().unwrap().try_clone().unwrap();
    fork_under_use(&yard, FORKS / 4, || {
        // SAFETY: as above. It is the parent's handle: the child only drops it.
        drop(unsafe { ptr::read(&raw const yard) });
        // SAFETY: only yards write to the file.
        let Ok(own) = unsafe { HostYard::builder().attach(&file) }.build() else { return 1 };
        for _ in 0..256 {
            let Ok(pfn) = own.alloc(Order::ZERO, Gfp::HIGHUSER_MOVABLE | Gfp::NOWARN) else { return 2 };
            if own.free(pfn, Order::ZERO).is_err() {
                return 3;
            }
        }
        0
    });
}
