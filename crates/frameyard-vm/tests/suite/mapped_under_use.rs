//! Spaces that write to a file through mappings, while other threads write it back, drop, reclaim and move its pages.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use frameyard::owners::MigrateMode;
use frameyard::units::ZoneKind;
use frameyard::{ByteSize, NodeId, PageCount, Pfn};
use frameyard_vm::{Dirty, File, MapRequest, PinFlags, PinRequest, RefHandling, Sharing, VirtAddr, VmConfig, VmError};

use crate::fixture::{PAGE, TestMachine, TestPlatform, TestVm, in_yard, run_on};
use crate::page_cache::stores::MemoryStore;
use crate::page_cache::try_to_move;

const PAGES: u64 = 12;
const SIZE: ByteSize = ByteSize(PAGES * PAGE);
const WRITERS: u64 = 3;
const ROUNDS: u64 = 400;
const WRITE: PinRequest = PinRequest { flags: PinFlags::WRITE, ..PinRequest::PIN };

/// Writes increasing numbers to its own word of each page, through a new mapping in each round, and expects every number
/// that it wrote. Ends when pages were dropped meanwhile, or never are.
fn write_rounds(vm: TestVm<'_>, file: &File<'_, TestPlatform>, writer: u64, gone: &AtomicU64) {
    run_on(writer as u32);
    let space = vm.create_space().unwrap();
    let mut written = [0; PAGES as usize];
    for round in 1..=100 * ROUNDS {
        if round > ROUNDS && gone.load(Ordering::Relaxed) > ROUNDS {
            break;
        }
        let mapped = space.map(MapRequest::file(file.id(), 0, SIZE, Sharing::Shared)).unwrap();
        let page = round * 7 % PAGES;
        let word = |page: u64| VirtAddr(mapped.start.0 + page * PAGE + writer * 8);
        let read = |page: u64| {
            let mut bytes = [0; 8];
            space.read(word(page), &mut bytes).unwrap();
            u64::from_le_bytes(bytes)
        };
        assert_eq!(read(page), written[page as usize], "round {round}: a write was lost");
        let mut frames = [Pfn(0)];
        let pinned = round % 4 == 0;
        if pinned {
            space.take_pages(word(page).align_down(ByteSize(PAGE)), WRITE, &mut frames).unwrap();
        }
        space.write(word(page), &round.to_le_bytes()).unwrap();
        written[page as usize] = round;
        if pinned {
            vm.unpin_pages(&frames, RefHandling::Batched, Dirty::Mark).unwrap();
        }
        assert_eq!(read(page), round);
        let private = space.map(MapRequest::file(file.id(), page, ByteSize(PAGE), Sharing::Private)).unwrap();
        let mut bytes = [0; 8];
        space.write(VirtAddr(private.start.0 + PAGE - 1), &[1]).unwrap();
        space.read(VirtAddr(private.start.0 + writer * 8), &mut bytes).unwrap();
        assert_eq!(u64::from_le_bytes(bytes), round, "the copy is of the page as it was");
        let _ = space.unmap(private).unwrap();
        let _ = space.unmap(mapped).unwrap();
    }
}

/// Writes pages back, drops, reclaims and moves them while there are writers.
fn press(vm: TestVm<'_>, file: &File<'_, TestPlatform>, writing: &AtomicU64, gone: &AtomicU64) {
    run_on(WRITERS as u32);
    let range = vm.yard().memory_ranges().next().unwrap().0;
    let mut at = range.start;
    while writing.load(Ordering::Relaxed) > 0 {
        assert!(matches!(file.sync(), Ok(_) | Err(frameyard_vm::FileError::Vm(VmError::Stalled))));
        let dropped = file.drop_clean() + vm.reclaim_pages(NodeId(0), ZoneKind::Movable, PageCount(8));
        gone.fetch_add(dropped.0, Ordering::Relaxed);
        for _ in 0..64 {
            try_to_move(vm, at, MigrateMode::Async);
            at = if at.0 + 1 < range.end.0 { Pfn(at.0 + 1) } else { range.start };
        }
    }
}

/// Counts a writer down when it ends or panics.
struct Ends<'a>(&'a AtomicU64);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[test]
fn writes_through_mappings_survive_write_back_drops_and_moves() {
    let machine = TestMachine { cpus: WRITERS as usize + 1, memory: ByteSize::mib(8), ..TestMachine::default() };
    let store = MemoryStore::default();
    in_yard(machine, VmConfig::default(), |vm| {
        let vm = vm.with_store(&store);
        let file = vm.create_file(1, SIZE).unwrap();
        let (writing, gone) = (AtomicU64::new(WRITERS), AtomicU64::new(0));
        thread::scope(|scope| {
            scope.spawn(|| press(vm, &file, &writing, &gone));
            for writer in 0..WRITERS {
                let (file, writing, gone) = (&file, &writing, &gone);
                scope.spawn(move || {
                    let _ends = Ends(writing);
                    write_rounds(vm, file, writer, gone);
                });
            }
        });
        assert!(gone.load(Ordering::Relaxed) > ROUNDS, "too few pages were dropped between mappings");
    });
}
