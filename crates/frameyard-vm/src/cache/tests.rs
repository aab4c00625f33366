//! White-box tests: the tree against a map, and rejected drops and migrations.

use std::collections::BTreeMap;

use frameyard::owners::{Block, MigrateMode, MigrateProblem, Ownership};
use frameyard::{ByteSize, Gfp, Order, PageCount, Pfn};
use proptest::prelude::*;

use super::page_lock::PageHeld;
use super::tree::{Inserted, Spare, Which, height_for};
use super::*;
use crate::page::Flags;
use crate::root::VmConfig;
use crate::test_yard::{TestPlatform, TestYard};
use crate::vm::TestVm;
use crate::words::FrameBytes;

const PAGE: u64 = 4096;

#[derive(Clone, Copy, Debug)]
enum Change {
    Insert(u64),
    Remove(u64),
    Dirty(u64),
    Clean(u64),
}

fn any_index() -> impl Strategy<Value = u64> {
    prop_oneof![4 => 0..200_u64, 2 => 4000..4200_u64, 1 => any::<u64>(), 1 => (0..64_u32).prop_map(|bit| 1 << bit)]
}

fn any_change() -> impl Strategy<Value = Change> {
    prop_oneof![
        3 => any_index().prop_map(Change::Insert),
        2 => any_index().prop_map(Change::Remove),
        2 => any_index().prop_map(Change::Dirty),
        1 => any_index().prop_map(Change::Clean),
    ]
}

fn with_vm(test: impl FnOnce(TestVm<'_>)) {
    let yard = TestYard::new();
    let vm = Vm::create(&yard, &VmConfig::default()).unwrap();
    test(vm);
    vm.finish();
}

/// A frame number for trees. No code accesses the frame.
fn frame(index: u64) -> Pfn {
    Pfn(0x1_0000 + index % 1000)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn tree_agrees_with_a_map(changes in prop::collection::vec(any_change(), 1..120), probes in prop::collection::vec(any_index(), 8)) {
        with_vm(|vm| {
            let file = vm.create_file(1, ByteSize(0)).unwrap();
            let of = file.file;
            let mut model = BTreeMap::new();
            for change in changes {
                match change {
                    Change::Insert(index) => {
                        let mut spare = Spare::new(vm);
                        loop {
                            let inserted = of.lock().unwrap().insert(index, frame(index), &mut spare).unwrap();
                            match inserted {
                                Inserted::Lacking(nodes) => spare.fill(nodes).unwrap(),
                                Inserted::Done => {
                                    assert!(model.insert(index, false).is_none());
                                    break;
                                }
                                Inserted::Occupied(found) => {
                                    assert!(model.contains_key(&index));
                                    assert_eq!(found, frame(index));
                                    break;
                                }
                            }
                        }
                    }
                    Change::Remove(index) => {
                        let removed = of.lock().unwrap().remove(index);
                        assert_eq!(removed, model.remove(&index).map(|_| frame(index)));
                    }
                    Change::Dirty(index) => {
                        if let Some(dirty) = model.get_mut(&index) {
                            of.lock().unwrap().tag_dirty(index);
                            *dirty = true;
                        }
                    }
                    Change::Clean(index) => {
                        of.lock().unwrap().untag_dirty(index);
                        model.entry(index).and_modify(|dirty| *dirty = false);
                    }
                }
                check(&file, &model, &probes);
            }
            for index in model.into_keys() {
                of.lock().unwrap().remove(index);
            }
            assert_eq!(vm.live_objects(ObjectKind::CacheNode), 0, "an empty tree has no nodes");
        });
    }
}

fn check(file: &File<'_, TestPlatform>, model: &BTreeMap<u64, bool>, probes: &[u64]) {
    let tree = file.file.lock().unwrap();
    for from in probes.iter().copied().chain([0]) {
        let next = |dirty: bool| model.range(from..).find(|(_, is)| **is || !dirty).map(|(index, _)| *index);
        assert_eq!(tree.next(from, Which::Any), next(false).map(|index| (index, frame(index))));
        assert_eq!(tree.next(from, Which::Dirty), next(true).map(|index| (index, frame(index))));
        assert_eq!(tree.find(from), model.get(&from).map(|_| frame(from)));
    }
    let height = model.keys().next_back().map_or(0, |last| height_for(*last));
    assert!(tree.height() >= height);
    drop(tree);
    assert_eq!(file.pages(), PageCount(model.len() as u64));
    assert_eq!(file.dirty_pages(), PageCount(model.values().filter(|dirty| **dirty).count() as u64));
}

#[test]
fn heights_cover_every_number() {
    assert_eq!(height_for(0), 1);
    assert_eq!(height_for(63), 1);
    assert_eq!(height_for(64), 2);
    assert_eq!(height_for(u64::MAX), tree::MAX_HEIGHT as u64);
}

/// The resident page of a file with that number.
fn page_of<'y>(file: &File<'y, TestPlatform>, index: u64) -> frameyard::page::CountedPage<'y, TestPlatform> {
    let pfn = file.file.lock().unwrap().find(index).expect("the page is there");
    file.file.vm().page(pfn)
}

/// Isolates a page like reclaim and compaction.
fn isolate(vm: TestVm<'_>, page: frameyard::page::CountedPage<'_, TestPlatform>) {
    vm.lru_drain_all();
    let page = vm.page(page.pfn());
    assert!(page.try_get() && vm.lru_isolate(page));
}

fn restore(vm: TestVm<'_>, page: frameyard::page::CountedPage<'_, TestPlatform>) {
    vm.lru_add(vm.page(page.pfn()));
}

#[test]
fn drops_only_clean_unused_pages() {
    with_vm(|vm| {
        let file = vm.create_file(3, ByteSize(8 * PAGE)).unwrap();
        file.read(0, &mut [0; 1]).unwrap();
        file.write(PAGE, &[1]).unwrap();
        let (clean, dirty) = (page_of(&file, 0), page_of(&file, 1));
        isolate(vm, clean);
        isolate(vm, dirty);
        assert_eq!(vm.drop_cache_page(dirty), Err(DropProblem::Dirty));
        clean.get();
        assert_eq!(vm.drop_cache_page(clean), Err(DropProblem::Busy), "another user has a reference");
        vm.put_page(clean);
        let held = PageHeld::try_lock(vm, clean);
        assert_eq!(vm.drop_cache_page(clean), Err(DropProblem::Busy), "the page is locked");
        drop(held);
        let before = file.pages();
        assert_eq!(vm.drop_cache_page(clean), Ok(()));
        assert_eq!((clean.counts().references, before - file.pages()), (0, PageCount(1)));
        vm.free_unused(&[clean.pfn()]);
        restore(vm, dirty);
        vm.validate().unwrap();
        let mut byte = [0];
        file.read(0, &mut byte).unwrap();
        assert_eq!(byte[0], crate::PatternStore::expected(3, 0, 0), "the page is not from the store");
    });
}

#[test]
fn failed_page_lock_is_not_released() {
    with_vm(|vm| {
        let file = vm.create_file(3, ByteSize(PAGE)).unwrap();
        file.read(0, &mut [0; 1]).unwrap();
        let page = page_of(&file, 0);
        let held = PageHeld::try_lock(vm, page).unwrap();
        assert!(PageHeld::try_lock(vm, page).is_none());
        assert!(PageHeld::try_lock(vm, page).is_none(), "the first guard still holds the lock");
        drop(held);
        assert!(PageHeld::try_lock(vm, page).is_some());
    });
}

fn migrate_to(vm: TestVm<'_>, from: Block, to: Pfn, mode: MigrateMode) -> Result<(), MigrateProblem> {
    vm.yard().counted().init_refs(to, Order::ZERO, Ownership::default()).unwrap();
    // SAFETY: the test has allocated `to`, which is frozen now.
    let bytes = unsafe { FrameBytes::new(vm.yard(), to, Order::ZERO) };
    vm.migrate_cache(from, bytes, mode).inspect_err(|_| {
        // SAFETY: it is still frozen.
        unsafe { vm.yard().counted().clear_refs(to, Order::ZERO) }.unwrap();
    })
}

#[test]
fn isolated_page_survives_its_file() {
    with_vm(|vm| {
        let file = vm.create_file(3, ByteSize(PAGE)).unwrap();
        file.read(0, &mut [0; 1]).unwrap();
        let page = page_of(&file, 0);
        isolate(vm, page);
        drop(file);
        assert_eq!(vm.drop_cache_page(page), Err(DropProblem::Gone));
        let to = vm.yard().alloc(Order::ZERO, Gfp::HIGHUSER_MOVABLE).unwrap();
        let from = Block { pfn: page.pfn(), order: Order::ZERO };
        assert_eq!(migrate_to(vm, from, to, MigrateMode::Sync), Err(MigrateProblem::Gone));
        vm.yard().free(to, Order::ZERO).unwrap();
        restore(vm, page);
        vm.lru_drain_all();
        vm.validate().unwrap();
    });
}

#[test]
fn locked_or_referenced_file_pages_are_not_moved() {
    with_vm(|vm| {
        let file = vm.create_file(3, ByteSize(PAGE)).unwrap();
        file.write(5, b"here").unwrap();
        let page = page_of(&file, 0);
        isolate(vm, page);
        let to = vm.yard().alloc(Order::ZERO, Gfp::HIGHUSER_MOVABLE).unwrap();
        let from = Block { pfn: page.pfn(), order: Order::ZERO };
        page.get();
        assert_eq!(migrate_to(vm, from, to, MigrateMode::Sync), Err(MigrateProblem::Busy));
        vm.put_page(page);
        let held = PageHeld::try_lock(vm, page);
        assert_eq!(migrate_to(vm, from, to, MigrateMode::Async), Err(MigrateProblem::Busy));
        drop(held);
        let order = Block { order: Order(1), ..from };
        assert_eq!(migrate_to(vm, order, to, MigrateMode::Async), Err(MigrateProblem::Unmovable));
        assert_eq!(migrate_to(vm, from, to, MigrateMode::Async), Ok(()));
        assert_eq!(page_of(&file, 0).pfn(), to);
        vm.yard().free(from.pfn, Order::ZERO).unwrap();
        // The isolator's reference now belongs to the new page.
        restore(vm, vm.page(to));
        vm.validate().unwrap();
        let mut bytes = [0; 4];
        file.read(5, &mut bytes).unwrap();
        assert_eq!(&bytes, b"here");
        assert_eq!(file.dirty_pages(), PageCount(1), "a migrated page stays dirty");
    });
}

#[test]
fn validator_detects_page_inconsistent_with_its_file() {
    with_vm(|vm| {
        let file = vm.create_file(3, ByteSize(PAGE)).unwrap();
        file.read(0, &mut [0; 1]).unwrap();
        let page = page_of(&file, 0);
        for flag in [Flags::DIRTY, Flags::TRUNCATED] {
            page.set_owner_bits(flag);
            assert!(vm.validate_files().is_err());
            page.clear_owner_bits(flag);
        }
        let held = PageHeld::try_lock(vm, page);
        assert!(vm.validate_files().is_err());
        drop(held);
        page.set_index(1);
        assert!(vm.validate_files().is_err());
        page.set_index(0);
        page.get();
        assert!(vm.validate_files().is_err());
        vm.put_page(page);
        file.file.lock().unwrap().set_size(0);
        assert!(vm.validate_files().is_err());
        file.file.lock().unwrap().set_size(PAGE);
        vm.validate_files().unwrap();
    });
}
