//! LRU batches (`crate::lru`) against isolation, frees, and drains by other CPUs.

use frameyard::owners::{FrameOwner, MigrateMode};
use frameyard::platform::LockId;
use frameyard::sync::{Weakness, weakened};
use frameyard::{NodeId, PageCount, Pfn};

use super::lru::{DAMAGED, block, fresh, isolate_by_number, isolate_from_list, listed, scene, unmap};
use super::machine::{Broken, Flaw, ModelPlatform};
use super::{Scene, assert_fails, explore, explore_to};
use crate::lru::LruList;
use crate::page::Flags;
use crate::vm::Vm;

/// Asserts that all pages are on a list and the batches are empty.
fn expect_listed(scene: &Scene, frames: &[Pfn]) {
    let vm = scene.vm();
    vm.lru_drain_all();
    vm.validate().unwrap_or_else(|problem| panic!("the validator objects: {problem}"));
    let lists = vm.lru_statistics(NodeId(0));
    let pages = LruList::ALL.into_iter().fold(PageCount(0), |sum, list| sum + lists.on(list));
    assert_eq!(pages, PageCount(frames.len() as u64), "pages were lost on their way to a list");
    for pfn in frames.iter().copied() {
        assert_eq!(vm.page(pfn).counts().references, 1, "references were lost on the way to a list");
        unmap(vm, pfn);
    }
    scene.finish();
}

const LOST: &[&str] = &[
    DAMAGED[0],
    DAMAGED[1],
    DAMAGED[2],
    DAMAGED[3],
    DAMAGED[4],
    DAMAGED[5],
    DAMAGED[6],
    "pages were lost on their way to a list",
    "references were lost on the way to a list",
];

/// A CPU fills its batch while another empties all batches.
fn filled_while_drained(broken: Broken) {
    let scene = scene(broken);
    let (first, second) = (fresh(scene.vm()), fresh(scene.vm()));
    let before = scene.start(1, move |vm| vm.lru_add(vm.page(first)));
    before.join().unwrap();
    let other = scene.start(1, move |vm| vm.lru_add(vm.page(second)));
    scene.vm().lru_drain_all();
    other.join().unwrap();
    expect_listed(&scene, &[first, second]);
}

/// A CPU drains its batch to a list while another CPU isolates a page at the list's end.
fn drained_while_reclaimed(broken: Broken) {
    let scene = scene(broken);
    let there = listed(scene.vm());
    let added = fresh(scene.vm());
    let other = scene.start(1, move |vm| {
        vm.lru_add(vm.page(added));
        vm.lru_drain();
    });
    isolate_from_list(scene.vm());
    other.join().unwrap();
    expect_listed(&scene, &[there, added]);
}

/// A page is unmapped while it is in another CPU's batch, which both CPUs drain.
fn drained_while_freed() {
    let scene = scene(None);
    let pfn = fresh(scene.vm());
    let other = scene.start(1, move |vm| {
        vm.lru_add(vm.page(pfn));
        vm.lru_drain();
    });
    unmap(scene.vm(), pfn);
    scene.vm().lru_drain_all();
    other.join().unwrap();
    expect_listed(&scene, &[]);
}

/// An isolator drains the batch of its page while the page's CPU does the same.
fn drained_by_two() {
    let scene = scene(None);
    let pfn = fresh(scene.vm());
    let other = scene.start(1, move |vm| {
        vm.lru_add(vm.page(pfn));
        vm.lru_drain();
    });
    let vm = scene.vm();
    if vm.isolate(block(pfn), MigrateMode::Sync).is_ok() {
        vm.put_back(block(pfn));
    }
    other.join().unwrap();
    expect_listed(&scene, &[pfn]);
}

/// Accesses a page for the second time, which activates it.
fn activate(vm: Vm<'_, ModelPlatform>, pfn: Pfn) {
    if vm.page(pfn).try_get() {
        vm.lru_mark_accessed(vm.page(pfn));
        vm.put_page(vm.page(pfn));
        vm.lru_drain();
    }
}

/// A page is activated while another isolates it.
fn activated_while_isolated(broken: Broken) {
    let scene = scene(broken);
    let (pfn, neighbour) = (listed(scene.vm()), listed(scene.vm()));
    scene.vm().page(pfn).set_owner_bits(Flags::REFERENCED);
    let other = scene.start(1, move |vm| activate(vm, pfn));
    isolate_by_number(scene.vm(), pfn);
    other.join().unwrap();
    expect_listed(&scene, &[pfn, neighbour]);
}

/// A page is activated while its last mapping goes.
fn activated_while_freed() {
    let scene = scene(None);
    let (pfn, neighbour) = (listed(scene.vm()), listed(scene.vm()));
    scene.vm().page(pfn).set_owner_bits(Flags::REFERENCED);
    let other = scene.start(1, move |vm| activate(vm, pfn));
    unmap(scene.vm(), pfn);
    other.join().unwrap();
    expect_listed(&scene, &[neighbour]);
}

#[test]
fn full_batch_is_drained_by_another_cpu() {
    explore(|| filled_while_drained(None));
}

#[test]
fn reclaim_skips_pages_in_batches() {
    explore(|| drained_while_reclaimed(None));
}

#[test]
fn batched_page_is_freed_once() {
    explore(drained_while_freed);
}

#[test]
fn batched_page_is_linked_once() {
    explore(drained_by_two);
}

#[test]
fn activation_skips_isolated_pages() {
    explore_to(2, || activated_while_isolated(None));
}

#[test]
fn activation_races_free() {
    explore(activated_while_freed);
}

#[test]
fn detects_batch_lock_without_exclusion() {
    let broken: Broken = Some((|id| matches!(id, LockId::LruBatch(_)), Flaw::NeverRefused));
    assert_fails(move || filled_while_drained(broken), LOST);
}

#[test]
fn detects_unordered_batch_lock() {
    let broken: Broken = Some((|id| matches!(id, LockId::LruBatch(_)), Flaw::TakenRelaxed));
    assert_fails(move || filled_while_drained(broken), LOST);
}

#[test]
fn detects_missing_lock_between_lists_and_batches() {
    let broken: Broken = Some((|id| matches!(id, LockId::LruShard(..)), Flaw::NeverRefused));
    assert_fails(move || drained_while_reclaimed(broken), LOST);
    assert_fails(move || activated_while_isolated(broken), LOST);
}

#[test]
fn detects_non_atomic_reference_release_in_batches() {
    weakened(Weakness::SplitCompareExchange, || {
        assert_fails(drained_while_freed, LOST);
        assert_fails(activated_while_freed, LOST);
    });
}
