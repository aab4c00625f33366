//! A yard that several processes use at once: this test program executed again, attached to the memory file.

use std::collections::BTreeSet;
use std::process::Stdio;
use std::sync::atomic::{AtomicU64, Ordering};

use frameyard::boot::{AttachError, Poisoning};
use frameyard::watermarks::PcpSizing;
use frameyard::{
    AllocError, ByteSize, CpuId, Geometry, Gfp, MemoryTable, NodeId, Order, PageCount, Pfn, PfnRange, YardConfig,
};
use frameyard_host::{
    Backing, CpuIdentity, HostTopology, HostYard, HostYardError, HugePages, NodeFrames, Region, SharedFrames,
    SharedLayout, SharedMemoryFile, spawn_workers,
};

const WORKER: &str = "FRAMEYARD_TEST_WORKER";
const EXCHANGE: &str = "FRAMEYARD_TEST_EXCHANGE";
/// Processes that allocate and free. One more drains.
const TRADERS: usize = 5;
const SLOTS: usize = 48;
const EXCHANGE_ORDER: Order = Order(0);

/// 4 MiB of DMA, 96 MiB and 64 MiB of DMA32 on two nodes, 64 MiB of Normal; holes between them.
const MEMORY: [(PfnRange, NodeId); 5] = {
    const fn range(start: u64, pages: u64, node: u16) -> (PfnRange, NodeId) {
        (PfnRange { start: Pfn(start), end: Pfn(start + pages) }, NodeId(node))
    }
    [
        range(1, 0x9e, 0),
        range(0x100, 0x300, 0),
        range(0x1000, 0x6000, 0),
        range(0x1_0000, 0x4000, 1),
        range(0x10_0000, 0x4000, 1),
    ]
};
const CPUS: [NodeId; 4] = [NodeId(0), NodeId(0), NodeId(1), NodeId(1)];

fn made(frames: SharedFrames, poisoning: Poisoning) -> (HostYard, SharedMemoryFile, HostTopology) {
    let host = HostTopology::current().unwrap();
    let memory = MemoryTable { memory: &MEMORY, ..MemoryTable::default() };
    let config = YardConfig { poisoning, ..YardConfig::new(&CPUS) };
    let builder = HostYard::builder().machine(&memory, &config).host(&host).shared();
    let yard = match frames {
        SharedFrames::Memory => builder.build(),
        SharedFrames::Phantom => builder.backing(Backing::Phantom).build(),
    };
    let yard = yard.unwrap();
    let file = yard.shared_file().unwrap().try_clone().unwrap();
    yard.validate().unwrap();
    (yard, file, host)
}

fn attached(identity: Option<CpuIdentity>) -> HostYard {
    let host = HostTopology::current().unwrap();
    let file = SharedMemoryFile::from_environment(&host).unwrap();
    let builder = HostYard::builder();
    let builder = identity.into_iter().fold(builder, |builder, identity| builder.identity(identity));
    // SAFETY: only yards write to the file.
    unsafe { builder.attach(&file) }.host(&host).build().unwrap()
}

/// The word `index` of a frame that this process owns, or that all processes use as atomics.
fn word(yard: &HostYard, pfn: Pfn, index: usize) -> &AtomicU64 {
    assert!(index < 512);
    let first = yard.memory().frame(pfn).expect("the frame has bytes").cast::<AtomicU64>();
    // SAFETY: the frame is present as long as the yard lives, the index lies inside it, and these tests reach
    // frames as atomics alone.
    unsafe { first.add(index).as_ref() }
}

/// Slots in a frame that all processes know. The process that takes a block out of a slot owns it.
struct Exchange<'y> {
    yard: &'y HostYard,
    frame: Pfn,
}

/// A block that moves between processes: frame number, order, and the stamp of its frames.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Block {
    pfn: Pfn,
    order: Order,
    /// The worker that allocated it, and the number of its earlier allocations: unique.
    stamp: (u16, u32),
}

impl Block {
    fn stamp_word(self, pfn: Pfn) -> u64 {
        u64::from(self.stamp.0) << 48 | u64::from(self.stamp.1) << 24 | pfn.0
    }

    fn frames(self) -> impl Iterator<Item = Pfn> {
        let first = self.pfn;
        (0..self.order.pages().0).map(move |offset| first + PageCount(offset))
    }

    /// Writes to the first and last word of every frame.
    fn write(self, yard: &HostYard) {
        for pfn in self.frames() {
            word(yard, pfn, 0).store(self.stamp_word(pfn), Ordering::Relaxed);
            word(yard, pfn, 511).store(!self.stamp_word(pfn), Ordering::Relaxed);
        }
    }

    fn check(self, yard: &HostYard) {
        for pfn in self.frames() {
            let found = [0, 511].map(|index| word(yard, pfn, index).load(Ordering::Relaxed));
            let expected = self.stamp_word(pfn);
            assert_eq!(found, [expected, !expected], "{pfn} of {self:?} holds what its owner wrote");
        }
    }
}

impl Exchange<'_> {
    const STARTED: usize = 2 * SLOTS;
    const DONE: usize = 2 * SLOTS + 1;

    fn count(&self, index: usize) -> &AtomicU64 {
        word(self.yard, self.frame, index)
    }

    /// Exchanges the block in a slot.
    fn swap(&self, slot: usize, block: Option<Block>) -> Option<Block> {
        let pack = |block: Block| {
            // 21 bits of frame number, 4 of order, 16 of the worker and 23 of its count; 0 is an empty slot.
            let [worker, count] = [u64::from(block.stamp.0), u64::from(block.stamp.1)];
            assert!(block.pfn.0 < 1 << 21 && count < 1 << 23);
            block.pfn.0 | u64::from(block.order.0) << 21 | worker << 25 | count << 41
        };
        // AcqRel: pairs with `Exchange::swap` in another process. The process that takes a block sees its stamps.
        let taken = self.count(slot).swap(block.map_or(0, pack), Ordering::AcqRel);
        (taken != 0).then_some(Block {
            pfn: Pfn(taken & ((1 << 21) - 1)),
            order: Order((taken >> 21) as u8 & 15),
            stamp: ((taken >> 25) as u16, (taken >> 41) as u32),
        })
    }

    /// Waits until `processes` processes have arrived, so that all run at the same time.
    fn meet(&self, processes: u64) {
        self.count(Self::STARTED).fetch_add(1, Ordering::AcqRel);
        while self.count(Self::STARTED).load(Ordering::Acquire) < processes {
            std::thread::yield_now();
        }
    }
}

fn environment(name: &str) -> u64 {
    std::env::var(name).expect("runs only as a worker of another test").parse().unwrap()
}

/// Small deterministic random numbers (xorshift).
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 16) % end
    }

    /// Mostly orders of per-CPU lists, sometimes a huge or an odd one.
    fn order(&mut self) -> Order {
        match self.below(64) {
            0 => Order(9),
            1 => Order(4 + self.below(5) as u8),
            n if n < 24 => Order(1 + self.below(3) as u8),
            _ => Order(0),
        }
    }

    fn gfp(&mut self) -> Gfp {
        let types = [Gfp::KERNEL, Gfp::HIGHUSER_MOVABLE, Gfp::KERNEL | Gfp::RECLAIMABLE, Gfp::KERNEL | Gfp::DMA32];
        let zero = if self.below(16) == 0 { Gfp::ZERO } else { Gfp::NOWAIT };
        types[self.below(4) as usize] | zero | Gfp::NOWARN
    }
}

/// Allocates and stamps blocks, exchanges them in slots, and frees the blocks it receives. Prints its counts.
fn trade(yard: &HostYard, exchange: &Exchange<'_>, worker: u16, rounds: u32) {
    let mut random = Random(0x9e37_79b9_7f4a_7c15 ^ u64::from(worker) << 32);
    let (mut allocated, mut freed, mut foreign) = (0, 0, 0);
    for round in 0..rounds {
        let (order, gfp) = (random.order(), random.gfp());
        let block = match yard.alloc(order, gfp) {
            Ok(pfn) => Some(Block { pfn, order, stamp: (worker, round) }),
            Err(AllocError::OutOfMemory { .. }) => None,
            Err(problem) => panic!("{problem}"),
        };
        if let Some(block) = block {
            let zero = |pfn| (0..512).all(|index| word(yard, pfn, index).load(Ordering::Relaxed) == 0);
            assert!(!gfp.contains(Gfp::ZERO) || block.frames().all(zero), "{block:?} is zeroed");
            block.write(yard);
            allocated += 1;
        }
        if let Some(taken) = exchange.swap(random.below(SLOTS as u64) as usize, block) {
            taken.check(yard);
            yard.free(taken.pfn, taken.order).unwrap();
            freed += 1;
            foreign += u64::from(taken.stamp.0 != worker);
        }
        if round % 32 == 0 {
            // On hosts with few CPUs this lets the other processes run.
            std::thread::yield_now();
        }
    }
    println!("\ntraded {allocated} {freed} {foreign}");
}

/// Empties all lists and changes their sizes until all traders are done. Prints the number of rounds.
fn drain(yard: &HostYard, exchange: &Exchange<'_>) {
    let mut rounds = 0;
    while exchange.count(Exchange::DONE).load(Ordering::Acquire) < TRADERS as u64 {
        match rounds % 3 {
            0 => yard.drain_all(),
            1 => yard.core().lists().drain_cpu(CpuId(rounds as u32 / 3 % 4)),
            _ => yard.core().lists().resize(if rounds % 2 == 0 { PcpSizing::Scaled } else { PcpSizing::Fixed(8) }),
        }
        rounds += 1;
        std::thread::yield_now();
    }
    yard.core().lists().resize(PcpSizing::Scaled);
    println!("\ndrained {rounds}");
}

#[test]
#[ignore = "a worker of other tests"]
fn worker_trades_or_drains() {
    let worker = environment(WORKER);
    // Two processes share a CPU of the yard, and one has a CPU that the yard does not know.
    let identity = match worker {
        1 | 2 => Some(CpuIdentity::Fixed(CpuId(1))),
        3 => Some(CpuIdentity::Getcpu),
        4 => Some(CpuIdentity::Fixed(CpuId(1000))),
        _ => None,
    };
    let yard = attached(identity);
    let exchange = Exchange { yard: &yard, frame: Pfn(environment(EXCHANGE)) };
    exchange.meet(TRADERS as u64 + 1);
    if worker == TRADERS as u64 {
        drain(&yard, &exchange);
    } else {
        let rounds = environment("FRAMEYARD_TEST_ROUNDS") as u32;
        trade(&yard, &exchange, worker as u16, rounds);
        exchange.count(Exchange::DONE).fetch_add(1, Ordering::AcqRel);
    }
}

/// The numbers after `key` in the output of a worker.
fn printed(output: &[u8], key: &str) -> Option<Vec<u64>> {
    let text = String::from_utf8_lossy(output).into_owned();
    let line = text.lines().find_map(|line| line.strip_prefix(key))?.to_owned();
    Some(line.split_whitespace().map(|number| number.parse().unwrap()).collect())
}

/// Lets all workers trade, then frees the blocks in the slots and demands every frame back.
fn processes_trade(poisoning: Poisoning, rounds: u64) {
    let (yard, file, _host) = made(SharedFrames::Memory, poisoning);
    let free_at_start = yard.stats().free_pages();
    let frame = yard.alloc(EXCHANGE_ORDER, Gfp::KERNEL | Gfp::ZERO).unwrap();
    let exchange = Exchange { yard: &yard, frame };
    let inherited = file.inherit().unwrap();
    let workers = spawn_workers(TRADERS + 1, |command, worker| {
        crate::own_process::run_test(command, module_path!(), "worker_trades_or_drains");
        command.env(WORKER, worker.to_string()).env(EXCHANGE, frame.0.to_string());
        command.env("FRAMEYARD_TEST_ROUNDS", rounds.to_string()).stdout(Stdio::piped());
        inherited.announce(command);
    })
    .unwrap();
    let outputs = workers.wait_all().unwrap();

    let mut left: u64 = 0;
    for taken in (0..SLOTS).filter_map(|slot| exchange.swap(slot, None)) {
        taken.check(&yard);
        yard.free(taken.pfn, taken.order).unwrap();
        left += 1;
    }
    let trades: Vec<_> = outputs[..TRADERS].iter().map(|output| printed(output, "traded").unwrap()).collect();
    let total = |at: usize| trades.iter().map(|trade| trade[at]).sum::<u64>();
    assert_eq!(total(0), total(1) + left, "every block that was allocated was freed once");
    assert!(total(0) > rounds, "most requests were served: {trades:?}");
    // Even if they run one after the other, each finds the slots full of the previous one's blocks.
    assert!(total(2) > SLOTS as u64, "processes freed each other's blocks: {trades:?}");
    assert!(printed(&outputs[TRADERS], "drained").unwrap()[0] > 0);

    yard.free(frame, EXCHANGE_ORDER).unwrap();
    yard.validate().unwrap();
    assert_eq!(yard.stats().free_pages(), free_at_start);
    yard.drain_all();
    yard.validate().unwrap();
    assert_eq!(yard.stats().zones().map(|zone| zone.free).sum::<PageCount>(), free_at_start);
    assert_eq!(yard.stats().poison_hits(), 0);
}

#[test]
fn blocks_allocated_in_one_process_are_freed_in_another() {
    processes_trade(Poisoning::Off, 50_000);
}

#[test]
fn no_process_writes_to_freed_frames() {
    processes_trade(Poisoning::On, 4_000);
}

#[test]
fn views_at_different_addresses_share_a_phantom_yard() {
    let (yard, file, host) = made(SharedFrames::Phantom, Poisoning::Off);
    // SAFETY: only yards write to the file.
    let other = unsafe { HostYard::builder().attach(&file) }.host(&host).build().unwrap();
    assert_ne!(yard.map_region().base(), other.map_region().base());
    assert_ne!(yard.control_region().base(), other.control_region().base());
    assert_eq!(
        (other.geometry(), other.core().cpus(), other.core().nodes()),
        (yard.geometry(), yard.core().cpus(), yard.core().nodes())
    );
    assert!(other.memory_ranges().eq(yard.memory_ranges()));

    let free_at_start = yard.stats().free_pages();
    let views = [&yard, &other];
    let mut blocks = Vec::new();
    let mut frames = BTreeSet::new();
    for round in 0..600usize {
        let order = Order((round % 11) as u8);
        let pfn = views[round % 2].alloc(order, Gfp::KERNEL | Gfp::NOWARN);
        blocks.extend(pfn.ok().map(|pfn| (pfn, order)));
    }
    for (pfn, order) in &blocks {
        assert!(
            (0..order.pages().0).all(|offset| frames.insert(*pfn + PageCount(offset))),
            "{pfn} was given out twice"
        );
    }
    assert!(frames.len() > 10_000);
    assert_eq!(other.stats().free_pages() + PageCount(frames.len() as u64), free_at_start);
    for (at, (pfn, order)) in blocks.iter().enumerate() {
        views[at / 2 % 2].free(*pfn, *order).unwrap();
        assert!(views[at % 2].free(*pfn, *order).is_err(), "{pfn} is free in both views");
    }
    let refused = yard.alloc(Order::ZERO, Gfp::KERNEL | Gfp::ZERO).unwrap_err();
    assert!(matches!(refused, AllocError::NoFrameBytes(_)), "{refused}");
    drop(other);
    yard.validate().unwrap();
    assert_eq!(yard.stats().free_pages(), free_at_start);
}

#[test]
fn a_phantom_yard_is_shared_with_another_process() {
    let (yard, file, _host) = made(SharedFrames::Phantom, Poisoning::Off);
    let free_at_start = yard.stats().free_pages();
    let given = yard.alloc(Order(3), Gfp::KERNEL).unwrap();
    let inherited = file.inherit().unwrap();
    let workers = spawn_workers(1, |command, _| {
        crate::own_process::run_test(command, module_path!(), "worker_frees_and_allocates_phantom_frames");
        command.env(EXCHANGE, given.0.to_string()).stdout(Stdio::piped());
        inherited.announce(command);
    })
    .unwrap();
    let taken = printed(&workers.wait_all().unwrap()[0], "allocated").unwrap()[0];
    assert!(yard.free(given, Order(3)).is_err(), "the worker has freed it");
    assert_eq!(yard.stats().free_pages() + Order(5).pages(), free_at_start);
    yard.free(Pfn(taken), Order(5)).unwrap();
    yard.validate().unwrap();
    assert_eq!(yard.stats().free_pages(), free_at_start);
}

#[test]
#[ignore = "a worker of another test"]
fn worker_frees_and_allocates_phantom_frames() {
    let yard = attached(None);
    yard.free(Pfn(environment(EXCHANGE)), Order(3)).unwrap();
    println!("\nallocated {}", yard.alloc(Order(5), Gfp::KERNEL).unwrap().0);
}

fn attach_error(file: &SharedMemoryFile, host: &HostTopology) -> AttachError {
    // SAFETY: the file holds no sound yard, and is refused. Nothing is followed but the header, which is checked.
    match unsafe { HostYard::builder().attach(file) }.host(host).build() {
        Err(HostYardError::Attach(error)) => error,
        other => panic!("expected a refusal, not {other:?}"),
    }
}

fn words(region: &Region) -> &[AtomicU64] {
    // SAFETY: a yard may lie in the region, but nothing uses it while its header is damaged, and the test restores the
    // header first.
    unsafe { region.words() }
}

#[test]
fn a_file_without_a_complete_yard_is_refused() {
    let host = HostTopology::current().unwrap();
    let ranges = [NodeFrames { range: PfnRange { start: Pfn(0), end: Pfn(0x8000) }, node: NodeId(0) }];
    let (memory_map, control) = (ByteSize::mib(2), ByteSize::mib(2));
    let frames = SharedFrames::Phantom;
    let wanted =
        SharedLayout { geometry: Geometry::X86_64, ranges: &ranges, frames, memory_map, control, devices: None };
    let file = SharedMemoryFile::create(&wanted, &host).unwrap();
    assert_eq!(attach_error(&file, &host), AttachError::NoYard);
}

#[test]
fn a_yard_with_a_damaged_header_is_refused() {
    let (yard, file, host) = made(SharedFrames::Phantom, Poisoning::Off);
    let header = words(yard.control_region());
    let section = Geometry::X86_64.section_pages().0;
    let read = |index: usize| header[index].load(Ordering::Acquire);
    // Word by word: magic, version, geometry, first and last frame, nodes, size, offsets and lengths of tables.
    let damage = [
        (0, 0, AttachError::NoYard),
        (0, read(0) ^ 1, AttachError::NoYard),
        (1, 99, AttachError::Version { found: 99 }),
        (1, read(1) - 1, AttachError::Version { found: read(1) - 1 }),
        (1, read(1) + 1, AttachError::Version { found: read(1) + 1 }),
        (2, 0, AttachError::Damaged),
        (2, u64::MAX, AttachError::Damaged),
        (2, read(2) ^ 1 << 16, AttachError::Damaged),
        (3, read(3) + 1, AttachError::Damaged),
        (3, read(3) + section, AttachError::Damaged),
        (4, 0, AttachError::Damaged),
        (4, u64::MAX, AttachError::Damaged),
        (5, 0, AttachError::Damaged),
        (5, 1, AttachError::Damaged),
        (5, u64::MAX, AttachError::Damaged),
        (7, u64::MAX, AttachError::TooSmall),
        (25, 1, AttachError::OtherSequences),
    ];
    for (index, value, expected) in damage {
        let intact = header[index].swap(value, Ordering::AcqRel);
        assert_eq!(attach_error(&file, &host), expected, "word {index} is {value:#x}");
        header[index].store(intact, Ordering::Release);
    }
    // The 24 tables: an offset and a count each, which follow from the rest of the header.
    for (at, word) in header[29..].iter().enumerate().take(2 * 24) {
        let intact = word.load(Ordering::Acquire);
        for value in [1, intact + 1, intact / 2 + 1, 1 << 32, u64::MAX] {
            if value == intact {
                continue;
            }
            word.store(value, Ordering::Release);
            assert_eq!(attach_error(&file, &host), AttachError::Damaged, "word {at} of the tables is {value:#x}");
        }
        word.store(intact, Ordering::Release);
    }
    // SAFETY: all words are restored.
    unsafe { HostYard::builder().attach(&file) }.host(&host).build().unwrap().validate().unwrap();
}

#[test]
fn a_control_region_of_random_words_is_refused() {
    let (yard, file, host) = made(SharedFrames::Phantom, Poisoning::Off);
    let region = words(yard.control_region());
    let sound: Vec<u64> = region.iter().map(|word| word.load(Ordering::Relaxed)).collect();
    let mut state = 1_u64;
    let mut random = move || {
        state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        state >> 16
    };
    // A finished yard of this version, according to its first words, and anything in the rest of the header.
    for kept in [2, 3, 5, 8, 16, 24, 40] {
        for _ in 0..200 {
            for word in &region[kept..96] {
                let number = [random() % 64, random(), random() << 16, (random() % 64) << 12][random() as usize % 4];
                word.store(number, Ordering::Relaxed);
            }
            let refused = attach_error(&file, &host);
            assert!(matches!(refused, AttachError::Damaged | AttachError::TooSmall), "{refused:?}");
        }
        region.iter().zip(&sound).for_each(|(word, sound)| word.store(*sound, Ordering::Relaxed));
    }
}

#[test]
fn a_yard_with_frames_that_the_file_lacks_is_refused() {
    let (yard, file, host) = made(SharedFrames::Phantom, Poisoning::Off);
    let ranges = [NodeFrames { range: PfnRange { start: Pfn(0), end: Pfn(0x1000) }, node: NodeId(0) }];
    let (memory_map, control) = (yard.map_region().size(), yard.control_region().size());
    let frames = SharedFrames::Phantom;
    let wanted =
        SharedLayout { geometry: Geometry::X86_64, ranges: &ranges, frames, memory_map, control, devices: None };
    let smaller = SharedMemoryFile::create(&wanted, &host).unwrap();
    let copy = smaller.map_control(HugePages::Default).unwrap();
    for (to, from) in words(&copy).iter().zip(words(yard.control_region())) {
        to.store(from.load(Ordering::Relaxed), Ordering::Relaxed);
    }
    assert_eq!(attach_error(&smaller, &host), AttachError::Damaged);
    // SAFETY: only the yard has written to this file.
    unsafe { HostYard::builder().attach(&file) }.host(&host).build().unwrap();
}
