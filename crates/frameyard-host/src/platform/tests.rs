use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Barrier, Mutex};

use frameyard::{Geometry, PfnRange};

use super::*;
use crate::memory::{Backing, NodeFrames};

fn platform() -> HostPlatform {
    let host = HostTopology::current().unwrap();
    let range = PfnRange { start: Pfn(0), end: Pfn(0x1000) };
    let frames = [NodeFrames { range, node: NodeId(0) }];
    let memory = HostMemory::builder(Geometry::X86_64, &frames).backing(Backing::Phantom).build(&host).unwrap();
    HostPlatform::new(memory, &host)
}

/// Runs `job` on a thread of its own, so that pinning it changes no other test.
fn on_a_thread(job: impl FnOnce() + Send) {
    thread::scope(|scope| scope.spawn(job).join().unwrap());
}

fn pin(cpu: CpuId) {
    CpuList::from_iter([cpu]).pin_this_thread().unwrap();
}

#[test]
fn a_pinned_thread_is_on_its_cpu_by_every_path() {
    let host = HostTopology::current().unwrap();
    for &cpu in host.allowed().as_slice() {
        on_a_thread(|| {
            pin(cpu);
            let many = platform();
            assert_eq!(many.current_cpu(), cpu);
            let asked = many.with_identity(CpuIdentity::Getcpu).unwrap();
            assert_eq!(asked.current_cpu(), cpu);
        });
    }
}

#[test]
fn the_identity_follows_a_thread_that_migrates() {
    let platform = platform();
    let allowed = HostTopology::current().unwrap().allowed().clone();
    if allowed.count() < 2 {
        println!("skipped: needs two CPUs");
        return;
    }
    on_a_thread(|| {
        for _ in 0..100 {
            for &cpu in allowed.as_slice() {
                pin(cpu);
                assert_eq!(platform.current_cpu(), cpu);
            }
        }
    });
}

#[test]
fn the_path_in_use_is_reported() {
    let platform = platform();
    let by_itself = platform.identity();
    match platform.with_identity(CpuIdentity::Rseq) {
        Ok(platform) => assert_eq!((by_itself, platform.identity()), (CpuIdentity::Rseq, CpuIdentity::Rseq)),
        Err(RseqUnavailable) => assert_eq!(by_itself, CpuIdentity::Getcpu),
    }
    assert_eq!(CpuIdentity::Fixed(CpuId(3)).name(), "fixed");
}

#[test]
fn each_worker_of_a_node_runs_once_with_a_number_of_its_own() {
    let platform = platform();
    let seen = Mutex::new(Vec::new());
    let together = Barrier::new(3);
    platform
        .run_workers(3, &|_| NodeId(0), &|worker| {
            together.wait();
            seen.lock().unwrap().push(worker);
        })
        .unwrap();
    let mut seen = seen.into_inner().unwrap();
    seen.sort_unstable();
    assert_eq!(seen, [0, 1, 2]);
}

#[test]
fn a_job_for_no_threads_still_runs() {
    let runs = AtomicUsize::new(0);
    let count = |_| {
        runs.fetch_add(1, Ordering::Relaxed);
    };
    platform().run_workers(0, &|_| NodeId(7), &count).unwrap();
    assert_eq!(runs.into_inner(), 1);
}

#[test]
fn a_panicking_worker_is_reported_and_the_others_finish() {
    let platform = platform();
    let finished = AtomicUsize::new(0);
    let result = platform.run_workers(4, &|_| NodeId(0), &|worker| {
        assert_ne!(worker, 2, "on purpose");
        finished.fetch_add(1, Ordering::Relaxed);
    });
    assert_eq!(result, Err(WorkerPanicked));
    assert_eq!(finished.into_inner(), 3);
    assert_eq!(platform.run_workers(2, &|_| NodeId(0), &|_| {}), Ok(()));
}

#[test]
fn a_lock_keeps_threads_apart_and_every_round_of_waiting_ends() {
    use frameyard::sync::AtomicU32;
    use frameyard::{LockId, ZoneId, ZoneKind};

    let platform = platform();
    let word = AtomicU32::new(0);
    let id = LockId::Zone(ZoneId::new(NodeId(0), ZoneKind::Normal));
    let counter = AtomicUsize::new(0);
    platform
        .run_workers(4, &|_| NodeId(0), &|_| {
            for _ in 0..1000 {
                platform.lock(id, &word);
                // A load and a store apart: without the lock, additions would be lost.
                let count = counter.load(Ordering::Relaxed);
                std::hint::spin_loop();
                counter.store(count + 1, Ordering::Relaxed);
                platform.unlock(id, &word);
            }
        })
        .unwrap();
    assert_eq!(counter.into_inner(), 4000);
    for round in [0, SPIN_ROUNDS, YIELD_ROUNDS, u32::MAX] {
        platform.relax(round);
    }
}

#[test]
fn phantom_frames_have_no_bytes() {
    assert_eq!(platform().frame_bytes(Pfn(1)), None);
}
