//! Free memory returned to the host: it leaves this process, comes back on use, and no other bytes change.

use std::num::NonZeroUsize;
use std::os::unix::fs::MetadataExt;

use crate::checked_yard::{CheckedYard, range};
use crate::own_process::own_file;
use crate::test_huge_pages::AddedHugePages;
use frameyard::boot::ZoneLimits;
use frameyard::locks::LockUse;
use frameyard::platform::FramesNotReturned;
use frameyard::reporting::ReportError;
use frameyard::{ByteSize, Geometry, Gfp, NodeId, Order, PageCount, PfnRange, YardConfig};
use frameyard_host::{
    Backing, FileGrowth, HostMemory, HostTopology, HostYard, HostYardBuilder, HugePages, HugetlbSize, LockTiming,
    NodeFrames,
};

const PAGES: u64 = 0x4000;
const ALL: PageCount = PageCount(u64::MAX);

fn yard(builder: HostYardBuilder) -> CheckedYard {
    let cpus = [NodeId(0); 2];
    let config = YardConfig { zone_limits: ZoneLimits::NONE, ..YardConfig::new(&cpus) };
    CheckedYard::new(builder, &[range(0x10_0000, PAGES, 0)], &config)
}

fn reported(yard: &CheckedYard) -> PageCount {
    yard.stats().zones().map(|zone| zone.reported).sum()
}

fn fill_memory(yard: &CheckedYard) {
    let host = HostTopology::current().unwrap();
    yard.memory().prefault(NonZeroUsize::MIN, &host, &mut |_| {}).unwrap();
    assert_eq!(yard.memory().resident().unwrap(), ByteSize::mib(64));
}

/// Returns all free memory of a yard whose other frames are in use, and uses it again.
fn is_returned_and_reused(yard: &CheckedYard) {
    fill_memory(yard);
    // Frames in use between free ones.
    let all: Vec<_> = (0..200).map(|_| yard.frames(Order(1), Gfp::KERNEL).unwrap()).collect();
    let (mut kept, freed): (Vec<_>, Vec<_>) = all.into_iter().partition(|frames| frames.pfn().0 & 2 == 0);
    drop(freed);
    for frames in &mut kept {
        let name = frames.pfn().0 as u8 | 1;
        frames.bytes_mut().fill(name);
    }
    yard.drain_all();
    let free = yard.stats().free_pages();
    let outcome = yard.core().report_free_pages(Order(1), ALL).unwrap();
    assert!(outcome.pages.0 > PAGES * 9 / 10, "{outcome:?}");
    assert_eq!((reported(yard), yard.stats().free_pages()), (outcome.pages, free));
    let left = yard.memory().resident().unwrap();
    assert_eq!(
        left,
        ByteSize(ByteSize::mib(64).0 - (outcome.pages.0 << 12)),
        "the host has exactly the returned memory"
    );
    for frames in &kept {
        let name = frames.pfn().0 as u8 | 1;
        assert!(frames.bytes().iter().all(|byte| *byte == name), "{} kept its bytes", frames.pfn());
    }
    let mut used = Vec::new();
    while let Ok(mut frames) = yard.frames(Order(6), Gfp::KERNEL) {
        frames.bytes_mut().fill(1);
        used.push(frames);
    }
    let used = used.len() as u64 * 64;
    assert!(used > PAGES * 8 / 10, "{used} frames were used");
    let back = yard.memory().resident().unwrap().0 - left.0;
    assert!(back >= (used << 12) * 9 / 10, "{back} bytes came back");
}

#[test]
fn private_memory_is_returned_and_reused() {
    is_returned_and_reused(&yard(HostYard::builder().huge_pages(HugePages::Never)));
}

#[test]
fn memory_of_a_memory_file_is_returned_and_reused() {
    is_returned_and_reused(&yard(HostYard::builder().backing(Backing::Memfd).huge_pages(HugePages::Never)));
}

#[test]
fn transparent_huge_pages_are_returned_block_by_block() {
    let yard = yard(HostYard::builder());
    fill_memory(&yard);
    let outcome = yard.core().report_free_pages(Order(9), PageCount(4096)).unwrap();
    assert_eq!(outcome.pages, PageCount(4096));
    assert_eq!(yard.memory().resident().unwrap(), ByteSize::mib(48));
}

#[test]
fn returned_frames_are_zero_on_their_next_use() {
    let yard = yard(HostYard::builder().huge_pages(HugePages::Never));
    // In the middle: the watermark keeps a block at one of the ends from being returned.
    let whole = PfnRange::new(range(0x10_0000 + PAGES / 2, 512, 0).0.start, PageCount(512));
    let mut frames = yard.request(whole, Gfp::KERNEL).guard().unwrap();
    frames.bytes_mut().fill(9);
    drop(frames);
    yard.drain_all();
    yard.core().report_free_pages(Order(9), ALL).unwrap();
    assert!(yard.memory().resident().unwrap() < ByteSize::mib(2));
    let frames = yard.request(whole, Gfp::KERNEL).guard().unwrap();
    let gone = frames.bytes().iter().filter(|byte| **byte == 0).count();
    assert!(gone >= 1 << 20, "{gone} bytes are the host's");
}

#[test]
fn frames_without_returnable_memory_are_reported() {
    let _added = AddedHugePages::add(HugetlbSize::TwoMib.size(), PAGES / 512);
    for backing in [Backing::Phantom, Backing::Hugetlb(HugetlbSize::TwoMib)] {
        if matches!(backing, Backing::Hugetlb(_)) && !is_backed(&backing) {
            println!("skipped: the host has too few huge pages");
            continue;
        }
        let yard = yard(HostYard::builder().backing(backing));
        let refused = yard.core().report_free_pages(Order(9), ALL).unwrap_err();
        let ReportError::NotReturned { problem, .. } = refused else { panic!("{refused}") };
        assert_eq!(problem, FramesNotReturned::NotPossible);
        assert_eq!(reported(&yard), PageCount(0));
    }
}

/// Whether the host has enough memory of that kind.
fn is_backed(backing: &Backing) -> bool {
    let frames = [NodeFrames { range: range(0x10_0000, PAGES, 0).0, node: NodeId(0) }];
    let host = HostTopology::current().unwrap();
    HostMemory::builder(Geometry::X86_64, &frames).backing(backing.clone()).build(&host).is_ok()
}

#[test]
fn memory_of_a_file_becomes_holes() {
    let path = own_file("reported-frames");
    let _ = std::fs::remove_file(&path);
    let yard = yard(HostYard::builder().backing(Backing::File { path: path.clone(), growth: FileGrowth::Grow }));
    let blocks = || {
        yard.memory().file().unwrap().sync_all().unwrap();
        std::fs::metadata(&path).unwrap().blocks()
    };
    let mut kept: Vec<_> = (0..20).map(|_| yard.frames(Order(9), Gfp::KERNEL).unwrap()).collect();
    kept.iter_mut().for_each(|frames| frames.bytes_mut().fill(3));
    let before = blocks();
    kept.truncate(10);
    yard.drain_all();
    match yard.core().report_free_pages(Order(9), ALL) {
        Ok(outcome) => {
            assert!(outcome.pages >= PageCount(10 << 9));
            let after = blocks();
            assert!(after < before, "{after} of {before} blocks are left");
        }
        Err(ReportError::NotReturned { problem: FramesNotReturned::Refused(error), .. }) => {
            println!("skipped: the file system makes no holes (error {error})");
        }
        Err(problem) => panic!("{problem}"),
    }
    assert!(kept.iter().all(|frames| frames.bytes().iter().all(|byte| *byte == 3)));
    std::fs::remove_file(&path).unwrap();
}

#[test]
fn locks_are_timed_while_timing_is_on() {
    let yard = yard(HostYard::builder());
    let used = || yard.stats().zones().map(|zone| zone.lock).fold(LockUse::default(), LockUse::and);
    let work = || {
        for _ in 0..100 {
            // A range leaves the free lists under the zone lock.
            let frames = yard.request(range(0x10_0000 + PAGES / 2, 512, 0).0, Gfp::KERNEL).range().unwrap();
            yard.free_range(frames).unwrap();
        }
    };
    work();
    assert_eq!((used().hold_ns, used().wait_ns), (0, 0), "not at first");
    yard.platform().time_locks(LockTiming::On);
    let before = used();
    work();
    let timed = used().since(before);
    assert!(timed.acquisitions >= 100 && timed.hold_ns > 0, "{timed:?}");
    yard.platform().time_locks(LockTiming::Off);
    let before = used();
    work();
    assert_eq!(used().since(before).hold_ns, 0);
}
