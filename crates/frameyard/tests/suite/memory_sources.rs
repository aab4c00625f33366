//! What a memory source says: many ranges, ranges over ranges, and something else each time.

use std::cell::Cell;

use crate::fixture::random::Random;
use crate::fixture::{HeapRegion, run_on};
use crate::maps::{Machine, frames, machine, machines, small, way};
use frameyard::boot::{BootError, EarlyBootError, InitMode, MapInit, MemorySource, ZoneLimits};
use frameyard::memblock::{EarlyMemory, Memblock, MemblockError, RegionFlags};
use frameyard::page::{FrameState, MapContent};
use frameyard::platform::{MapNotBacked, MemoryBacking};
use frameyard::units::PhysAddr;
use frameyard::{ByteSize, CpuId, Gfp, Layout, NodeId, Order, PageCount, Pfn, PfnRange, Platform, Yard, YardConfig};

#[test]
fn free_memory_excludes_reserved_ranges() {
    run_on(0);
    for seed in 1..60 {
        let mut random = Random::new(seed);
        let (mut memory, mut at) = (Vec::new(), 0x100);
        for _ in 0..1 + random.below(12) {
            let start = at + random.below(3) * random.below(70);
            at = start + 1 + random.below(90);
            memory.push((frames(start, at), NodeId(random.below(2) as u16)));
        }
        let mut reserved: Vec<PfnRange> = (0..random.below(20))
            .map(|_| {
                let start = 0x80 + random.below(at);
                frames(start, start + random.below(50))
            })
            .collect();
        reserved.sort_by_key(|range| range.start);
        let machine = Machine { memory, reserved, cma: Vec::new(), ..machine("holes") };
        let is_free = |pfn: &u64| {
            let pfn = Pfn(*pfn);
            machine.memory.iter().any(|(range, _)| range.contains(pfn))
                && !machine.reserved.iter().any(|range| range.contains(pfn))
        };
        let expected = (0..at).filter(is_free).count() as u64;
        for mode in [InitMode::Eager, InitMode::Lazy] {
            let yard = machine.create_yard(way(mode));
            assert_eq!(yard.stats().managed_pages(), PageCount(expected), "seed {seed}, {mode}");
            yard.init().finish().unwrap();
            let other = yard.attach();
            other.validate().unwrap();
            for pfn in (0..at).filter(|pfn| yard.zone_of(Pfn(*pfn)).is_some()) {
                let state = other.stats().frame(Pfn(pfn)).unwrap().state;
                assert_eq!(state == FrameState::BuddyFree, is_free(&pfn), "{pfn:#x}, seed {seed}, {mode}");
            }
        }
    }
}

/// A memory source that counts queries, and from some query on answers for another machine.
struct Fickle<'a> {
    machines: [&'a Machine; 2],
    /// How many answers are the first machine's.
    honest: u64,
    asked: Cell<u64>,
}

impl<'a> Fickle<'a> {
    fn new(machines: [&'a Machine; 2], honest: u64) -> Self {
        Self { machines, honest, asked: Cell::new(0) }
    }

    fn now(&self) -> &'a Machine {
        let asked = self.asked.get();
        self.asked.set(asked + 1);
        self.machines[usize::from(asked >= self.honest)]
    }
}

impl MemorySource for Fickle<'_> {
    fn for_each_memory(&self, visit: &mut dyn FnMut(PfnRange, NodeId)) {
        self.now().memory.iter().for_each(|(range, node)| visit(*range, *node));
    }

    fn for_each_reserved(&self, visit: &mut dyn FnMut(PfnRange)) {
        self.now().reserved.iter().for_each(|range| visit(*range));
    }

    fn for_each_cma(&self, visit: &mut dyn FnMut(PfnRange)) {
        self.now().cma.iter().for_each(|range| visit(*range));
    }
}

struct Plain;

impl Platform for Plain {
    type Guard = ();

    #[inline(always)]
    fn backing(&self) -> &impl MemoryBacking {
        self
    }
    fn guard(&self) {}
    fn current_cpu(&self) -> CpuId {
        CpuId(0)
    }
    fn spin(&self, _round: u32) {}
    fn frame_bytes(&self, _pfn: Pfn) -> Option<std::ptr::NonNull<u8>> {
        None
    }
}

impl MemoryBacking for Plain {
    fn back_map(&self, frames: PfnRange, _: std::ptr::NonNull<u8>, _: usize) -> Result<(), MapNotBacked> {
        assert!(!frames.is_empty());
        Ok(())
    }
}

/// Creates a yard from such a source and lets `look` at it.
fn create(source: &Fickle<'_>, config: &YardConfig<'_>, look: impl FnOnce(&Yard<Plain>)) -> Result<(), BootError> {
    let layout = Layout::plan(&source.machines[0].table(), config)?;
    let (map, control) = (HeapRegion::new(layout.map_bytes()), HeapRegion::new(layout.control_bytes()));
    map.fill(crate::fixture::DIRT);
    // SAFETY: the regions are as large as planned, the control region is zeroed, and both outlive the yard.
    let yard = unsafe { Yard::create(source, config, &layout, map.raw(), control.raw(), Plain) }?;
    look(&yard);
    Ok(())
}

#[test]
fn contradictory_source_is_refused_or_harmless() {
    run_on(0);
    let mut liars: Vec<Machine> = machines().to_vec();
    for liar in machines() {
        let grown = |(range, node): &(PfnRange, NodeId)| (frames(range.start.0, range.end.0 + 0x1000), *node);
        liars.push(Machine { memory: liar.memory.iter().map(grown).collect(), ..liar.clone() });
        let low = std::iter::once((frames(0, 2), NodeId(0))).chain(liar.memory.clone());
        liars.push(Machine { memory: low.collect(), ..liar.clone() });
        liars.push(Machine { memory: liar.memory.iter().rev().copied().collect(), ..liar.clone() });
        let misplaced = |(range, _): &(PfnRange, NodeId)| (*range, NodeId(u16::MAX));
        liars.push(Machine { memory: liar.memory.iter().map(misplaced).collect(), ..liar.clone() });
        liars.push(Machine { reserved: Vec::new(), ..liar.clone() });
        liars.push(Machine { reserved: liar.reserved.iter().rev().copied().collect(), ..liar.clone() });
        let moved = |range: &PfnRange| frames(range.start.0 + 0x40, range.end.0 + 0x40);
        liars.push(Machine { reserved: liar.reserved.iter().map(moved).collect(), ..liar.clone() });
        for cma in [frames(0, 0x20), frames(0x4000, 0x4020), frames(0x200, 0x220), frames(0x220, 0x200)] {
            liars.push(Machine { cma: vec![cma], ..liar.clone() });
        }
    }
    let (mut refused, mut made) = (0, 0);
    for honest in machines() {
        for liar in liars.iter().filter(|liar| liar.geometry == honest.geometry) {
            for (mode, answers) in InitMode::ALL.iter().flat_map(|mode| (0..8).map(move |answers| (*mode, answers))) {
                let source = Fickle::new([&honest, liar], answers);
                let config = honest.config(MapInit { content: MapContent::Kernel, ..way(mode) });
                let created = create(&source, &config, |yard| {
                    yard.validate().unwrap();
                    yard.init().finish().unwrap();
                    yard.validate().unwrap();
                });
                *if created.is_ok() { &mut made } else { &mut refused } += 1;
            }
        }
    }
    assert!(made > 100 && refused > 100, "{made} made, {refused} refused");
}

#[test]
fn source_is_read_a_fixed_number_of_times() {
    run_on(0);
    let asked = |count: u64| {
        let memory = (0..count).map(|at| (frames(0x100 + at * 8, 0x106 + at * 8), NodeId(0))).collect();
        let reserved = (0..count).map(|at| frames(0x102 + at * 8, 0x103 + at * 8)).collect();
        let machine =
            Machine { memory, reserved, ..Machine { cma: Vec::new(), geometry: small(), ..machine("holes") } };
        let source = Fickle::new([&machine, &machine], 0);
        create(&source, &machine.config(way(InitMode::Lazy)), |yard| {
            assert_eq!(yard.stats().managed_pages(), PageCount(count * 5));
        })
        .unwrap();
        let created = source.asked.get();
        Layout::plan(&source, &machine.config(way(InitMode::Lazy))).unwrap();
        [created, source.asked.get()]
    };
    assert_eq!(asked(2), asked(500));
}

#[test]
fn large_frame_numbers_work() {
    run_on(0);
    for top in [1 << 40, 1 << 52, 1 << 63, !0xffff] {
        let memory = vec![(frames(top - 0x305, top - 0x80), NodeId(0)), (frames(top - 0x7e, top), NodeId(1))];
        let machine =
            Machine { memory, reserved: vec![frames(top - 0x90, top - 0x70)], cma: Vec::new(), ..machine("holes") };
        for mode in InitMode::ALL {
            for content in MapContent::ALL {
                let yard = machine.create_yard(MapInit { content, ..way(mode) });
                yard.init().finish().unwrap();
                assert_eq!(yard.stats().managed_pages(), PageCount(0x305 - 0x20), "{top:#x}, {mode}, {content}");
            }
        }
    }
}

/// 16 MiB of memory at 16 MiB, all of it mapped or none.
struct Early {
    memory: HeapRegion,
    is_mapped: bool,
}

const EARLY: PhysAddr = PhysAddr(16 << 20);

// SAFETY: the region outlives the yard of a test, which alone uses it.
unsafe impl EarlyMemory for &Early {
    fn map(&self, start: PhysAddr, size: ByteSize) -> Option<std::ptr::NonNull<u8>> {
        let offset = (start.0 - EARLY.0) as usize;
        assert!(offset + size.0 as usize <= self.memory.raw().size.0 as usize);
        // SAFETY: checked to lie in the region.
        self.is_mapped.then(|| unsafe { self.memory.raw().base.add(offset) })
    }
}

/// A memblock of that memory, in which each of `reserved` pieces of 8 KiB and a half has a reservation of 4 KiB.
fn memblock(early: &Early, reserved: u64) -> Memblock<&Early> {
    let mut memblock = Memblock::new(early);
    memblock.add_node(EARLY, early.memory.raw().size, NodeId(0), RegionFlags::NONE).unwrap();
    for at in 0..reserved {
        memblock.reserve(PhysAddr(EARLY.0 + at * 0x2800), ByteSize::kib(4)).unwrap();
    }
    memblock
}

fn early(mib: u64, is_mapped: bool) -> Early {
    let memory = HeapRegion::new(ByteSize::mib(mib));
    memory.fill(crate::fixture::DIRT);
    Early { memory, is_mapped }
}

#[test]
fn a_yard_takes_its_regions_from_a_memblock() {
    run_on(0);
    let cpus = [NodeId(0)];
    for (mode, reserved) in InitMode::ALL.iter().flat_map(|mode| [0, 1, 60, 120].map(|reserved| (*mode, reserved))) {
        for content in MapContent::ALL {
            let early = early(16, true);
            let mut memblock = memblock(&early, reserved);
            let map_init = MapInit { content, ..way(mode) };
            let config = YardConfig { zone_limits: ZoneLimits::NONE, map_init, ..YardConfig::new(&cpus) };
            // SAFETY: the memory outlives the yard, and has no other user.
            let yard = unsafe { Yard::from_memblock(&mut memblock, &config, Plain) }.unwrap();
            yard.init().finish().unwrap();
            let mut reserved = std::collections::BTreeSet::new();
            memblock.for_each_reserved(&mut |range| reserved.extend(range.start.0..range.end.0));
            assert_eq!(yard.stats().managed_pages(), PageCount(4096 - reserved.len() as u64));
            let pfn = yard.alloc(Order::ZERO, Gfp::KERNEL).unwrap();
            yard.free(pfn, Order::ZERO).unwrap();
            yard.validate().unwrap();
        }
    }
}

#[test]
fn a_memblock_without_room_keeps_its_reservations() {
    run_on(0);
    let cpus = [NodeId(0)];
    let refused = |early: &Early, filled: ByteSize, config: &YardConfig<'_>| {
        let mut memblock = memblock(early, 0);
        memblock.reserve(EARLY, filled).unwrap();
        let before = memblock.reserved().to_vec();
        // SAFETY: the memory has no other user.
        let error = unsafe { Yard::from_memblock(&mut memblock, config, Plain) }.map(|_| ()).unwrap_err();
        assert!(memblock.reserved().iter().copied().eq(before), "{error}");
        error
    };
    let config = YardConfig { zone_limits: ZoneLimits::NONE, ..YardConfig::new(&cpus) };
    let early_memory = early(16, true);
    // No room for the map of 256 KiB, then none for the control region behind it.
    for left in [ByteSize::kib(200), ByteSize::kib(260)] {
        let error = refused(&early_memory, ByteSize((16 << 20) - left.0), &config);
        assert!(matches!(error, EarlyBootError::Memblock(MemblockError::OutOfMemory { .. })), "{error}");
    }
    let unmapped = refused(&early(16, false), ByteSize::kib(4), &config);
    assert!(matches!(unmapped, EarlyBootError::Memblock(MemblockError::Unmapped { .. })), "{unmapped}");
    let no_cpus = YardConfig { cpus: &[], ..config };
    assert_eq!(refused(&early_memory, ByteSize::kib(4), &no_cpus), EarlyBootError::Boot(BootError::NoCpus));
    let poisoned = YardConfig { poisoning: frameyard::boot::Poisoning::On, ..config };
    assert_eq!(refused(&early_memory, ByteSize::kib(4), &poisoned), EarlyBootError::Boot(BootError::NoFrameBytes));
}
