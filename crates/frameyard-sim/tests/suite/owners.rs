//! Owners of frames on simulated machines: the lines of a fault, the waits of tasks that share a space, and
//! repeatable runs.

use std::cell::Cell;

use frameyard::platform::{LineKind, LockKind, MemoryBacking, Offload};
use frameyard::policy::ZonePolicy;
use frameyard::watermarks::PcpSizing;
use frameyard::{ByteSize, CpuId, Gfp, NodeId, Order, PageCount, Pfn, PfnRange};
use frameyard_sim::{
    Accessed, Account, Cause, FaultLoop, FaultRun, KernelOverhead, ListAccess, Machine, Mode, SimConfig, SimPlatform,
    SimYard, Spent,
};
use frameyard_vm::{LruPolicy, MapRequest, MemoryAccess, VirtAddr, Vm, VmConfig, VmCounter};

fn yard() -> SimYard {
    let config = SimConfig {
        node_memory: PageCount(1 << 19),
        policy: ZonePolicy::Vanilla416,
        sizing: PcpSizing::Classic,
        lists: ListAccess::Locks,
        costs: Vec::new(),
    };
    SimYard::new(&Machine::built_in("broadwell-40").unwrap(), &config).unwrap()
}

fn recounted(yard: &SimYard, vm: &Vm<'_, SimPlatform>) {
    vm.validate().unwrap();
    yard.validate().unwrap();
}

fn fault(mode: Mode, tasks: u32, seed: u64) -> FaultRun {
    let yard = yard();
    let vm = Vm::create(&yard, &VmConfig::default()).unwrap();
    let each = FaultLoop { tasks, mode, pages: 2048, rounds: 2, seed, lru: LruPolicy::Vanilla };
    let run = each.run(&yard, &vm).unwrap();
    recounted(&yard, &vm);
    run
}

#[test]
fn the_cpus_of_a_node_take_shards_of_its_lists_in_turn() {
    let yard = yard();
    let vm = Vm::create(&yard, &VmConfig { shards: 16, ..VmConfig::default() }).unwrap();
    let (tasks, lru) = (20, LruPolicy::Sharded);
    let each = FaultLoop { tasks, mode: Mode::Processes, pages: 64, rounds: 1, seed: 1, lru };
    each.run(&yard, &vm).unwrap();
    // The first twenty CPUs are the first threads of the cores of both nodes, and each node has 16 shards.
    for node in [NodeId(0), NodeId(1)] {
        assert_eq!(vm.lru_statistics(node).shards, 10, "{node}");
    }
    recounted(&yard, &vm);
}

/// The number of accesses to a target, whatever served them.
fn accesses(account: &Account, accessed: Accessed) -> u64 {
    let served = Cause::ALL.into_iter().filter(|cause| !matches!(cause, Cause::LineQueue | Cause::Bandwidth));
    served.map(|cause| account.of(Spent::Access(accessed, cause)).count).sum()
}

/// The count and the time of a kernel cost.
fn outside(yard: &SimYard, account: &Account, name: &str) -> (u64, u64) {
    let share = account.of(Spent::Cost(yard.platform().cost(name).unwrap()));
    (share.count, share.time.0)
}

#[test]
fn a_fault_touches_the_lines_of_its_protocol() {
    const PAGES: u64 = 4096;
    let yard = yard();
    let vm = Vm::create(&yard, &VmConfig::default()).unwrap();
    let space = vm.create_space().unwrap();
    let before = yard.platform().account();
    let account = Cell::new(None);
    let task = || {
        let range = space.map(MapRequest::anonymous(ByteSize(PAGES << 12))).unwrap();
        for page in 0..PAGES {
            space.touch(VirtAddr(range.start.0 + (page << 12)), MemoryAccess::Write).unwrap();
        }
        account.set(Some(yard.platform().account().since(&before)));
    };
    yard.run(vec![(CpuId(0), Box::new(task))]).unwrap();
    let account = account.take().unwrap();
    assert_eq!(vm.counted(VmCounter::Pgfault), PAGES);
    // Tables of the lowest level, and those above that the space did not have yet.
    let tables = space.statistics().page_tables.0 - 1;
    assert!((PAGES / 512..PAGES / 512 + 3).contains(&tables), "{tables}");
    // And the frame with the first area.
    let zeroed = PAGES + tables + 1;
    for (name, count) in [("exception", PAGES), ("fault-path", PAGES), ("zero-page", zeroed), ("map-call", 1)] {
        assert_eq!(outside(&yard, &account, name).0, count, "{name}");
    }
    assert_eq!(outside(&yard, &account, "unmap-page"), (0, 0));
    // Enter and leave, for each fault and for the call that maps.
    assert_eq!(accesses(&account, Accessed::Line(LineKind::MapLock)), 2 * (PAGES + 1));
    // The fault reads and sets the entry, and sets the entries that lead to tables.
    let entries = accesses(&account, Accessed::Line(LineKind::PageTable));
    assert!((2 * PAGES - tables..=2 * PAGES + tables).contains(&entries), "{entries}");
    // One place in the batch per page; the end of a list per page when the batch is full.
    let lists = accesses(&account, Accessed::Line(LineKind::LruLists));
    let batches = PAGES / 15;
    assert!((2 * PAGES..=2 * PAGES + 2 * batches).contains(&lists), "{lists}");
    let shard_lock = accesses(&account, Accessed::Lock(LockKind::LruShard));
    assert!((2 * batches..=2 * batches + 2).contains(&shard_lock), "{shard_lock}");
    drop(space);
    recounted(&yard, &vm);
}

#[test]
fn kernel_overheads_change_the_run_time() {
    let run = |change: &dyn Fn(&mut KernelOverhead)| {
        let mut machine = Machine::built_in("broadwell-40").unwrap();
        machine.kernel_overhead = KernelOverhead { exception_cycles: 0.0, ..KernelOverhead::default() };
        change(&mut machine.kernel_overhead);
        let config = SimConfig {
            node_memory: PageCount(1 << 17),
            policy: ZonePolicy::Bits,
            sizing: PcpSizing::Classic,
            lists: ListAccess::Locks,
            costs: Vec::new(),
        };
        let yard = SimYard::new(&machine, &config).unwrap();
        let vm = Vm::create(&yard, &VmConfig::default()).unwrap();
        let each =
            FaultLoop { tasks: 1, mode: Mode::Processes, pages: 500, rounds: 1, seed: 1, lru: LruPolicy::Vanilla };
        each.run(&yard, &vm).unwrap().busy().0
    };
    let none = run(&|_| {});
    assert!(run(&|outside| outside.exception_cycles = 100.0) > none);
    assert!(run(&|outside| outside.unmap_page_cycles = 0.0) < none);
    assert!(run(&|outside| outside.zero_page_cycles = 0.0) < none);
}

#[test]
fn a_copy_costs_cycles_and_traffic_and_backs_only_written_frames() {
    let yard = yard();
    let platform = yard.platform();
    let frame = || yard.frames(Order::ZERO, Gfp::HIGHUSER_MOVABLE).unwrap();
    let (mut written, blank, mut to) = (frame(), frame(), frame());
    written.bytes_mut().unwrap().fill(7);
    to.bytes_mut().unwrap().fill(9);
    let pfn = to.pfn();
    let copy = |from: Pfn| {
        let task = || {
            assert_eq!(platform.copy_frames(PfnRange::new(from, PageCount(1)), pfn), Offload::Done);
        };
        let (account, lines) = (platform.account(), platform.channel_lines());
        yard.run(vec![(CpuId(0), Box::new(task))]).unwrap();
        let spent = platform.account().since(&account);
        let moved: u64 = platform.channel_lines().iter().zip(lines).map(|(now, then)| now - then).sum();
        (outside(&yard, &spent, "copy-page"), moved)
    };
    let ((times, time), lines) = copy(written.pfn());
    assert!(to.bytes().unwrap().iter().all(|byte| *byte == 7));
    // At the clock of a socket with one busy core; each line is read, and each line of the target fetched and written back.
    assert_eq!((times, lines), (1, 3 * 64));
    assert!(time.abs_diff(2400 * 1_000_000 / 3100) < 1000, "{time} ps");
    assert_eq!(copy(blank.pfn()).0.0, 1);
    assert!(to.bytes().unwrap().iter().all(|byte| *byte == 0));
}

#[test]
fn tasks_wait_for_the_map_lock_only_in_a_shared_space() {
    let share = |run: &FaultRun| run.waiting_share(LockKind::AddressSpace);
    let (apart, together) = (fault(Mode::Processes, 20, 1), fault(Mode::Threads, 20, 1));
    assert_eq!(share(&apart), 0.0);
    assert!(share(&together) > 0.2, "{}", share(&together));
    assert!(together.rate < apart.rate / 2.0, "{} and {}", together.rate, apart.rate);
    let (alone, one) = (fault(Mode::Processes, 1, 1), fault(Mode::Threads, 1, 1));
    assert_eq!((share(&one), one.rate), (0.0, alone.rate), "one task never waits");
}

#[test]
fn runs_of_tasks_that_share_a_space_are_repeatable() {
    let once = |seed| format!("{:?}", fault(Mode::Threads, 20, seed));
    assert_eq!(once(3), once(3));
    assert_ne!(once(3), once(4));
}

#[test]
fn unread_frames_take_no_memory_and_reused_tables_are_zero() {
    let yard = yard();
    let vm = Vm::create(&yard, &VmConfig::default()).unwrap();
    for round in 0..3 {
        let space = vm.create_space().unwrap();
        let range = space.map(MapRequest::anonymous(ByteSize(8 << 20))).unwrap();
        for page in 0..2048 {
            space.touch(VirtAddr(range.start.0 + (page << 12)), MemoryAccess::Write).unwrap();
        }
        let mut byte = [1];
        space.read(VirtAddr(range.start.0 + 5000), &mut byte).unwrap();
        assert_eq!(byte, [0], "round {round}: a page that was looked at before is zeroed for its next owner");
        space.write(VirtAddr(range.start.0 + 5000), &[7]).unwrap();
        space.read(VirtAddr(range.start.0 + 5000), &mut byte).unwrap();
        assert_eq!(byte, [7]);
        // Reused tables keep no state of their former use.
        vm.validate().unwrap();
    }
    // SAFETY: no other view is used afterwards.
    unsafe { vm.destroy() }.unwrap();
    yard.validate().unwrap();
}
