use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Barrier, Mutex};

use frameyard::platform::{MemoryBacking, NodeInit, Probe};
use frameyard::{ByteSize, Geometry, PageCount};

use super::*;
use crate::memory::{Backing, HugePages, NodeFrames};
use crate::region::Region;
use crate::sys::host_page_size;
use crate::test_tree::Tree;

fn platform() -> HostPlatform {
    platform_on(&HostTopology::current().unwrap())
}

fn platform_on(host: &HostTopology) -> HostPlatform {
    let range = PfnRange { start: Pfn(0), end: Pfn(0x1000) };
    let frames = [NodeFrames { range, node: NodeId(0) }];
    let memory = HostMemory::builder(Geometry::X86_64, &frames).backing(Backing::Phantom).build(host).unwrap();
    HostPlatform::new(memory, host)
}

/// Runs `job` on a thread of its own: pinning it affects no other test.
fn on_a_thread(job: impl FnOnce() + Send) {
    thread::scope(|scope| scope.spawn(job).join().unwrap());
}

fn pin(cpu: CpuId) {
    CpuList::from_iter([cpu]).pin_this_thread().unwrap();
}

#[test]
fn every_path_reports_the_cpu_of_a_pinned_thread() {
    let host = HostTopology::current().unwrap();
    for &cpu in host.allowed().as_slice() {
        on_a_thread(|| {
            pin(cpu);
            let many = platform();
            assert_eq!(many.current_cpu(), cpu);
            let chosen = many.with_identity(CpuIdentity::Getcpu).unwrap();
            assert_eq!(chosen.current_cpu(), cpu);
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
fn the_platform_reports_its_path_of_identity() {
    let platform = platform();
    let by_itself = platform.identity();
    match platform.with_identity(CpuIdentity::Rseq) {
        Ok(platform) => assert_eq!((by_itself, platform.identity()), (CpuIdentity::Rseq, CpuIdentity::Rseq)),
        Err(RseqUnavailable) => assert_eq!(by_itself, CpuIdentity::Getcpu),
    }
    assert_eq!(CpuIdentity::Fixed(CpuId(3)).name(), "fixed");
}

#[test]
fn each_worker_runs_once_with_its_own_number() {
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
fn a_job_for_no_workers_runs_on_the_caller() {
    let runs = AtomicUsize::new(0);
    let count = |_| {
        runs.fetch_add(1, Ordering::Relaxed);
    };
    platform().run_workers(0, &|_| NodeId(7), &count).unwrap();
    assert_eq!(runs.into_inner(), 1);
}

/// Panics on purpose if `condition` holds, without a message and a backtrace.
fn panic_if(condition: bool) {
    if condition {
        std::panic::resume_unwind(Box::new("on purpose"));
    }
}

#[test]
fn a_panicking_worker_is_reported_and_the_others_finish() {
    let platform = platform();
    let finished = AtomicUsize::new(0);
    let result = platform.run_workers(4, &|_| NodeId(0), &|worker| {
        panic_if(worker == 2);
        finished.fetch_add(1, Ordering::Relaxed);
    });
    assert_eq!(result, Err(WorkerPanicked));
    assert_eq!(finished.into_inner(), 3);
    assert_eq!(platform.run_workers(2, &|_| NodeId(0), &|_| {}), Ok(()));
}

#[test]
fn a_lock_excludes_threads_and_every_round_of_waiting_ends() {
    use frameyard::ZoneId;
    use frameyard::platform::LockId;
    use frameyard::sync::AtomicU32;
    use frameyard::units::ZoneKind;

    let platform = platform();
    let word = AtomicU32::new(0);
    let id = LockId::Zone(ZoneId::new(NodeId(0), ZoneKind::Normal));
    let counter = AtomicUsize::new(0);
    platform
        .run_workers(4, &|_| NodeId(0), &|_| {
            for _ in 0..1000 {
                platform.lock(id, &word).unwrap();
                // Separate load and store: without the lock, additions would be lost.
                let count = counter.load(Ordering::Relaxed);
                std::hint::spin_loop();
                counter.store(count + 1, Ordering::Relaxed);
                platform.unlock(id, &word);
            }
        })
        .unwrap();
    assert_eq!(counter.into_inner(), 4000);
    for round in [0, SPIN_ROUNDS, YIELD_ROUNDS, u32::MAX] {
        platform.spin(round);
        platform.wait(round);
    }
}

#[test]
fn phantom_frames_have_no_bytes() {
    assert_eq!(platform().frame_bytes(Pfn(1)), None);
}

/// The first CPUs that the process may use, as a machine with one node for each; `None` if there are fewer.
fn machine_of_nodes(cpus: usize) -> Option<(Vec<CpuId>, HostTopology)> {
    let allowed = HostTopology::current().unwrap().allowed().clone();
    let Some(cpus) = allowed.as_slice().get(..cpus) else {
        println!("skipped: needs {cpus} CPUs");
        return None;
    };
    let tree = Tree::new();
    let last = cpus.len() - 1;
    tree.write("sys/devices/system/cpu/online", &CpuList::from_iter(cpus.iter().copied()).to_string());
    tree.write("sys/devices/system/node/online", &format!("0-{last}"));
    tree.write("proc/cpuinfo", "");
    tree.write("proc/sys/kernel/osrelease", "6.12.1-test");
    tree.write("proc/meminfo", "MemTotal: 8388608 kB");
    for (node, cpu) in cpus.iter().enumerate() {
        let folder = format!("sys/devices/system/node/node{node}");
        tree.write(&format!("{folder}/cpulist"), &cpu.0.to_string());
        tree.write(&format!("{folder}/distance"), &vec!["10"; cpus.len()].join(" "));
        tree.write(&format!("{folder}/meminfo"), &format!("Node {node} MemTotal: 4194304 kB"));
    }
    Some((cpus.to_vec(), HostTopology::read(tree.path()).unwrap()))
}

/// The CPUs that each worker of a job may run on, by worker.
fn affinities(platform: &HostPlatform, count: usize, node_of: &(dyn Fn(usize) -> NodeId + Sync)) -> Vec<CpuList> {
    let seen = Mutex::new(vec![CpuList::default(); count]);
    let look = |worker: usize| seen.lock().unwrap()[worker] = CpuList::of_this_thread().unwrap();
    platform.run_workers(count, node_of, &look).unwrap();
    seen.into_inner().unwrap()
}

#[test]
fn every_worker_runs_on_its_node_and_the_caller_returns() {
    let Some((cpus, host)) = machine_of_nodes(2) else { return };
    let platform = platform_on(&host);
    let [first, second] = [0, 1].map(|index| CpuList::from_iter([cpus[index]]));
    for home in [first.clone(), second.clone(), host.allowed().clone()] {
        on_a_thread(|| {
            home.pin_this_thread().unwrap();
            let seen = affinities(&platform, 2, &|worker| NodeId(1 - worker as u16));
            assert_eq!(seen, [second.clone(), first.clone()]);
            assert_eq!(CpuList::of_this_thread().unwrap(), home);
        });
    }
}

#[test]
fn the_caller_returns_to_its_cpus_after_a_panic() {
    let Some((cpus, host)) = machine_of_nodes(2) else { return };
    let platform = platform_on(&host);
    for panicking in [0, 1] {
        on_a_thread(|| {
            pin(cpus[0]);
            let job = |worker| panic_if(worker == panicking);
            assert_eq!(platform.run_workers(2, &|_| NodeId(1), &job), Err(WorkerPanicked));
            assert_eq!(CpuList::of_this_thread().unwrap().as_slice(), &cpus[..1]);
        });
    }
}

#[test]
fn workers_have_a_cpu_each_or_share_all_of_the_node() {
    let host = HostTopology::current().unwrap();
    let platform = platform_on(&host);
    let node = platform.cpus_of(NodeId(0));
    let enough = node.as_slice().len();
    let mut own = affinities(&platform, enough, &|_| NodeId(0));
    own.sort_unstable_by_key(|cpus| cpus.as_slice().to_vec());
    let each: Vec<CpuList> = node.as_slice().iter().map(|cpu| CpuList::from_iter([*cpu])).collect();
    assert_eq!(own, each);
    assert_eq!(affinities(&platform, enough + 1, &|_| NodeId(0)), vec![node; enough + 1]);
}

#[test]
fn a_nested_job_may_use_all_cpus_of_the_node() {
    let Some((_, host)) = machine_of_nodes(1) else { return };
    // All nodes of the yard share the host's only node.
    let whole = HostTopology::current().unwrap();
    for host in [&host, &whole] {
        let platform = platform_on(host);
        let node = platform.cpus_of(NodeId(0));
        let more = node.as_slice().len() + 1;
        let inner = Mutex::new(Vec::new());
        let job = |_| *inner.lock().unwrap() = affinities(&platform, more, &|_| NodeId(0));
        platform.run_workers(1, &|_| NodeId(0), &job).unwrap();
        assert_eq!(inner.into_inner().unwrap(), vec![node; more]);
    }
}

#[test]
fn the_clock_rises_monotonically() {
    let platform = platform();
    let times: Vec<u64> = (0..100).map(|_| platform.clock_ns().unwrap()).collect();
    assert!(times.is_sorted());
    thread::sleep(Duration::from_micros(1));
    assert!(platform.clock_ns().unwrap() - times[99] >= 1000, "a sleep is never shorter than requested");
}

#[test]
fn a_watch_counts_written_pages_and_keeps_completed_nodes() {
    let watch = InitWatch::default();
    let platform = platform().with_init_watch(&watch);
    let written =
        |start, end| platform.init_progress(InitProgress::Written(PfnRange { start: Pfn(start), end: Pfn(end) }));
    let done = NodeInit { node: NodeId(3), threads: 2, pages: PageCount(2000), ..NodeInit::default() };
    assert_eq!((watch.pages(), watch.nodes()), (PageCount(0), Vec::new()));
    written(0, 1024);
    assert_eq!(watch.pages(), PageCount(1024));
    platform.run_workers(2, &|_| NodeId(0), &|worker| written(1024, 2000 + worker as u64)).unwrap();
    platform.init_progress(InitProgress::NodeDone(done));
    assert_eq!((watch.pages(), watch.nodes()), (PageCount(2977), vec![done]));
    assert_eq!(platform.init_watch().pages(), watch.pages());
}

/// The size of a host page, and a region of eight pages without memory.
fn eight_pages() -> (u64, Region) {
    let page = host_page_size() as u64;
    (page, Region::zeroed(ByteSize(8 * page), HugePages::Never).unwrap())
}

/// Backs a part of a region.
fn back(populate: PopulateMap, region: &Region, offset: u64, bytes: u64) -> Result<(), MapNotBacked> {
    let address = NonNull::from(&region.atomics()[offset as usize / 8]).cast();
    platform().with_populate_map(populate).back_map(PfnRange::default(), address, bytes as usize)
}

#[test]
fn a_part_of_the_map_is_populated_only_on_request() {
    let (page, region) = eight_pages();
    assert_eq!(back(PopulateMap::No, &region, 0, 8 * page), Ok(()));
    assert_eq!(region.resident().unwrap(), ByteSize(0));
    assert_eq!(back(PopulateMap::Yes, &region, 2 * page - 64, page + 128), Ok(()));
    assert_eq!(region.resident().unwrap(), ByteSize(3 * page));
    assert_eq!(back(PopulateMap::Yes, &region, 0, 8 * page), Ok(()));
    assert_eq!(region.resident().unwrap(), region.size());
}

#[test]
fn a_map_that_the_host_cannot_back_is_an_error() {
    let nowhere = NonNull::without_provenance(std::num::NonZero::new(host_page_size()).unwrap());
    let back_nothing = |populate| platform().with_populate_map(populate).back_map(PfnRange::default(), nowhere, 64);
    assert_eq!(back_nothing(PopulateMap::Yes), Err(MapNotBacked));
    assert_eq!(back_nothing(PopulateMap::No), Ok(()));
}

#[test]
fn a_map_in_a_short_file_is_an_error_instead_of_a_signal() {
    let page = host_page_size() as u64;
    let tree = Tree::new();
    tree.write("map", "");
    let file = std::fs::File::options().read(true).write(true).open(tree.path().join("map")).unwrap();
    file.set_len(2 * page).unwrap();
    let region = Region::in_file(&file, 0, ByteSize(4 * page), HugePages::Default).unwrap();
    assert_eq!(back(PopulateMap::Yes, &region, 0, 2 * page), Ok(()));
    assert_eq!(back(PopulateMap::Yes, &region, page, 2 * page), Err(MapNotBacked));
}
