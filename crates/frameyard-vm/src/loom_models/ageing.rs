//! Ageing pages of spaces (`crate::reclaim::ageing`, `crate::anonymous::ageing`) against all who use, unmap and move them, and
//! against the end of the space.

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

/// Looks at the last inactive page, as the background reclaimer does.
fn age(vm: Vm<'_, ModelPlatform>) {
    let _ = vm.age_listed(SHARD, LruList::InactiveAnon, 1);
}

/// Makes the page as if it had been read, and not written.
fn only_read(space: &AddressSpace<'_, ModelPlatform>) {
    let spot = space.space().walk(AT.0);
    let table = space.space().lock_table(spot.table);
    table.set(spot.index, Entry::page(table.entry(spot.index).pfn(), spot.level).read());
}

/// A page is written while ageing looks at it: it is known as written afterwards.
fn written_while_looked_at(broken: Broken) {
    let scene = scene(broken);
    let (space, _) = written(scene.vm());
    only_read(&space);
    let other = scene.start(1, age);
    write(&space, AT, BEFORE[0] + 1);
    other.join().unwrap();
    let flags = space.translate(AT).expect("it is mapped").flags;
    assert!(flags.is_dirty(), "a write was lost");
    assert_eq!(read(&space, AT), BEFORE[0] + 1, "a write was lost");
    finish(&scene, space);
}

/// A page is looked at while another moves it: one of them has it at a time, and its bytes go with it.
fn moved_while_looked_at() {
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

/// A page is unmapped, and its page tables freed, while `look` looks at it.
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

/// A space ends while `look` looks at its page.
fn ended_while(look: fn(Vm<'_, ModelPlatform>, SpaceId, Pfn)) {
    let scene = scene(None);
    let (space, pfn) = written(scene.vm());
    let id = space.id();
    let other = scene.start(1, move |vm| look(vm, id, pfn));
    drop(space);
    other.join().unwrap();
    scene.finish();
}

/// Looks at a page as ageing does, but without a visit of its space and without the map lock.
fn look_uninvited(vm: Vm<'_, ModelPlatform>, id: SpaceId, pfn: Pfn) {
    let Some(page) = vm.try_page(pfn).filter(|page| page.is_counted() && page.try_get()) else { return };
    if vm.lru_isolate(page) {
        let _ = SpaceRef::new(vm, id.object()).take_use(page);
        vm.put_back_all(&[pfn]);
    } else {
        vm.put_page(page);
    }
}

#[test]
fn a_page_that_is_looked_at_loses_no_write_and_no_mark_of_one() {
    explore_to(2, || written_while_looked_at(None));
}

#[test]
fn a_page_is_looked_at_or_moved() {
    explore_to(2, moved_while_looked_at);
}

#[test]
fn a_page_is_unmapped_once_while_it_is_looked_at() {
    explore_to(1, || unmapped_while(|vm, _, _| age(vm)));
}

#[test]
fn a_space_ends_after_looks_at_its_pages() {
    explore_to(2, || ended_while(|vm, _, _| age(vm)));
}

#[test]
fn looks_under_a_table_lock_that_refuses_nobody_are_found() {
    assert_fails(|| written_while_looked_at(NO_TABLE_LOCK), DAMAGED);
}

#[test]
fn looks_under_a_table_lock_that_orders_nothing_are_found() {
    let broken: Broken = Some((|id| matches!(id, LockId::PageTable(_)), Flaw::TakenRelaxed));
    assert_fails(move || written_while_looked_at(broken), DAMAGED);
}

#[test]
fn looks_without_the_map_lock_are_found() {
    assert_fails_to(1, || unmapped_while(look_uninvited), DAMAGED);
}

#[test]
fn looks_without_a_visit_are_found() {
    assert_fails_to(2, || ended_while(look_uninvited), DAMAGED);
}

#[test]
fn pages_that_are_looked_at_and_moved_at_once_are_found() {
    weakened(Weakness::SplitIntersection, || assert_fails(moved_while_looked_at, DAMAGED));
}
