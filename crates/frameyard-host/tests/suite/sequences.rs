//! Per-CPU lists in restartable sequences: more threads than CPUs, drains, signal handlers that allocate, and threads without an area.

use std::collections::BTreeSet;
use std::ffi::c_int;
use std::ptr;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::checked_yard::{CheckedYard, range};
use frameyard::policy::ZonePolicy;
use frameyard::units::ZoneKind;
use frameyard::watermarks::PcpSizing;
use frameyard::{Gfp, NodeId, Order, PageCount, Pfn, Platform, YardConfig, ZoneId};
use frameyard_host::{HostTopology, HostYard, ListAccess};

const THREADS: u64 = 16;
const ZONE: ZoneId = ZoneId(ZoneKind::Normal as u16);
const FRAMES: u64 = 1 << 16;

/// A yard with lists for each CPU of the host; `None` on a host without what sequences need.
fn yard(access: ListAccess) -> Option<CheckedYard> {
    let cpus = HostTopology::current().unwrap().online().as_slice().last().map_or(1, |cpu| cpu.0 + 1);
    let cpus = vec![NodeId(0); cpus as usize];
    let config = YardConfig { policy: ZonePolicy::Bits, ..YardConfig::new(&cpus) };
    let yard = CheckedYard::new(HostYard::builder().list_access(access), &[range(1 << 20, FRAMES, 0)], &config);
    if access == ListAccess::Sequences && !yard.platform().has_sequences() {
        println!("skipped: no restartable sequences here");
        return None;
    }
    Some(yard)
}

/// Pairs of each of the threads: 10⁹ operations in long runs.
fn pairs() -> u64 {
    if std::env::var_os("FRAMEYARD_LONG_RUNS").is_some() { 500_000_000 / THREADS } else { 50_000 }
}

/// Allocates and frees single frames, with up to 7 more of them held.
fn use_lists(yard: &HostYard, seed: u64, pairs: u64) {
    let mut held = [None::<Pfn>; 8];
    let mut random = seed;
    for _ in 0..pairs {
        random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        let slot = &mut held[(random >> 61) as usize];
        if let Some(pfn) = slot.take() {
            yard.free(pfn, Order::ZERO).expect("the frame is ours alone");
        }
        *slot = yard.alloc(Order::ZERO, Gfp::HIGHUSER_MOVABLE | Gfp::NOWARN).ok();
    }
    for pfn in held.into_iter().flatten() {
        yard.free(pfn, Order::ZERO).expect("the frame is ours alone");
    }
}

#[test]
fn threads_that_outnumber_cpus_lose_no_frame_while_others_drain() {
    let Some(yard) = yard(ListAccess::Sequences) else { return };
    let pairs = pairs();
    let is_done = AtomicBool::new(false);
    // So that the lists are drained while they are used, whichever thread the system prefers.
    let drainer_runs = Barrier::new(THREADS as usize + 1);
    thread::scope(|scope| {
        let drainer = scope.spawn(|| {
            let mut drains = 0;
            drainer_runs.wait();
            while !is_done.load(Ordering::Relaxed) {
                let sizing = if drains % 2 == 0 { PcpSizing::Fixed(8) } else { PcpSizing::Scaled };
                yard.core().lists().resize(sizing);
                yard.drain_all();
                drains += 1;
                thread::sleep(Duration::from_micros(200));
            }
        });
        let users: Vec<_> = (0..THREADS)
            .map(|seed| {
                scope.spawn({
                    let (yard, drainer_runs) = (&yard, &drainer_runs);
                    move || {
                        drainer_runs.wait();
                        use_lists(yard, seed, pairs);
                    }
                })
            })
            .collect();
        let ended: Vec<_> = users.into_iter().map(|user| user.join()).collect();
        is_done.store(true, Ordering::Relaxed);
        assert!(ended.iter().all(Result::is_ok), "a thread panicked");
        drainer.join().unwrap();
    });
    let statistics = yard.zone(ZONE).statistics();
    assert!(statistics.allocations >= THREADS * pairs / 2, "{statistics:?}");
    assert_eq!(statistics.pages_allocated, statistics.pages_freed);
}

/// The yard of the signal handler, the frame that it holds, its calls, and those that failed.
static HANDLER_YARD: AtomicPtr<HostYard> = AtomicPtr::new(ptr::null_mut());
static HANDLER_FRAME: AtomicU64 = AtomicU64::new(0);
static HANDLED: AtomicU64 = AtomicU64::new(0);
static FAILED: AtomicU64 = AtomicU64::new(0);

extern "C" fn allocate_in_handler(_signal: c_int) {
    // SAFETY: the test stores a yard that lives until no more signals come.
    let yard = unsafe { &*HANDLER_YARD.load(Ordering::Relaxed) };
    let (next, has_failed) = match HANDLER_FRAME.load(Ordering::Relaxed) {
        0 => yard.alloc(Order::ZERO, Gfp::ATOMIC | Gfp::MOVABLE).map_or((0, true), |pfn| (pfn.0, false)),
        held => (0, yard.free(Pfn(held), Order::ZERO).is_err()),
    };
    HANDLER_FRAME.store(next, Ordering::Relaxed);
    HANDLED.fetch_add(1, Ordering::Relaxed);
    FAILED.fetch_add(has_failed.into(), Ordering::Relaxed);
}

/// The list is never empty nor full here, so the thread that is interrupted holds no lock of a zone, which the handler could wait for.
#[test]
fn a_signal_handler_allocates_while_it_interrupts_sequences() {
    let Some(yard) = yard(ListAccess::Sequences) else { return };
    yard.core().lists().resize(PcpSizing::Fixed(128));
    let (is_ready, is_done, thread) = (AtomicBool::new(false), AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|scope| {
        let (is_ready, is_done, thread, yard) = (&is_ready, &is_done, &thread, &yard);
        let user = scope.spawn(move || {
            let cpu = yard.platform().current_cpu();
            pin_to(cpu.0);
            // SAFETY: the call takes and changes nothing.
            thread.store(unsafe { libc::pthread_self() }, Ordering::Relaxed);
            let held: Vec<Pfn> = (0..64).map(|_| yard.alloc(Order::ZERO, Gfp::HIGHUSER_MOVABLE).unwrap()).collect();
            held[..32].iter().for_each(|pfn| yard.free(*pfn, Order::ZERO).unwrap());
            is_ready.store(true, Ordering::Release);
            let mut seen = BTreeSet::new();
            while !is_done.load(Ordering::Relaxed) {
                for _ in 0..1000 {
                    let pfn = yard.alloc(Order::ZERO, Gfp::HIGHUSER_MOVABLE).unwrap();
                    seen.insert(pfn);
                    yard.free(pfn, Order::ZERO).unwrap();
                }
            }
            held[32..].iter().for_each(|pfn| yard.free(*pfn, Order::ZERO).unwrap());
            assert!(held[32..].iter().all(|pfn| !seen.contains(pfn)), "a held frame was given out again");
        });
        HANDLER_YARD.store(ptr::from_ref::<HostYard>(yard).cast_mut(), Ordering::Relaxed);
        // SAFETY: the handler is a function of that type, and uses what async code may use: atomics, and the yard, none of whose locks
        // the interrupted thread holds.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = allocate_in_handler as extern "C" fn(c_int) as usize;
            assert_eq!(libc::sigaction(libc::SIGUSR2, &action, ptr::null_mut()), 0);
        }
        while !is_ready.load(Ordering::Acquire) {
            thread::yield_now();
        }
        // A busy host runs few of the handlers.
        let begin = Instant::now();
        let (usual, longest) = (Duration::from_millis(500), Duration::from_secs(120));
        let is_enough = || HANDLED.load(Ordering::Relaxed) > 100 && begin.elapsed() > usual;
        while !is_enough() && begin.elapsed() < longest && !user.is_finished() {
            // SAFETY: the thread runs until it is told to end.
            unsafe { libc::pthread_kill(thread.load(Ordering::Relaxed), libc::SIGUSR2) };
            thread::sleep(Duration::from_micros(20));
        }
        is_done.store(true, Ordering::Relaxed);
    });
    if HANDLER_FRAME.load(Ordering::Relaxed) != 0 {
        allocate_in_handler(0);
    }
    assert!(HANDLED.load(Ordering::Relaxed) > 100);
    assert_eq!(FAILED.load(Ordering::Relaxed), 0);
}

/// Restricts the calling thread to a CPU.
fn pin_to(cpu: u32) {
    // SAFETY: the set is as long as stated, and the call only reads it.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(cpu as usize, &mut set);
        assert_eq!(libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &set), 0);
    }
}

/// Takes the `rseq` area of the calling thread away; whether that was possible.
#[cfg(target_arch = "x86_64")]
fn leave_area() -> bool {
    const UNREGISTER: c_int = 1;
    const SIGNATURE: u32 = 0x5305_3053;
    unsafe extern "C" {
        static __rseq_offset: isize;
    }
    // SAFETY: a constant of glibc: the distance of the thread's area from the thread pointer, which points to itself.
    unsafe {
        let thread: *mut u8;
        std::arch::asm!("mov {}, fs:[0]", out(reg) thread, options(nostack, readonly));
        libc::syscall(libc::SYS_rseq, thread.offset(__rseq_offset), 32u32, UNREGISTER, SIGNATURE) == 0
    }
}

#[test]
#[cfg(target_arch = "x86_64")]
fn threads_without_an_area_bypass_the_lists() {
    let Some(yard) = yard(ListAccess::Sequences) else { return };
    let held = || yard.zone(ZONE).statistics().per_cpu;
    thread::scope(|scope| {
        scope.spawn(|| {
            if !leave_area() {
                println!("skipped: this C library's area cannot be given up");
                return;
            }
            assert_eq!(held(), PageCount(0));
            for _ in 0..1000 {
                let pfn = yard.alloc(Order::ZERO, Gfp::HIGHUSER_MOVABLE).unwrap();
                yard.free(pfn, Order::ZERO).unwrap();
                assert_eq!(yard.free(pfn, Order::ZERO).map_err(|error| error.pfn), Err(pfn), "a second free");
            }
            assert_eq!(held(), PageCount(0), "no list was used");
        });
    });
    use_lists(&yard, 0, 1000);
    assert!(held() > PageCount(0), "a thread with an area uses its list");
}

#[test]
fn lists_under_locks_do_the_same() {
    let yard = yard(ListAccess::Locked).unwrap();
    assert!(!yard.platform().has_sequences());
    thread::scope(|scope| {
        for seed in 0..4 {
            let yard = &yard;
            scope.spawn(move || use_lists(yard, seed, 20_000));
        }
    });
}
