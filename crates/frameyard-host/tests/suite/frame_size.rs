//! Yards whose frames are larger than the pages of the host.

use std::collections::BTreeSet;

use crate::checked_yard::CheckedYard;
use crate::own_process::own_file;
use frameyard::boot::ZoneLimits;
use frameyard::units::{BlockSizeError, GeometryError};
use frameyard::{
    AllocError, ByteSize, FreeError, Geometry, Gfp, MemoryTable, NodeId, Order, PageCount, Pfn, PfnRange, YardConfig,
};
use frameyard_host::{Backing, FileGrowth, HostYard, HostYardError, HugePages, MappedFrames};

const FRAME: ByteSize = ByteSize::mib(2);
const CPUS: [NodeId; 2] = [NodeId(0); 2];

fn config(frame_size: ByteSize) -> YardConfig<'static> {
    let geometry = Geometry::of_frames(frame_size).unwrap();
    YardConfig { geometry, zone_limits: ZoneLimits::NONE, ..YardConfig::new(&CPUS) }
}

/// A range of frames from the address 4 GiB on.
fn memory(frame_size: ByteSize, size: ByteSize) -> [(PfnRange, NodeId); 1] {
    [(PfnRange::new(Pfn((4 << 30) / frame_size.0), PageCount(size.0 / frame_size.0)), NodeId(0))]
}

fn yard(backing: Backing, frame_size: ByteSize, size: ByteSize) -> CheckedYard {
    let builder = HostYard::builder().backing(backing).huge_pages(HugePages::Default);
    CheckedYard::new(builder, &memory(frame_size, size), &config(frame_size))
}

/// Each host page of a block has a number that no other has.
fn write_numbers(block: &mut MappedFrames<&HostYard>) {
    let start = block.pfn().0 << 32;
    for (at, page) in block.bytes_mut().chunks_mut(4096).enumerate() {
        page[..8].copy_from_slice(&(start + at as u64).to_le_bytes());
        page[4088..].copy_from_slice(&(start + at as u64).to_le_bytes());
    }
}

fn assert_numbers(block: &MappedFrames<&HostYard>) {
    let start = block.pfn().0 << 32;
    for (at, page) in block.bytes().chunks(4096).enumerate() {
        let expected = (start + at as u64).to_le_bytes();
        assert!(page[..8] == expected && page[4088..] == expected, "{block:?}, page {at}");
    }
}

/// Fills a yard with blocks of all sizes that do not overlap; then checks that it is out of memory.
fn blocks_do_not_overlap(yard: &CheckedYard) {
    let geometry = yard.geometry();
    let frame = geometry.page_size().0 as usize;
    let (mut blocks, mut frames) = (Vec::new(), BTreeSet::new());
    for order in [3, 2, 1, 0].map(Order) {
        for _ in 0..if order == Order(0) { u32::MAX } else { 2 } {
            let Ok(mut block) = yard.frames(order, Gfp::HIGHUSER_MOVABLE | Gfp::NOWARN) else { break };
            assert_eq!(block.bytes().len(), frame << order.0);
            assert!(block.as_ptr().addr().get().is_multiple_of(frame), "{block:?} is aligned to frames");
            assert!((block.range().start.0..block.range().end.0).all(|pfn| frames.insert(pfn)), "{block:?} is new");
            write_numbers(&mut block);
            blocks.push(block);
        }
    }
    blocks.iter().for_each(assert_numbers);
    let error = yard.frames(Order(0), Gfp::HIGHUSER_MOVABLE | Gfp::NOWARN).unwrap_err();
    assert!(matches!(error, AllocError::OutOfMemory { .. }), "{error}");
    let size = match geometry.page_size().0 >> 20 {
        0 => format!("{} KiB", frame >> 10),
        mib => format!("{mib} MiB"),
    };
    assert!(error.to_string().contains(&format!("order 0 ({size})")), "{error}");
    let all = yard.stats().managed_pages().0;
    assert!(frames.len() as u64 * 10 >= all * 8, "{} of {all} frames", frames.len());
    yard.validate().unwrap();
    drop(blocks);
    let block = yard.frames(Order(2), Gfp::HIGHUSER_MOVABLE | Gfp::ZERO).unwrap();
    assert!(block.bytes().iter().all(|byte| *byte == 0), "zeroed to the last byte");
}

#[test]
fn blocks_of_large_frames_have_bytes_of_their_own() {
    blocks_do_not_overlap(&yard(Backing::Anonymous, FRAME, ByteSize::mib(96)));
    blocks_do_not_overlap(&yard(Backing::Anonymous, ByteSize::mib(8), ByteSize::mib(256)));
    blocks_do_not_overlap(&yard(Backing::Memfd, ByteSize::kib(256), ByteSize::mib(16)));
    let path = own_file("frame-size");
    let backing = Backing::File { path: path.clone(), growth: FileGrowth::Grow };
    blocks_do_not_overlap(&yard(backing, FRAME, ByteSize::mib(64)));
    std::fs::remove_file(&path).unwrap();
}

#[test]
fn sizes_that_are_no_blocks_are_refused() {
    let yard = yard(Backing::Phantom, FRAME, ByteSize::gib(2));
    let order = |size| yard.geometry().block_order(size);
    let refused = |size| Err(BlockSizeError { size, smallest: FRAME, largest: ByteSize::gib(1) });
    for size in [ByteSize::kib(4), ByteSize::mib(1), ByteSize::mib(3), ByteSize::gib(2)] {
        assert_eq!(order(size), refused(size));
    }
    let largest = order(ByteSize::gib(1)).unwrap();
    yard.free(yard.alloc(largest, Gfp::KERNEL).unwrap(), largest).unwrap();
    let above = Order(largest.0 + 1);
    assert_eq!(yard.alloc(above, Gfp::KERNEL), Err(AllocError::OrderTooLarge { order: above, max: largest }));
}

#[test]
fn bad_frees_of_large_frames_change_nothing() {
    let yard = yard(Backing::Phantom, FRAME, ByteSize::mib(512));
    let (block, single) = (yard.alloc(Order(2), Gfp::KERNEL).unwrap(), yard.alloc(Order(0), Gfp::KERNEL).unwrap());
    yard.free(single, Order(0)).unwrap();
    let free = yard.stats().free_pages();
    let bad = [
        (single, Order(0)),
        (block, Order(0)),
        (block, Order(1)),
        (block, Order(3)),
        (block + PageCount(1), Order(0)),
        (block + PageCount(1), Order(2)),
        (Pfn(block.0 * 512), Order(2)),
        (Pfn((4 << 30) >> 12), Order(0)),
        (Pfn(0), Order(0)),
    ];
    for (pfn, order) in bad {
        let refused: Result<(), FreeError> = yard.free(pfn, order);
        assert!(refused.is_err(), "{pfn}, {order}");
        assert_eq!(yard.stats().free_pages(), free, "{pfn}, {order}");
        yard.validate().unwrap();
    }
    yard.free(block, Order(2)).unwrap();
}

/// The part of its memory that a yard on two CPUs keeps metadata in.
fn metadata(yard: &HostYard) -> f64 {
    let managed = yard.geometry().size_of(yard.stats().managed_pages()).0;
    (yard.map_region().size().0 + yard.control_region().size().0) as f64 / managed as f64
}

#[test]
fn metadata_of_large_frames_takes_a_hundredth_of_a_percent() {
    let share = |frame_size, size| metadata(&yard(Backing::Phantom, frame_size, size));
    let of_one_gib = share(FRAME, ByteSize::gib(1));
    assert!(of_one_gib < 0.000_26, "{of_one_gib}");
    assert!(share(FRAME, ByteSize::gib(8)) < 0.000_07);
    assert!(share(FRAME, ByteSize::gib(256)) < 80.0 / FRAME.0 as f64, "80 bytes for each frame");
    assert!(share(ByteSize::kib(4), ByteSize::gib(1)) > 0.015, "what small frames take, by the same measure");
}

#[test]
fn a_yard_by_size_has_whole_frames_and_lists_that_move_several() {
    let builder = HostYard::builder().frame_size(FRAME).backing(Backing::Phantom);
    let yard = builder.size(ByteSize((64 << 30) - 1)).build().unwrap();
    assert_eq!(yard.geometry(), Geometry::of_frames(FRAME).unwrap());
    assert_eq!(yard.stats().managed_pages(), PageCount(64 << 9));
    let most = |yard: &HostYard| {
        let zones = yard.stats().zones().map(|zone| (zone.managed, zone.id)).max().unwrap();
        yard.zone(zones.1).pcp(frameyard::CpuId(0)).unwrap().high
    };
    let (cpus, nodes) = (u64::from(yard.core().cpus()), u64::from(yard.core().nodes()));
    assert!(most(&yard).0 >= (64 << 9) / 32 / cpus / nodes / 2, "{}", most(&yard));
    yard.validate().unwrap();
    let error = HostYard::builder().frame_size(ByteSize::mib(3)).size(ByteSize::gib(1)).build().unwrap_err();
    assert!(matches!(error, HostYardError::FrameSize(GeometryError::PageSize(ByteSize(0x30_0000)))), "{error}");
}

#[test]
fn large_frames_are_shared_between_views_of_a_yard() {
    let memory = memory(FRAME, ByteSize::mib(64));
    let table = MemoryTable { memory: &memory, ..MemoryTable::default() };
    let yard = HostYard::builder().machine(&table, &config(FRAME)).shared().build().unwrap();
    // SAFETY: only yards write to the file.
    let other = unsafe { HostYard::builder().attach(yard.shared_file().unwrap()) }.build().unwrap();
    assert_eq!(other.geometry(), yard.geometry());
    let mut block = yard.frames(Order(1), Gfp::HIGHUSER_MOVABLE).unwrap();
    write_numbers(&mut block);
    // SAFETY: the guard of this block was turned into its range just before.
    let block = unsafe { MappedFrames::from_range(&other, block.into_range()) }.unwrap();
    assert_numbers(&block);
    drop(block);
    yard.validate().unwrap();
    assert_eq!(yard.stats().free_pages(), PageCount(32));
}

#[test]
fn free_large_frames_return_to_the_host() {
    let size = ByteSize::mib(192);
    let yard = yard(Backing::Anonymous, FRAME, size);
    let mut blocks: Vec<_> = std::iter::from_fn(|| yard.frames(Order(0), Gfp::KERNEL | Gfp::NOWARN).ok()).collect();
    blocks.iter_mut().for_each(write_numbers);
    assert_eq!(blocks.len(), 96, "so few frames have no reserve");
    assert_eq!(yard.memory().resident().unwrap(), size);
    // Two blocks keep neighbours of theirs from merging with them.
    let kept: Vec<_> =
        blocks.drain(..).enumerate().filter(|(at, _)| *at == 1 || *at == 50).map(|(_, block)| block).collect();
    yard.drain_all();
    let returned = yard.core().report_free_pages(Order(0), PageCount(u64::MAX)).unwrap().pages;
    assert!(returned.0 >= 60, "{returned}");
    assert_eq!(yard.memory().resident().unwrap(), ByteSize(size.0 - returned.0 * FRAME.0));
    kept.iter().for_each(assert_numbers);
}

#[test]
fn threads_own_their_large_frames() {
    let yard = &yard(Backing::Anonymous, FRAME, ByteSize::mib(128));
    let is_named = |block: &MappedFrames<&HostYard>, name: u64| {
        let (bytes, name) = (block.bytes(), name.to_le_bytes());
        bytes[..8] == name && bytes[bytes.len() - 8..] == name
    };
    std::thread::scope(|scope| {
        for thread in 0..4u64 {
            scope.spawn(move || {
                let mut held = std::collections::VecDeque::new();
                for round in 0..2000 {
                    let order = Order(((round * 5 + thread) % 3) as u8);
                    let Ok(mut block) = yard.frames(order, Gfp::KERNEL | Gfp::NOWARN) else { continue };
                    let (name, last) = (thread << 32 | round, block.bytes().len() - 8);
                    block.bytes_mut()[..8].copy_from_slice(&name.to_le_bytes());
                    block.bytes_mut()[last..].copy_from_slice(&name.to_le_bytes());
                    held.push_back((block, name));
                    if held.len() > 5 {
                        let (block, name) = held.pop_front().unwrap();
                        assert!(is_named(&block, name), "{block:?} belongs to thread {thread} alone");
                    }
                }
            });
        }
    });
    let allocated: u64 = yard.stats().zones().map(|zone| zone.allocations).sum();
    assert!(allocated > 4000, "{allocated} blocks");
}
