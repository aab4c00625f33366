//! LRU lists (`crate::lru`): isolation, frees, and links from batches.

use frameyard::owners::{Block, FrameOwner, MigrateMode, Ownership};
use frameyard::page::Counts;
use frameyard::platform::LockId;
use frameyard::sync::{Weakness, weakened};
use frameyard::{Gfp, NodeId, Order, Pfn};

use super::machine::{Broken, Flaw, ModelPlatform};
use super::{Scene, assert_fails, explore};
use crate::VmConfig;
use crate::lru::{LruList, ShardKey};
use crate::object_id::ObjectId;
use crate::page::{PageKind, owner_word};
use crate::vm::Vm;

const SECTIONS: u64 = 2;
const SHARD: ShardKey = ShardKey { node: NodeId(0), shard: 0 };

/// Messages of models whose lists or counts were broken.
pub(super) const DAMAGED: &[&str] = &[
    "the validator objects",
    "frames were lost",
    "a freed page has no other users",
    "is on a list",
    "is linked already",
    "more were released",
    "there was a mapping",
    "an isolator has a reference",
];

pub(super) fn scene(broken: Broken) -> Scene {
    // Batches are drained only explicitly.
    let config = VmConfig { lru_batch: 2, shards: 1, ..VmConfig::default() };
    Scene::new(SECTIONS, &config, broken)
}

pub(super) fn block(pfn: Pfn) -> Block {
    Block { pfn, order: Order::ZERO }
}

/// A page as a fault creates it, on no list yet: one reference of a mapping, one for a batch.
pub(super) fn fresh(vm: Vm<'_, ModelPlatform>) -> Pfn {
    let pfn = vm.yard().alloc(Order::ZERO, Gfp::HIGHUSER_MOVABLE).expect("a frame");
    let owner = owner_word(PageKind::Anonymous, ObjectId::NONE, 0);
    let counts = Counts { references: 2, mappings: 1 };
    vm.yard().counted().init_refs(pfn, Order::ZERO, Ownership { counts, owner, index: 0 }).expect("the frame is ours");
    pfn
}

/// A page on a list with only its mapping's reference.
pub(super) fn listed(vm: Vm<'_, ModelPlatform>) -> Pfn {
    let pfn = fresh(vm);
    vm.lru_add(vm.page(pfn));
    vm.lru_drain();
    pfn
}

/// Removes the mapping, like an unmap.
pub(super) fn unmap(vm: Vm<'_, ModelPlatform>, pfn: Pfn) {
    if vm.page(pfn).unmap().expect("there was a mapping") == 0 {
        vm.free_unused(&[pfn]);
    }
}

/// Isolates a page found by number, and returns it.
pub(super) fn isolate_by_number(vm: Vm<'_, ModelPlatform>, pfn: Pfn) {
    if vm.isolate(block(pfn), MigrateMode::Async).is_ok() {
        vm.put_back(block(pfn));
        vm.lru_drain();
    }
}

/// Isolates the last page of the list like reclaim, and returns it.
pub(super) fn isolate_from_list(vm: Vm<'_, ModelPlatform>) {
    let mut lists = vm.lock_shard(SHARD).unwrap();
    let taken = lists.last(LruList::InactiveAnon).and_then(|page| lists.isolate(page));
    drop(lists);
    if let Some(page) = taken {
        vm.put_back_all(&[page.pfn()]);
    }
}

/// One thread isolates a page found by number while another removes its last mapping. A neighbour stays on the list.
fn isolated_while_freed(broken: Broken) {
    let scene = scene(broken);
    let vm = scene.vm();
    let (pfn, neighbour) = (listed(vm), listed(vm));
    let other = scene.start(1, move |vm| isolate_by_number(vm, pfn));
    unmap(vm, pfn);
    other.join().unwrap();
    vm.validate().unwrap_or_else(|problem| panic!("the validator objects: {problem}"));
    unmap(vm, neighbour);
    scene.finish();
}

/// One thread isolates a page while another frees its neighbour.
fn isolated_while_a_neighbour_is_freed(broken: Broken) {
    let scene = scene(broken);
    let vm = scene.vm();
    let (first, second) = (listed(vm), listed(vm));
    let other = scene.start(1, move |vm| isolate_by_number(vm, first));
    unmap(vm, second);
    other.join().unwrap();
    vm.validate().unwrap_or_else(|problem| panic!("the validator objects: {problem}"));
    unmap(vm, first);
    scene.finish();
}

/// One thread isolates a page found by number while another isolates it from the end of its list.
fn isolated_by_two() {
    let scene = scene(None);
    let vm = scene.vm();
    let pfn = listed(vm);
    let other = scene.start(1, move |vm| isolate_by_number(vm, pfn));
    isolate_from_list(vm);
    other.join().unwrap();
    vm.validate().unwrap_or_else(|problem| panic!("the validator objects: {problem}"));
    unmap(vm, pfn);
    scene.finish();
}

/// One thread isolates pages from the end of a list while another frees one of them.
fn reclaimed_while_freed(broken: Broken) {
    let scene = scene(broken);
    let vm = scene.vm();
    let (pfn, neighbour) = (listed(vm), listed(vm));
    let other = scene.start(1, isolate_from_list);
    unmap(vm, pfn);
    other.join().unwrap();
    vm.validate().unwrap_or_else(|problem| panic!("the validator objects: {problem}"));
    unmap(vm, neighbour);
    scene.finish();
}

#[test]
fn isolation_races_free() {
    explore(|| isolated_while_freed(None));
}

#[test]
fn isolation_races_free_of_a_neighbour() {
    explore(|| isolated_while_a_neighbour_is_freed(None));
}

#[test]
fn one_of_two_isolations_succeeds() {
    explore(isolated_by_two);
}

#[test]
fn reclaim_races_free() {
    explore(|| reclaimed_while_freed(None));
}

#[test]
fn detects_non_atomic_clear_of_the_lru_flag() {
    weakened(Weakness::SplitIntersection, || assert_fails(isolated_by_two, DAMAGED));
}

#[test]
fn detects_shard_lock_without_exclusion() {
    let broken: Broken = Some((|id| matches!(id, LockId::LruShard(..)), Flaw::NeverRefused));
    assert_fails(move || isolated_while_a_neighbour_is_freed(broken), DAMAGED);
    assert_fails(move || reclaimed_while_freed(broken), DAMAGED);
}

#[test]
fn detects_unordered_shard_lock() {
    let broken: Broken = Some((|id| matches!(id, LockId::LruShard(..)), Flaw::TakenRelaxed));
    assert_fails(move || isolated_while_a_neighbour_is_freed(broken), DAMAGED);
}

#[test]
fn detects_non_atomic_references() {
    weakened(Weakness::SplitCompareExchange, || {
        assert_fails(|| isolated_while_freed(None), DAMAGED);
        assert_fails(|| reclaimed_while_freed(None), DAMAGED);
    });
}
