//! Ageing of pages of spaces (`crate::reclaim::ageing`, `crate::anonymous::ageing`) against accesses, unmaps,
//! migration, and the end of the space.

use frameyard::owners::MigrateMode;
use frameyard::platform::LockId;
use frameyard::sync::{Weakness, weakened};
use frameyard::{NodeId, Pfn};

use super::kept::Kept;
use super::machine::{Broken, Flaw, ModelPlatform};
use super::migrate::{
    AT, BEFORE, BOTH, DAMAGED, NO_TABLE_LOCK, finish, move_page, read, scene, target, write, written,
};
use super::{assert_fails, assert_fails_to, explore_to};
use crate::address::VirtAddr;
use crate::lru::{LruList, ShardKey};
use crate::space::{AddressSpace, SpaceId, SpaceRef};
use crate::table::Entry;
use crate::vm::Vm;

const SHARD: ShardKey = ShardKey { node: NodeId(0), shard: 0 };

/// Ages the last inactive page, like the background reclaimer.
fn age(vm: Vm<'_, ModelPlatform>) {
    let _ = vm.age_listed(SHARD, LruList::InactiveAnon, 1);
}

/// Sets the entry to read and not written.
fn only_read(space: &AddressSpace<'_, ModelPlatform>) {
    let spot = space.space().walk(AT.0).unwrap();
    let table = space.space().lock_table(spot.table).unwrap();
    table.set(spot.index, Entry::page(table.entry(spot.index).pfn(), spot.level).read());
}

/// A page is written during ageing: its entry is dirty afterwards.
fn written_while_aged(broken: Broken) {
    let scene = scene(broken);
    let (space, _) = written(scene.vm());
    only_read(&space);
    let other = scene.start(1, age);
    write(&space, AT, BEFORE[0] + 1);
    other.join().unwrap();
    let flags = space.translate(AT).expect("the page is mapped").flags;
    assert!(flags.is_dirty(), "a write was lost");
    assert_eq!(read(&space, AT), BEFORE[0] + 1, "a write was lost");
    finish(&scene, space);
}

/// A page is aged while another CPU moves it: one CPU isolates it at a time, and its bytes move with it.
fn moved_while_aged() {
    let scene = scene(None);
    let (space, pfn) = written(scene.vm());
    let to = target(scene.vm());
    let other = scene.start(1, move |vm| move_page(vm, pfn, to, MigrateMode::Async));
    age(scene.vm());
    other.join().unwrap();
    let found = [read(&space, AT), read(&space, VirtAddr(AT.0 + 8))];
    assert_eq!(found, BEFORE, "a write was lost");
    finish(&scene, space);
}

/// A page is unmapped and its page tables freed while `look` tests it.
fn unmapped_while(look: fn(Vm<'_, ModelPlatform>, SpaceId, Pfn)) {
    let scene = scene(None);
    let (space, pfn) = written(scene.vm());
    let id = space.id();
    let other = scene.start(1, move |vm| {
        let space = Kept::new(vm.space(id).expect("the space is there"));
        let _ = space.unmap(BOTH).expect("the area is there");
    });
    look(scene.vm(), id, pfn);
    other.join().unwrap();
    finish(&scene, space);
}

/// A space ends while `look` tests its page.
fn ended_while(look: fn(Vm<'_, ModelPlatform>, SpaceId, Pfn)) {
    let scene = scene(None);
    let (space, pfn) = written(scene.vm());
    let id = space.id();
    let other = scene.start(1, move |vm| look(vm, id, pfn));
    drop(space);
    other.join().unwrap();
    scene.finish();
}

/// Tests a page like ageing, but without a visit and without the map lock.
fn age_unprotected(vm: Vm<'_, ModelPlatform>, id: SpaceId, pfn: Pfn) {
    let Some(page) = vm.try_page(pfn).filter(|page| page.is_counted() && page.try_get()) else { return };
    if vm.lru_isolate(page) {
        let _ = SpaceRef::new(vm, id.object()).unwrap().take_use(page);
        vm.put_back_all(&[pfn]);
    } else {
        vm.put_page(page);
    }
}

#[test]
fn ageing_keeps_writes_and_dirty_bits() {
    explore_to(2, || written_while_aged(None));
}

#[test]
fn ageing_races_migration() {
    explore_to(2, moved_while_aged);
}

#[test]
fn unmap_races_ageing() {
    explore_to(1, || unmapped_while(|vm, _, _| age(vm)));
}

#[test]
fn exit_waits_for_ageing() {
    explore_to(2, || ended_while(|vm, _, _| age(vm)));
}

#[test]
fn exit_waits_if_exchanges_of_the_map_lock_fail_without_cause() {
    weakened(Weakness::SpuriousFailures, || explore_to(2, || ended_while(|vm, _, _| age(vm))));
}

#[test]
fn detects_ageing_under_table_lock_without_exclusion() {
    assert_fails(|| written_while_aged(NO_TABLE_LOCK), DAMAGED);
}

#[test]
fn detects_ageing_under_unordered_table_lock() {
    let broken: Broken = Some((|id| matches!(id, LockId::PageTable(_)), Flaw::TakenRelaxed));
    assert_fails(move || written_while_aged(broken), DAMAGED);
}

#[test]
fn detects_ageing_without_map_lock() {
    assert_fails_to(1, || unmapped_while(age_unprotected), DAMAGED);
}

#[test]
fn detects_ageing_without_visit() {
    assert_fails_to(2, || ended_while(age_unprotected), DAMAGED);
}

#[test]
fn detects_ageing_of_a_moving_page() {
    weakened(Weakness::SplitIntersection, || assert_fails(moved_while_aged, DAMAGED));
}
