//! Readers, writers, movers and droppers on the same files at once.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use frameyard::owners::MigrateMode;
use frameyard::units::ZoneKind;
use frameyard::{ByteSize, NodeId, PageCount, Pfn};
use frameyard_vm::{File, LruPolicy, PatternStore, Vm};

use super::stores::MemoryStore;
use crate::page_cache::{PAGE, try_to_move, with_vm_on};
use crate::test_yard::{TestMachine, TestPlatform, TestYard, run_on};

fn machine() -> TestYard {
    TestYard::of(TestMachine { cpus: 8, memory: ByteSize::mib(8), ..TestMachine::default() })
}

/// Moves file pages until stopped; counts them.
fn keep_moving(vm: Vm<'_, TestPlatform>, stop: &AtomicBool, moved: &AtomicU64) {
    let range = vm.yard().memory_ranges().next().unwrap().0;
    let mut at = range.start;
    while !stop.load(Ordering::Relaxed) {
        let mode = if at.0.is_multiple_of(2) { MigrateMode::Async } else { MigrateMode::Sync };
        moved.fetch_add(u64::from(try_to_move(vm, at, mode)), Ordering::Relaxed);
        at = if at.0 + 1 < range.end.0 { Pfn(at.0 + 1) } else { range.start };
        if at == range.start {
            vm.lru_drain_all();
        }
    }
}

/// Drops and reclaims until stopped; counts the pages.
fn keep_dropping(vm: Vm<'_, TestPlatform>, file: &File<'_, TestPlatform>, stop: &AtomicBool, dropped: &AtomicU64) {
    while !stop.load(Ordering::Relaxed) {
        let clean = file.drop_clean() + vm.reclaim_pages(NodeId(0), ZoneKind::Movable, PageCount(32));
        dropped.fetch_add(clean.0, Ordering::Relaxed);
        thread::yield_now();
    }
}

/// Stops all threads on drop, even after a panic.
struct StopsOthers<'a>(&'a AtomicBool);

impl Drop for StopsOthers<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Stops all threads when the last writer ends, or one panics.
struct LastStops<'a> {
    working: &'a AtomicU64,
    stop: &'a AtomicBool,
}

impl Drop for LastStops<'_> {
    fn drop(&mut self) {
        if self.working.fetch_sub(1, Ordering::Relaxed) == 1 || thread::panicking() {
            self.stop.store(true, Ordering::Relaxed);
        }
    }
}

/// A record with its place, its writer and a count, so that a torn record is recognisable.
const RECORD: usize = 64;

fn record(slot: u64, turn: u64) -> [u8; RECORD] {
    let mut bytes = [0; RECORD];
    for (word, chunk) in bytes.as_chunks_mut::<8>().0.iter_mut().enumerate() {
        *chunk = (slot << 40 | turn << 8 | word as u64).to_le_bytes();
    }
    bytes
}

fn turn_of(bytes: &[u8; RECORD], slot: u64) -> u64 {
    let turn = (u64::from_le_bytes(bytes[..8].try_into().unwrap()) >> 8) & 0xffff_ffff;
    let expected = if bytes.iter().all(|byte| *byte == 0) { [0; RECORD] } else { record(slot, turn) };
    assert_eq!(bytes, &expected, "slot {slot} has parts of two records");
    turn
}

/// A file of records that are overwritten repeatedly, and the last writer of each.
struct Records<'a, 'y> {
    file: File<'y, TestPlatform>,
    last: Vec<AtomicU64>,
    stop: &'a AtomicBool,
    working: AtomicU64,
    moved: AtomicU64,
    dropped: AtomicU64,
}

impl<'a, 'y> Records<'a, 'y> {
    const PAGES: u64 = 48;
    const SLOTS: u64 = Self::PAGES * PAGE / RECORD as u64;
    const WRITERS: u64 = 2;
    const TURNS: u64 = 4000;
    /// Writers continue until a number of pages were moved and dropped, or a limit of rounds.
    const WANTED: u64 = 300;
    const MOST_TURNS: u64 = 4_000_000;

    fn new(vm: Vm<'y, TestPlatform>, stop: &'a AtomicBool) -> Self {
        Self {
            file: vm.create_file(1, ByteSize(Self::PAGES * PAGE)).unwrap(),
            last: (0..Self::SLOTS).map(|_| AtomicU64::new(0)).collect(),
            stop,
            working: AtomicU64::new(Self::WRITERS),
            moved: AtomicU64::new(0),
            dropped: AtomicU64::new(0),
        }
    }

    /// The number of pages moved or dropped, whichever is smaller.
    fn disturbed(&self) -> u64 {
        self.moved.load(Ordering::Relaxed).min(self.dropped.load(Ordering::Relaxed))
    }

    fn read(&self, slot: u64) -> u64 {
        let mut bytes = [0; RECORD];
        assert_eq!(self.file.read(slot * RECORD as u64, &mut bytes), Ok(RECORD));
        turn_of(&bytes, slot)
    }

    fn last(&self, slot: u64) -> u64 {
        self.last[slot as usize].load(Ordering::Relaxed)
    }

    fn keep_writing(&self, writer: u64) {
        let _done = LastStops { working: &self.working, stop: self.stop };
        for turn in 1..Self::MOST_TURNS {
            let is_enough = turn > Self::TURNS && self.disturbed() >= Self::WANTED;
            if is_enough || self.stop.load(Ordering::Relaxed) {
                break;
            }
            // Each writer has its own slots.
            let slot = turn.wrapping_mul(0x9e37_79b9).wrapping_add(writer * 77) % (Self::SLOTS / Self::WRITERS);
            let slot = slot * Self::WRITERS + writer;
            self.file.write(slot * RECORD as u64, &record(slot, turn)).unwrap();
            self.last[slot as usize].store(turn, Ordering::Relaxed);
        }
    }

    fn keep_reading(&self) {
        let _stops = StopsOthers(self.stop);
        let mut seen = 0_u64;
        while !self.stop.load(Ordering::Relaxed) {
            seen = seen.wrapping_add(0x51_7cc1);
            let slot = seen % Self::SLOTS;
            let before = self.last(slot);
            assert!(self.read(slot) >= before, "an earlier write is missing");
        }
    }

    fn keep_syncing(&self) {
        let _stops = StopsOthers(self.stop);
        while !self.stop.load(Ordering::Relaxed) {
            self.file.sync().unwrap();
            thread::yield_now();
        }
    }
}

#[test]
fn migration_drops_and_write_back_lose_no_write() {
    for policy in [LruPolicy::Vanilla, LruPolicy::Sharded] {
        let (yard, store) = (machine(), MemoryStore::default());
        with_vm_on(&yard, |vm| {
            let vm = vm.with_store(&store);
            vm.set_lru_policy(policy);
            let stop = AtomicBool::new(false);
            let records = &Records::new(vm, &stop);
            thread::scope(|scope| {
                let on = |cpu: u32, work: &(dyn Fn() + Sync)| {
                    run_on(cpu);
                    work();
                };
                for writer in 0..Records::WRITERS {
                    scope.spawn(move || on(writer as u32, &|| records.keep_writing(writer)));
                }
                scope.spawn(move || on(2, &|| records.keep_reading()));
                scope.spawn(move || on(3, &|| records.keep_syncing()));
                scope.spawn(move || on(4, &|| keep_moving(vm, records.stop, &records.moved)));
                scope.spawn(move || on(5, &|| keep_dropping(vm, &records.file, records.stop, &records.dropped)));
            });
            assert!(records.disturbed() >= Records::WANTED, "only {} pages moved or dropped", records.disturbed());
            for slot in 0..Records::SLOTS {
                assert_eq!(records.read(slot), records.last(slot), "slot {slot}");
            }
            vm.validate().unwrap();
        });
    }
}

#[test]
fn reads_are_correct_during_truncation_and_growth() {
    const PAGES: u64 = 64;
    let yard = machine();
    with_vm_on(&yard, |vm| {
        let file = vm.create_file(21, ByteSize(PAGES * PAGE)).unwrap();
        let stop = AtomicBool::new(false);
        let (file, stop) = (&file, &stop);
        thread::scope(|scope| {
            for reader in 0..2_u64 {
                scope.spawn(move || {
                    run_on(reader as u32);
                    let mut bytes = [0; 600];
                    let mut at = reader * 1000;
                    while !stop.load(Ordering::Relaxed) {
                        at = (at + 4099) % (PAGES * PAGE);
                        let read = file.read(at, &mut bytes).unwrap();
                        for (byte, at) in bytes[..read].iter().zip(at..) {
                            assert_eq!(*byte, PatternStore::expected(21, at / PAGE, at % PAGE));
                        }
                    }
                });
            }
            scope.spawn(move || {
                run_on(2);
                keep_moving(vm, stop, &AtomicU64::new(0));
            });
            let _stops = StopsOthers(stop);
            run_on(3);
            for turn in 0..800_u64 {
                file.truncate(ByteSize(turn * 7919 % (PAGES * PAGE))).unwrap();
                file.truncate(ByteSize(PAGES * PAGE)).unwrap();
            }
        });
        vm.validate().unwrap();
    });
}

#[test]
fn concurrent_appends_keep_all_bytes() {
    let (yard, store) = (machine(), MemoryStore::default());
    with_vm_on(&yard, |vm| {
        let vm = vm.with_store(&store);
        let file = vm.create_file(2, ByteSize(0)).unwrap();
        let next = AtomicU64::new(0);
        thread::scope(|scope| {
            for writer in 0..4_u32 {
                let (file, next) = (&file, &next);
                scope.spawn(move || {
                    run_on(writer);
                    loop {
                        let slot = next.fetch_add(1, Ordering::Relaxed);
                        if slot >= 5000 {
                            break;
                        }
                        file.write(slot * RECORD as u64, &record(slot, slot + 1)).unwrap();
                        if slot.is_multiple_of(64) {
                            file.sync().unwrap();
                            file.drop_clean();
                        }
                    }
                });
            }
        });
        assert_eq!(file.size(), ByteSize(5000 * RECORD as u64));
        for slot in 0..5000 {
            let mut bytes = [0; RECORD];
            file.read(slot * RECORD as u64, &mut bytes).unwrap();
            assert_eq!(turn_of(&bytes, slot), slot + 1);
        }
    });
}

#[test]
fn files_end_during_reads_migration_and_reclaim() {
    let yard = machine();
    with_vm_on(&yard, |vm| {
        let (stop, start) = (AtomicBool::new(false), Barrier::new(3));
        let (stop, start) = (&stop, &start);
        thread::scope(|scope| {
            let _stops = StopsOthers(stop);
            scope.spawn(move || {
                run_on(3);
                keep_moving(vm, stop, &AtomicU64::new(0));
            });
            scope.spawn(move || {
                run_on(4);
                while !stop.load(Ordering::Relaxed) {
                    vm.reclaim_pages(NodeId(0), ZoneKind::Movable, PageCount(64));
                }
            });
            let users: Vec<_> = (0..3_u64)
                .map(|user| {
                    scope.spawn(move || {
                        run_on(user as u32);
                        for round in 0..150 {
                            let file = vm.create_file(user, ByteSize(40 * PAGE)).unwrap();
                            let id = file.id();
                            if round == 0 {
                                start.wait();
                            }
                            // The last handle removes the pages.
                            let reader = scope.spawn(move || {
                                let Some(file) = vm.file(id) else { return };
                                let mut bytes = [0; 64];
                                for page in 0..40 {
                                    file.read(page * PAGE + 64, &mut bytes).unwrap();
                                    assert_eq!(bytes[0], PatternStore::expected(user, page, 64));
                                }
                            });
                            file.read(round % 40 * PAGE, &mut [0; 100]).unwrap();
                            drop(file);
                            reader.join().unwrap();
                        }
                    })
                })
                .collect();
            users.into_iter().for_each(|user| user.join().unwrap());
        });
        assert_eq!(vm.cached_pages(), PageCount(0));
    });
}
