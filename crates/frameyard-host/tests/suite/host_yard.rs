//! A yard on memory of this process: the contents of its frames, the memory it takes from the host, and its refusals.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::time::Duration;

use crate::checked_yard::{CheckedYard, range};
use crate::own_process::own_file;
use crate::test_huge_pages::AddedHugePages;
use frameyard::boot::{BootError, MemorySource, Poisoning, ZoneLimits};
use frameyard::platform::{InitProgress, MemoryBacking, Probe};
use frameyard::policy::ZonePolicy;
use frameyard::{
    AllocError, Block, ByteSize, CpuId, Gfp, MemoryTable, NodeId, Order, PageCount, Pfn, PfnRange, Platform, Yard,
    YardConfig,
};
use frameyard_host::{
    Backing, CpuIdentity, CpuList, FileGrowth, HostTopology, HostYard, HostYardBuilder, HostYardError, HugePages,
    HugetlbPool, HugetlbSize, InitWatch, ListAccess, MappedFrames, MemoryError, NodeBinding, PopulateMap, Region,
};

const ONE_CPU: [NodeId; 1] = [NodeId(0)];
const MIB: u64 = 256;
/// 32 MiB above 4 GiB.
const SMALL: [(PfnRange, NodeId); 1] = [range(0x10_0000, 32 * MIB, 0)];

fn small(builder: HostYardBuilder) -> CheckedYard {
    CheckedYard::new(builder, &SMALL, &YardConfig::new(&ONE_CPU))
}

fn refusal(builder: HostYardBuilder, memory: &[(PfnRange, NodeId)], config: &YardConfig<'_>) -> HostYardError {
    let table = MemoryTable { memory, ..MemoryTable::default() };
    builder.machine(&table, config).build().unwrap_err()
}

/// All free frames, in blocks of one order.
fn everything(yard: &CheckedYard, order: Order, gfp: Gfp) -> Vec<MappedFrames<&HostYard>> {
    std::iter::from_fn(|| yard.frames(order, gfp | Gfp::NOWARN).ok()).collect()
}

#[test]
fn a_file_that_is_too_small_is_refused_with_the_needed_size() {
    let path = own_file("too-small");
    std::fs::write(&path, [0; 4096]).unwrap();
    let backing = Backing::File { path: path.clone(), growth: FileGrowth::Refuse };
    let error = refusal(HostYard::builder().backing(backing), &SMALL, &YardConfig::new(&ONE_CPU));
    let expected = format!("{}: the file has 4K, and the frames need 32M: enlarge it or let it grow", path.display());
    assert_eq!(error.to_string(), expected);
    assert_eq!(std::fs::metadata(&path).unwrap().len(), 4096, "the file is as it was");
    std::fs::remove_file(&path).unwrap();
}

#[test]
fn a_file_serves_one_yard_at_a_time() {
    let path = own_file("in-use");
    let backing = Backing::File { path: path.clone(), growth: FileGrowth::Grow };
    let first = small(HostYard::builder().backing(backing.clone()));
    let error = refusal(HostYard::builder().backing(backing.clone()), &SMALL, &YardConfig::new(&ONE_CPU));
    assert!(matches!(error, HostYardError::Memory(MemoryError::FileInUse(_))), "{error}");
    assert_eq!(error.to_string(), format!("{}: in use as memory of another yard: choose another file", path.display()));
    drop(first);
    small(HostYard::builder().backing(backing));
    std::fs::remove_file(&path).unwrap();
}

#[test]
fn missing_huge_pages_are_counted_and_not_replaced() {
    let host = HostTopology::current().unwrap();
    // No other test changes the pool meanwhile.
    let _added = AddedHugePages::add(HugetlbSize::TwoMib.size(), 1);
    let free = HugetlbPool::of_host(&host, HugetlbSize::TwoMib).map_or(0, |pool| pool.free);
    let memory = [range(0x10_0000, (free + 3) * 512, 0)];
    let builder = HostYard::builder().backing(Backing::Hugetlb(HugetlbSize::TwoMib));
    let error = refusal(builder, &memory, &YardConfig::new(&ONE_CPU));
    let HostYardError::Memory(MemoryError::Hugetlb(shortage)) = &error else { panic!("{error}") };
    assert_eq!((shortage.needed, shortage.missing()), (free + 3, 3), "{error}");
}

#[test]
fn a_machine_larger_than_the_host_is_refused_but_may_be_phantom() {
    let config = YardConfig::new(&ONE_CPU);
    let host = HostTopology::current().unwrap();
    let memory = [range(0x10_0000, (host.memory().0 >> 12) + 0x10_0000, 0)];
    let error = refusal(HostYard::builder(), &memory, &config);
    let HostYardError::Memory(MemoryError::LargerThanHost { needed, .. }) = &error else { panic!("{error}") };
    assert_eq!(*needed, ByteSize(memory[0].0.count().0 << 12));
    let table = MemoryTable { memory: &memory, ..MemoryTable::default() };
    let phantom = HostYard::builder().backing(Backing::Phantom).machine(&table, &config).host(&host).build().unwrap();
    assert_eq!(phantom.stats().managed_pages(), memory[0].0.count());
}

#[test]
fn nodes_may_lie_2_to_the_44_bytes_apart() {
    let memory = [range(0x10_0000, 32 * MIB, 0), range(0x10_0000 + (1 << 32), 64 * MIB, 1)];
    let config = YardConfig { zone_limits: ZoneLimits::NONE, ..YardConfig::new(&[NodeId(0), NodeId(1)]) };
    let yard = CheckedYard::new(HostYard::builder().backing(Backing::Phantom), &memory, &config);
    assert_eq!(yard.map_region().size(), ByteSize::mib(4), "two sections of 128 MiB");
    std::thread::scope(|scope| {
        for (node, (range, _)) in memory.iter().enumerate() {
            let yard = &yard;
            scope.spawn(move || {
                for order in [0, 3, 9].map(Order) {
                    let request = || yard.request(order, Gfp::KERNEL).exact_node(NodeId(node as u16)).frame();
                    let blocks: Vec<Pfn> = std::iter::from_fn(|| request().ok()).take(4000 >> order.0).collect();
                    assert!(blocks.iter().all(|pfn| range.contains(*pfn)) && blocks.len() == 4000 >> order.0);
                    blocks.into_iter().for_each(|pfn| yard.free(pfn, order).unwrap());
                }
            });
        }
    });
}

#[test]
fn an_impossible_yard_is_refused_before_memory_is_mapped() {
    let boot =
        |memory: &[(PfnRange, NodeId)], config: &YardConfig<'_>| match refusal(HostYard::builder(), memory, config) {
            HostYardError::Boot(error) => error,
            other => panic!("{other}"),
        };
    let config = YardConfig::new(&ONE_CPU);
    assert_eq!(boot(&[], &config), BootError::NoMemory);
    assert_eq!(boot(&SMALL, &YardConfig::new(&[])), BootError::NoCpus);
    let [(first, node)] = SMALL;
    assert_eq!(boot(&[(first, node), (first, node)], &config), BootError::OverlappingMemory(first, first));
    let poisoned = YardConfig { poisoning: Poisoning::On, ..config };
    let error = refusal(HostYard::builder().backing(Backing::Phantom), &SMALL, &poisoned);
    assert!(matches!(error, HostYardError::Boot(BootError::NoFrameBytes)), "{error}");
}

/// A source that reports another machine on each call.
struct Fickle(Cell<u64>);

impl MemorySource for Fickle {
    fn for_each_memory(&self, visit: &mut dyn FnMut(PfnRange, NodeId)) {
        let asked = self.0.replace(self.0.get() + 1);
        visit(PfnRange::new(Pfn(0x10_0000), PageCount((16 << asked) * MIB)), NodeId(0));
    }

    fn for_each_reserved(&self, _: &mut dyn FnMut(PfnRange)) {}
}

#[test]
fn a_memory_source_is_called_once() {
    let host = HostTopology::current().unwrap();
    let source = Fickle(Cell::new(0));
    let yard = HostYard::builder().machine(&source, &YardConfig::new(&ONE_CPU)).host(&host).build().unwrap();
    assert_eq!((yard.stats().managed_pages(), yard.memory().frames()), (PageCount(16 * MIB), PageCount(16 * MIB)));
    yard.validate().unwrap();
}

#[test]
fn zeroed_frames_are_zero_after_any_contents() {
    let path = own_file("zeroed");
    let _ = std::fs::remove_file(&path);
    let backings = [Backing::Anonymous, Backing::Memfd, Backing::File { path: path.clone(), growth: FileGrowth::Grow }];
    for backing in backings {
        let yard = small(HostYard::builder().backing(backing).huge_pages(HugePages::Default));
        for order in [0, 1, 3, 4, 9, 10].map(Order) {
            for mut frames in everything(&yard, order, Gfp::KERNEL) {
                frames.bytes_mut().fill(0xff);
            }
            let dirty = everything(&yard, order, Gfp::KERNEL);
            let is_dirty = |frames: &&MappedFrames<&HostYard>| frames.bytes().contains(&0xff);
            assert!(dirty.iter().any(|frames| is_dirty(&frames)), "frames keep their contents");
            drop(dirty);
            let zeroed = everything(&yard, order, Gfp::KERNEL | Gfp::ZERO);
            assert!(zeroed.len() as u64 >= (7 * MIB) >> order.0);
            assert_eq!(zeroed.iter().find(is_dirty).map(MappedFrames::range), None);
            drop(zeroed);
            yard.drain_all();
        }
    }
    std::fs::remove_file(&path).unwrap();
}

#[test]
fn a_write_to_a_free_frame_is_detected_at_its_next_allocation() {
    for backing in [Backing::Anonymous, Backing::Memfd] {
        let config = YardConfig { poisoning: Poisoning::On, ..YardConfig::new(&ONE_CPU) };
        let mut yard = CheckedYard::new(HostYard::builder().backing(backing), &SMALL, &config);
        for order in [0, 3, 9].map(Order) {
            let frames = yard.frames(order, Gfp::KERNEL).unwrap();
            let (block, last) = (frames.pfn(), frames.pfn() + PageCount(order.pages().0 - 1));
            drop(frames);
            let byte = yard.memory().frame(last).unwrap();
            // SAFETY: the frame is mapped as long as the yard, and no other thread uses the yard.
            unsafe { byte.add(4095).write(1) };
            let poisoned = AllocError::Poisoned { pfn: last, block, order };
            let mut held = Vec::new();
            let found = loop {
                match yard.frames(order, Gfp::KERNEL) {
                    Ok(frames) => held.push(frames),
                    Err(error) => break error,
                }
            };
            assert_eq!(found, poisoned);
            drop(held);
            yard.drain_all();
            yard.isolated += order.pages();
        }
        assert_eq!(yard.stats().poison_hits(), 3);
    }
}

#[test]
fn every_frame_has_its_own_bytes() {
    let memory = [range(1, 0x9e, 0), range(0x100, 7 * MIB, 0), range(0x10_0000, 8 * MIB, 1)];
    for backing in [Backing::Anonymous, Backing::Memfd] {
        let config = YardConfig::new(&ONE_CPU);
        let yard = CheckedYard::new(HostYard::builder().backing(backing), &memory, &config);
        let mut all = everything(&yard, Order(1), Gfp::KERNEL);
        all.extend(everything(&yard, Order::ZERO, Gfp::KERNEL));
        let pfns: BTreeSet<Pfn> = all.iter().map(MappedFrames::pfn).collect();
        assert_eq!(pfns.len(), all.len());
        assert!(all.iter().map(MappedFrames::count).sum::<PageCount>() > PageCount(14 * MIB));
        for frames in &mut all {
            let pfn = frames.pfn().0;
            for (word, bytes) in frames.bytes_mut().as_chunks_mut::<8>().0.iter_mut().enumerate() {
                *bytes = (pfn << 12 | word as u64).to_le_bytes();
            }
        }
        yard.validate().unwrap();
        for frames in &all {
            let intact =
                |(word, bytes): (usize, &[u8; 8])| *bytes == (frames.pfn().0 << 12 | word as u64).to_le_bytes();
            assert!(frames.bytes().as_chunks::<8>().0.iter().enumerate().all(intact), "{frames:?}");
        }
    }
}

#[test]
fn blocks_of_two_mebibytes_are_aligned_in_memory() {
    // The first frame is not aligned.
    let memory = [range(0x12345, 32 * MIB, 0)];
    for backing in [Backing::Anonymous, Backing::Memfd] {
        let config = YardConfig::new(&ONE_CPU);
        let yard = CheckedYard::new(HostYard::builder().backing(backing), &memory, &config);
        let blocks = everything(&yard, Order(9), Gfp::HIGHUSER_MOVABLE);
        assert!(blocks.len() >= 8);
        for block in &blocks {
            assert_eq!(block.as_ptr().as_ptr() as usize % (2 << 20), 0, "{block:?}");
            assert_eq!(block.bytes().len(), 2 << 20);
        }
    }
}

#[test]
fn holes_have_no_bytes_and_nodes_allocate_their_own_frames() {
    let memory = [range(0x10_0000, 16 * MIB, 0), range(0x20_0000, 16 * MIB, 1), range(0x30_0000, 16 * MIB, 0)];
    let config = YardConfig { zone_limits: ZoneLimits::NONE, ..YardConfig::new(&[NodeId(0), NodeId(1)]) };
    let yard = CheckedYard::new(HostYard::builder(), &memory, &config);
    for (range, _) in memory {
        let last = Pfn(range.end.0 - 1);
        assert!(yard.memory().frame(range.start).is_some() && yard.memory().frame(last).is_some());
        assert_eq!((yard.memory().frame(range.end), yard.core().zone_of(range.end)), (None, None));
    }
    for node in [NodeId(0), NodeId(1)] {
        let of_node = memory.map(|(range, of)| if of == node { range } else { PfnRange::default() });
        for order in [0, 3, 9, 10].map(Order) {
            let pfn = yard.request(order, Gfp::KERNEL | Gfp::THISNODE).node(node).frame().unwrap();
            assert!(of_node.iter().any(|range| range.contains(pfn)), "{pfn} is of {node}");
            yard.free(pfn, order).unwrap();
        }
    }
    let (range, node) = memory[2];
    let frames = yard.request(range, Gfp::KERNEL | Gfp::ZERO).guard().unwrap();
    assert_eq!((frames.range(), node), (range, NodeId(0)));
    assert!(frames.bytes().iter().all(|byte| *byte == 0));
}

#[test]
fn a_new_yard_touches_no_frame_and_no_map_page_or_one_per_block_on_a_free_list() {
    let host = HostTopology::current().unwrap();
    let size = ByteSize::gib(8).0.min(host.usable_memory().0 / 2 / (4 << 20) * (4 << 20));
    let memory = [range(0x10_0000, size >> 12, 0)];
    // Not a `CheckedYard`, whose validator would read the whole map before this test measures it.
    let table = MemoryTable { memory: &memory, ..MemoryTable::default() };
    let with = |policy| {
        let builder = HostYard::builder().huge_pages(HugePages::Never);
        let yard =
            builder.machine(&table, &YardConfig { policy, ..YardConfig::new(&ONE_CPU) }).host(&host).build().unwrap();
        assert_eq!(yard.memory().resident().unwrap(), ByteSize(0));
        yard
    };
    let on_lists = with(ZonePolicy::Vanilla);
    let largest_blocks = size >> 22;
    let touched = on_lists.map_region().resident().unwrap();
    assert!(touched <= ByteSize(largest_blocks * host.page_size().0), "{touched} for {largest_blocks} blocks");
    assert!(touched > ByteSize(0) && touched < on_lists.map_region().size());
    drop(on_lists);
    let yard = with(ZonePolicy::Bits);
    assert_eq!(yard.map_region().resident().unwrap(), ByteSize(0));
    let frames = yard.frames(Order(9), Gfp::KERNEL).unwrap();
    assert_eq!(yard.memory().resident().unwrap(), ByteSize(0), "allocation touches no frame");
    drop(frames);
    let zeroed = yard.frames(Order(3), Gfp::KERNEL | Gfp::ZERO).unwrap();
    assert_eq!(yard.memory().resident().unwrap(), zeroed.size());
    drop(zeroed);
    yard.validate().unwrap();
}

/// The frames that a single thread on its first permitted CPU gets, step by step.
fn frames_given(identity: CpuIdentity) -> Vec<Result<Pfn, AllocError>> {
    let first = HostTopology::current().unwrap().allowed().as_slice()[0];
    let cpus = vec![NodeId(0); first.index() + 2];
    std::thread::scope(|scope| {
        let steps = || {
            CpuList::from_iter([first]).pin_this_thread().unwrap();
            let yard = CheckedYard::new(HostYard::builder().identity(identity), &SMALL, &YardConfig::new(&cpus));
            assert_eq!(yard.platform().identity(), identity);
            assert_eq!(yard.platform().current_cpu(), first);
            let mut given = Vec::new();
            let mut held = Vec::new();
            for step in 0..4000u64 {
                let order = Order([0, 0, 0, 1, 3, 9, 4][step as usize % 7]);
                let pfn = yard.alloc(order, Gfp::KERNEL | Gfp::NOWARN);
                given.push(pfn);
                held.extend(pfn.ok().map(|pfn| (pfn, order)));
                if step % 3 > 0 && !held.is_empty() {
                    let (pfn, order) = held.swap_remove(step as usize * 31 % held.len());
                    yard.free(pfn, order).unwrap();
                }
            }
            for (pfn, order) in held {
                yard.free(pfn, order).unwrap();
            }
            given
        };
        scope.spawn(steps).join().unwrap()
    })
}

#[test]
fn all_cpu_identities_lead_to_the_same_frames() {
    let first = HostTopology::current().unwrap().allowed().as_slice()[0];
    let fixed = frames_given(CpuIdentity::Fixed(first));
    assert!(fixed.iter().flatten().collect::<BTreeSet<_>>().len() > 100);
    assert_eq!(frames_given(CpuIdentity::Getcpu), fixed);
    let rseq = HostYard::builder().identity(CpuIdentity::Rseq);
    let table = MemoryTable { memory: &SMALL, ..MemoryTable::default() };
    match rseq.machine(&table, &YardConfig::new(&ONE_CPU)).build() {
        Ok(_) => assert_eq!(frames_given(CpuIdentity::Rseq), fixed),
        Err(HostYardError::Rseq(error)) => println!("skipped: {error}"),
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn an_unknown_cpu_is_folded_into_the_yards_cpus() {
    let cpus = [NodeId(0); 3];
    let count = |identity| {
        let yard = CheckedYard::new(HostYard::builder().identity(identity), &SMALL, &YardConfig::new(&cpus));
        for _ in 0..100 {
            let pfn = yard.alloc(Order::ZERO, Gfp::KERNEL).unwrap();
            yard.free(pfn, Order::ZERO).unwrap();
        }
        let zone = yard.stats().zones().next().unwrap();
        let on_lists = |cpu| yard.zone(zone.id).pcp(CpuId(cpu)).map(|lists| lists.count);
        assert!(zone.per_cpu > PageCount(0));
        (0..3).map(on_lists).collect::<Vec<_>>()
    };
    for cpu in [2, 5, u32::MAX - 1] {
        assert_eq!(count(CpuIdentity::Fixed(CpuId(cpu))), count(CpuIdentity::Fixed(CpuId(cpu % 3))), "CPU {cpu}");
    }
}

#[test]
fn a_watch_sees_the_map_of_a_later_yard_being_initialised() {
    let watch = InitWatch::default();
    let yard = small(HostYard::builder().init_watch(&watch));
    let created = watch.pages();
    yard.platform().init_progress(InitProgress::Written(SMALL[0].0));
    assert_eq!(watch.pages(), created + SMALL[0].0.count());
    assert_eq!(yard.platform().init_watch().pages(), watch.pages());
}

#[test]
fn the_map_is_populated_on_request() {
    for (populate, becomes_resident) in [(PopulateMap::No, false), (PopulateMap::Yes, true)] {
        // Phantom frames: the map gets no huge pages and is written at few places.
        let yard = small(HostYard::builder().backing(Backing::Phantom).populate_map(populate));
        let map = yard.map_region();
        let before = map.resident().unwrap();
        yard.platform().back_map(SMALL[0].0, map.base(), map.size().0 as usize).unwrap();
        let after = map.resident().unwrap();
        assert_eq!(after == map.size(), becomes_resident, "{populate:?}: from {before} to {after}");
    }
}

#[test]
fn a_yard_by_size_has_at_least_that_size_and_the_cpus_of_the_host() {
    let cpus = HostTopology::current().unwrap().online().as_slice().last().unwrap().index() + 1;
    for bytes in [4 << 20, (4 << 20) + 1, 50_000_000, 64 << 20] {
        let yard = HostYard::with_memory(ByteSize(bytes)).unwrap();
        let size = yard.geometry().size_of(yard.stats().free_pages()).0;
        assert!(size >= bytes && size < bytes + (4 << 20), "{size} bytes for {bytes}");
        assert_eq!(yard.core().cpus() as usize, cpus);
        let mut all: Vec<_> = std::iter::from_fn(|| yard.frames(Order(4), Gfp::KERNEL | Gfp::NOWARN).ok()).collect();
        assert!(all.len() as u64 * 65536 > size / 2, "{} blocks", all.len());
        all.iter_mut().for_each(|frames| frames.bytes_mut().fill(1));
        drop(all);
        yard.validate().unwrap();
    }
}

#[test]
fn a_yard_by_size_is_refused_if_it_is_too_small_or_larger_than_the_host() {
    let error = HostYard::with_memory(ByteSize(0)).unwrap_err();
    assert_eq!(error.to_string(), "0 bytes of memory is too little for a yard: request at least 4M");
    let larger = HostTopology::current().unwrap().memory().0 + ByteSize::gib(4).0;
    let error = HostYard::with_memory(ByteSize(larger)).unwrap_err();
    assert!(matches!(error, HostYardError::Memory(MemoryError::LargerThanHost { .. })), "{error}");
}

#[test]
fn phantom_frames_have_guards_without_bytes_only() {
    let yard = HostYard::builder().backing(Backing::Phantom).size(ByteSize::gib(64)).build().unwrap();
    let free = yard.stats().free_pages();
    let error = yard.frames(Order(9), Gfp::KERNEL).unwrap_err();
    assert!(matches!(error, AllocError::NoFrameBytes(_)), "{error}");
    assert_eq!(yard.stats().free_pages(), free);
    let block = Yard::frames(yard.core(), Order(9), Gfp::KERNEL).unwrap();
    assert_eq!(block.bytes(), None);
    assert!(matches!(yard.with_bytes(block), Err(AllocError::NoFrameBytes(_))));
    assert_eq!(yard.stats().free_pages(), free);
}

#[test]
#[should_panic(expected = "frames of this yard")]
fn a_guard_of_another_yard_is_refused() {
    let [one, other] = [(); 2].map(|()| HostYard::with_memory(ByteSize::mib(4)).unwrap());
    let block = Yard::frames(one.core(), Order(0), Gfp::KERNEL).unwrap();
    let _ = other.with_bytes(block);
}

#[test]
fn a_yard_by_size_has_the_policy_of_its_builder() {
    for policy in ZonePolicy::ALL {
        let name = format!("frameyard-policy-{}", std::process::id());
        let builder = || HostYard::builder().policy(policy);
        let shared = builder().size(ByteSize::mib(4)).shared_as(&name).build().unwrap();
        let private = builder().size(ByteSize::mib(4)).build().unwrap();
        assert_eq!([private.core().policy(), shared.core().policy()], [policy; 2]);
    }
}

#[test]
fn a_block_freed_to_another_yard_is_refused_there() {
    let [one, other] = [64, 96].map(|mib| HostYard::with_memory(ByteSize::mib(mib)).unwrap());
    let ranges = |yard: &HostYard| yard.memory_ranges().map(|(range, _)| range).collect::<Vec<_>>();
    let are_apart = |range: &PfnRange| ranges(&other).iter().all(|others| range.intersection(*others).is_empty());
    assert!(ranges(&one).iter().all(are_apart), "{:?}, {:?}", ranges(&one), ranges(&other));
    let blocks = [&one, &other].map(|yard| yard.alloc(Order(3), Gfp::KERNEL).unwrap());
    assert!(one.free(blocks[1], Order(3)).is_err() && other.free(blocks[0], Order(3)).is_err());
    for (yard, block) in [&one, &other].into_iter().zip(blocks) {
        yard.free(block, Order(3)).unwrap();
        yard.validate().unwrap();
    }
}

#[test]
fn a_block_of_a_gibibyte_is_aligned_to_its_size_in_memory() {
    let yard = HostYard::with_memory(ByteSize::gib(3)).unwrap();
    let order = yard.geometry().block_order(ByteSize::gib(1)).unwrap();
    let block = yard.frames(order, Gfp::HIGHUSER_MOVABLE).unwrap();
    assert_eq!(block.bytes().as_ptr().addr() % (1 << 30), 0);
}

#[test]
fn allocated_blocks_are_listed() {
    let yard = HostYard::with_memory(ByteSize::mib(64)).unwrap();
    assert_eq!(yard.stats().allocated_blocks().next(), None);
    let orders = [0, 3, 4, 8, 9, 10].map(Order);
    let mut blocks = orders.map(|order| Block { pfn: yard.alloc(order, Gfp::KERNEL).unwrap(), order });
    blocks.sort_by_key(|block| block.pfn);
    assert_eq!(yard.stats().allocated_blocks().collect::<Vec<_>>(), blocks);
    blocks.iter().for_each(|block| yard.free(block.pfn, block.order).unwrap());
    assert_eq!(yard.stats().allocated_blocks().next(), None);
}

/// What a process prints that drops a yard with blocks, and one without.
#[test]
fn a_dropped_yard_says_how_many_blocks_were_not_freed() {
    let name = "a_dropped_yard_says_how_many_blocks_were_not_freed";
    if std::env::var_os("FRAMEYARD_TEST_LEAKS").is_some() {
        let [leaky, tidy] = [(); 2].map(|()| HostYard::with_memory(ByteSize::mib(64)).unwrap());
        for yard in [&leaky, &tidy] {
            let block = yard.alloc(Order(2), Gfp::KERNEL).unwrap();
            let freed = yard.alloc(Order(0), Gfp::KERNEL).unwrap();
            yard.free(freed, Order(0)).unwrap();
            if std::ptr::eq(yard, &tidy) {
                yard.free(block, Order(2)).unwrap();
            }
        }
        return;
    }
    let mut command = std::process::Command::new(std::env::current_exe().unwrap());
    crate::own_process::run_test(&mut command, module_path!(), name);
    let output = command.env("FRAMEYARD_TEST_LEAKS", "1").output().unwrap();
    let printed = String::from_utf8_lossy(&output.stderr);
    let lines: Vec<&str> = printed.lines().filter(|line| line.starts_with("frameyard: ")).collect();
    let expected = "frameyard: a yard is dropped, but not all of its blocks were freed: 1 with 4 frames; \
                    `stats().allocated_blocks()` lists them";
    assert_eq!(lines, if cfg!(debug_assertions) { vec![expected] } else { vec![] }, "{printed}");
}

/// The setting that a build refuses.
fn refused_setting(builder: HostYardBuilder<'_>) -> &'static str {
    match builder.build() {
        Err(HostYardError::Setting { setting, .. }) => setting,
        other => panic!("{other:?}"),
    }
}

#[test]
fn settings_that_do_not_apply_are_refused() {
    let table = MemoryTable { memory: &SMALL, ..MemoryTable::default() };
    let config = YardConfig::new(&ONE_CPU);
    type Set = fn(HostYardBuilder<'_>) -> HostYardBuilder<'_>;
    let by_size: [(&str, Set); 4] = [
        ("frame_size", |builder| builder.frame_size(ByteSize::kib(4))),
        ("cpus", |builder| builder.cpus(std::num::NonZeroU32::MIN)),
        ("device_space", |builder| builder.device_space(ByteSize(0))),
        ("policy", |builder| builder.policy(ZonePolicy::default())),
    ];
    let of_new_yards: [(&str, Set); 3] = [
        ("shared", |builder| builder.shared()),
        ("shared_as", |builder| builder.shared_as("name").shared()),
        ("backing", |builder| builder.backing(Backing::Phantom)),
    ];
    let private: [(&str, Set); 6] = [
        ("backing", |builder| builder.backing(Backing::Anonymous)),
        ("huge_pages", |builder| builder.huge_pages(HugePages::Default)),
        ("map_huge_pages", |builder| builder.map_huge_pages(HugePages::Never)),
        ("node_binding", |builder| builder.node_binding(NodeBinding::Bind)),
        ("list_access", |builder| builder.list_access(ListAccess::Locked)),
        ("map_region", |builder| builder.map_region(Region::zeroed(ByteSize::kib(64), HugePages::Never).unwrap())),
    ];
    let machine = || HostYard::builder().machine(&table, &config);
    let yard = HostYard::builder().size(ByteSize::mib(4)).shared().build().unwrap();
    // SAFETY: only this yard writes to the file.
    let attach = || unsafe { HostYard::builder().attach(yard.shared_file().unwrap()) };
    for (name, set) in by_size {
        assert_eq!(refused_setting(set(machine())), name);
        assert_eq!(refused_setting(set(machine()).shared()), name);
    }
    for (name, set) in by_size.into_iter().chain(of_new_yards).chain(private) {
        assert_eq!(refused_setting(set(attach())), name);
    }
    for (name, set) in private {
        assert_eq!(refused_setting(set(machine()).shared()), name);
        let unused = own_file(name);
        assert_eq!(refused_setting(set(HostYard::builder()).size(ByteSize::mib(4)).shared_as(&unused)), name);
        assert!(!unused.exists());
    }
    assert_eq!(refused_setting(machine().lock_limit(Duration::from_secs(1))), "lock_limit");
    let (region, advice) = (Region::zeroed(ByteSize::mib(1), HugePages::Never).unwrap(), HugePages::Never);
    assert_eq!(refused_setting(machine().map_region(region).map_huge_pages(advice)), "map_huge_pages");
    let error = machine().policy(ZonePolicy::default()).build().unwrap_err();
    let expected = "the setting `policy` does not apply: set it in the configuration of the machine";
    assert_eq!(error.to_string(), expected);
}

#[test]
fn a_yard_has_exactly_one_source() {
    let error = HostYard::builder().build().unwrap_err();
    let expected = "the setting `size` is missing: use it, or `machine`, `open` or `attach`";
    assert_eq!(error.to_string(), expected);
    let table = MemoryTable { memory: &SMALL, ..MemoryTable::default() };
    let config = YardConfig::new(&ONE_CPU);
    let both = HostYard::builder().size(ByteSize::mib(4)).machine(&table, &config);
    assert_eq!(refused_setting(both), "size");
    // SAFETY: nothing is opened.
    let both = unsafe { HostYard::builder().open("no-such-yard") }.size(ByteSize::mib(4));
    assert_eq!(refused_setting(both), "open");
    // The same setting twice: the second value holds, as for all settings.
    let yard = HostYard::builder().size(ByteSize::mib(64)).size(ByteSize::mib(4)).build().unwrap();
    assert_eq!(yard.stats().managed_pages(), PageCount(1024));
}

#[test]
fn a_shared_yard_can_have_phantom_frames() {
    let builder = HostYard::builder().size(ByteSize::gib(64)).backing(Backing::Phantom);
    let yard = builder.shared().build().unwrap();
    // SAFETY: only yards write to the file.
    let other = unsafe { HostYard::builder().attach(yard.shared_file().unwrap()) }.build().unwrap();
    assert!(matches!(other.frames(Order(0), Gfp::KERNEL), Err(AllocError::NoFrameBytes(_))));
    let pfn = other.alloc(Order(3), Gfp::KERNEL).unwrap();
    yard.free(pfn, Order(3)).unwrap();
    yard.validate().unwrap();
}
