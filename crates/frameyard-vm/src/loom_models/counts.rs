//! The counts of a page (`frameyard::page::CountedPage`): they decide which CPU may free or move a block.

use frameyard::owners::Ownership;
use frameyard::page::Counts;
use frameyard::sync::{Weakness, weakened};
use frameyard::{Gfp, Order, Pfn, Platform};

use super::machine::ModelPlatform;
use super::{Scene, assert_fails, explore};
use crate::VmConfig;
use crate::object_id::ObjectId;
use crate::page::{PageKind, owner_word};
use crate::vm::Vm;

const SECTIONS: u64 = 2;

fn counted(vm: Vm<'_, ModelPlatform>, references: u32) -> Pfn {
    let pfn = vm.yard().alloc(Order::ZERO, Gfp::HIGHUSER_MOVABLE).expect("a frame");
    let owner = owner_word(PageKind::Plain, ObjectId::NONE, 0);
    let counts = Counts { references, mappings: 0 };
    vm.yard().counted().init_refs(pfn, Order::ZERO, Ownership { counts, owner, index: 7 }).expect("the frame is ours");
    pfn
}

/// Puts a reference, and frees the block with the last.
fn put<P: Platform>(vm: Vm<'_, P>, pfn: Pfn) {
    if vm.page(pfn).put().expect("there was a reference") == 0 {
        // SAFETY: this thread put the last reference.
        unsafe { vm.yard().counted().free(pfn, Order::ZERO) }.expect("the block is ours");
    }
}

/// One thread releases the last reference while another, which found the page by number, tries to take one.
fn found_while_freed() {
    let scene = Scene::new(SECTIONS, &VmConfig::default(), None);
    let pfn = counted(scene.vm(), 1);
    let other = scene.start(1, move |vm| {
        if vm.page(pfn).try_get() {
            assert_eq!(vm.page(pfn).index(), 7, "the page is another's");
            put(vm, pfn);
        }
    });
    put(scene.vm(), pfn);
    other.join().unwrap();
    scene.finish();
}

/// Two threads release a reference each: one of them frees the block.
fn put_by_two() {
    let scene = Scene::new(SECTIONS, &VmConfig::default(), None);
    let pfn = counted(scene.vm(), 2);
    let other = scene.start(1, move |vm| put(vm, pfn));
    put(scene.vm(), pfn);
    other.join().unwrap();
    scene.finish();
}

/// One thread freezes a page, another tries to take a reference: never both.
fn frozen_while_found() {
    let scene = Scene::new(SECTIONS, &VmConfig::default(), None);
    let pfn = counted(scene.vm(), 1);
    let other = scene.start(1, move |vm| {
        if vm.page(pfn).try_get() {
            assert_eq!(vm.page(pfn).index(), 7, "the page is another's");
            put(vm, pfn);
        }
    });
    let vm = scene.vm();
    let one = Counts { references: 1, mappings: 0 };
    if vm.page(pfn).freeze(one) {
        vm.page(pfn).set_index(8);
        vm.page(pfn).set_index(7);
        vm.page(pfn).unfreeze(one);
    }
    other.join().unwrap();
    put(vm, pfn);
    scene.finish();
}

#[test]
fn look_up_by_number_races_free() {
    explore(found_while_freed);
}

#[test]
fn last_of_two_users_frees() {
    explore(put_by_two);
}

#[test]
fn frozen_page_gives_no_reference() {
    explore(frozen_while_found);
}

#[test]
fn counts_are_changed_again_if_an_exchange_fails_without_cause() {
    weakened(Weakness::SpuriousFailures, || {
        explore(found_while_freed);
        explore(put_by_two);
        explore(frozen_while_found);
    });
}

#[test]
fn detects_non_atomic_counts() {
    weakened(Weakness::SplitCompareExchange, || {
        assert_fails(
            put_by_two,
            &["the block is ours", "frames were lost", "the validator objects", "there was a reference"],
        );
        assert_fails(
            found_while_freed,
            &["the block is ours", "frames were lost", "the validator objects", "there was a reference", "another's"],
        );
    });
}
