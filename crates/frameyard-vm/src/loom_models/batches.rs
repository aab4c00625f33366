//! Batches of used pages (`crate::lru`): what a CPU collects, against who takes pages off lists, frees them, or empties the
//! batches of others.

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

/// Demands that all pages got to a list, and nothing is left of the batches.
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

/// A CPU's batch brings a page to a list while another takes a page off its end.
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

/// A page is unmapped while it is in the batch of another CPU, which is emptied by both.
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

/// Who has to have a page drains the batch that it is in, while its CPU does the same.
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

/// Uses a page for the second time: it is activated.
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
fn a_batch_that_fills_is_drained_by_another() {
    explore(|| filled_while_drained(None));
}

#[test]
fn a_batch_meets_reclaim() {
    explore(|| drained_while_reclaimed(None));
}

#[test]
fn a_page_in_a_batch_is_freed_once() {
    explore(drained_while_freed);
}

#[test]
fn a_page_in_a_batch_is_listed_once() {
    explore(drained_by_two);
}

#[test]
fn an_isolated_page_is_not_activated() {
    explore_to(2, || activated_while_isolated(None));
}

#[test]
fn a_page_is_activated_or_freed() {
    explore(activated_while_freed);
}

#[test]
fn batches_whose_lock_refuses_nobody_are_found() {
    let broken: Broken = Some((|id| matches!(id, LockId::LruBatch(_)), Flaw::NeverRefused));
    assert_fails(move || filled_while_drained(broken), LOST);
}

#[test]
fn batches_whose_lock_orders_nothing_are_found() {
    let broken: Broken = Some((|id| matches!(id, LockId::LruBatch(_)), Flaw::TakenRelaxed));
    assert_fails(move || filled_while_drained(broken), LOST);
}

#[test]
fn lists_that_meet_batches_without_a_lock_are_found() {
    let broken: Broken = Some((|id| matches!(id, LockId::LruShard(..)), Flaw::NeverRefused));
    assert_fails(move || drained_while_reclaimed(broken), LOST);
    assert_fails(move || activated_while_isolated(broken), LOST);
}

#[test]
fn batches_of_pages_whose_references_are_split_are_found() {
    weakened(Weakness::SplitCompareExchange, || {
        assert_fails(drained_while_freed, LOST);
        assert_fails(activated_while_freed, LOST);
    });
}
