//! Moving pages of address spaces (`crate::anonymous`) against all who use, map, pin and unmap them, and against the end of
//! the space (`crate::space`).

use frameyard::owners::MigrateMode::{Async, Sync};
use frameyard::owners::{Block, FrameOwner, MigrateMode};
use frameyard::platform::LockId;
use frameyard::sync::{Weakness, weakened};
use frameyard::{ByteSize, Gfp, Order, Pfn};

use super::kept::Kept;
use super::machine::{Broken, Flaw, ModelPlatform};
use super::{Scene, assert_fails, assert_fails_to, explore, explore_to};
use crate::address::{VirtAddr, VirtRange};
use crate::area::HugeAdvice;
use crate::inject::{FaultInjector, Step};
use crate::map::MapRequest;
use crate::space::{AddressSpace, SpaceId, SpaceRef, SpaceWord};
use crate::table::Entry;
use crate::vm::Vm;
use crate::{MemoryAccess, VmConfig};

/// Room for the root, a space, its area, four page tables, and a few pages.
const SECTIONS: u64 = 4;
pub(super) const AT: VirtAddr = VirtAddr::LOWEST;
const NEXT: VirtAddr = VirtAddr(AT.0 + 4096);
pub(super) const BOTH: VirtRange = VirtRange { start: AT, end: VirtAddr(AT.0 + 2 * 4096) };

/// What is written before, and what while the page is moved; two words of the page.
pub(super) const BEFORE: [u64; 2] = [11, 12];
const AFTER: u64 = 21;

/// Page tables whose lock refuses nobody.
pub(super) const NO_TABLE_LOCK: Broken = Some((|id| matches!(id, LockId::PageTable(_)), Flaw::NeverRefused));

/// What a model says whose space, counts or lists were broken.
pub(super) const DAMAGED: &[&str] = &[
    "a write was lost",
    "a pinned page was moved",
    "the validator objects",
    "frames were lost",
    "self.entry(index).is_empty()",
    "nobody touches a moving entry",
    "nobody moves pages while they are unmapped",
    "who frees a page has it alone",
    "who has frozen a block has it alone",
    "more were given back",
    "ReferenceUnderflow",
    "a space that is used has a topmost table",
    "a table has one user",
    "an object is deleted once",
    "attempt to subtract with overflow",
];

pub(super) fn scene(broken: Broken) -> Scene {
    let config = VmConfig { lru_batch: 2, shards: 1, ..VmConfig::default() };
    Scene::new(SECTIONS, &config, broken)
}

pub(super) type Space<'y> = Kept<AddressSpace<'y, ModelPlatform>>;

/// A space with an area of two pages, of which the first is there, on a list, and written; and its frame.
pub(super) fn written(vm: Vm<'_, ModelPlatform>) -> (Space<'_>, Pfn) {
    let space = Kept::new(vm.create_space().expect("a space"));
    let request = MapRequest::anonymous(ByteSize::kib(8)).at(AT).advised(HugeAdvice::Never);
    space.map(request).expect("an area");
    write(&space, AT, BEFORE[0]);
    write(&space, VirtAddr(AT.0 + 8), BEFORE[1]);
    vm.lru_drain();
    let pfn = space.translate(AT).expect("a page that was written is mapped").pfn;
    (space, pfn)
}

pub(super) fn write(space: &AddressSpace<'_, ModelPlatform>, addr: VirtAddr, value: u64) {
    space.write(addr, &value.to_le_bytes()).expect("mapped memory is written");
}

pub(super) fn read(space: &AddressSpace<'_, ModelPlatform>, addr: VirtAddr) -> u64 {
    let mut bytes = [0; 8];
    space.read(addr, &mut bytes).expect("mapped memory is read");
    u64::from_le_bytes(bytes)
}

/// A frame to move a page to.
pub(super) fn target(vm: Vm<'_, ModelPlatform>) -> Pfn {
    vm.yard().alloc(Order::ZERO, Gfp::HIGHUSER_MOVABLE).expect("a frame")
}

/// Moves a page found by number, as compaction does, if it can be.
pub(super) fn move_page(vm: Vm<'_, ModelPlatform>, pfn: Pfn, to: Pfn, mode: MigrateMode) {
    let from = Block { pfn, order: Order::ZERO };
    let unused = match vm.isolate(from, mode) {
        Err(_) => to,
        Ok(()) => match vm.migrate(from, to, mode) {
            Ok(()) => pfn,
            Err(_) => {
                vm.put_back(from);
                to
            }
        },
    };
    vm.lru_drain();
    vm.yard().free(unused, Order::ZERO).expect("the frame is ours");
}

/// Demands that the space is in order, then ends it, and demands that nothing is lost.
pub(super) fn finish(scene: &Scene, space: Space<'_>) {
    scene.vm().validate().unwrap_or_else(|problem| panic!("the validator objects: {problem}"));
    drop(space);
    scene.finish();
}

/// A page is written while it is moved.
fn written_while_moved(broken: Broken, mode: MigrateMode) {
    let scene = scene(broken);
    let (space, pfn) = written(scene.vm());
    let to = target(scene.vm());
    let other = scene.start(1, move |vm| move_page(vm, pfn, to, mode));
    write(&space, AT, AFTER);
    other.join().unwrap();
    let found = [read(&space, AT), read(&space, VirtAddr(AT.0 + 8))];
    assert_eq!(found, [AFTER, BEFORE[1]], "a write was lost");
    finish(&scene, space);
}

/// What is undone by somebody who moves a page, from when it is to be marked or frozen until the bytes are copied.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Undone {
    /// That the entry says that the page is being moved.
    Mark,
    /// That the map lock is held for reading.
    Reading,
}

/// Undoes a step of the protocol.
struct Undoing<'y>(Undone, SpaceRef<'y, ModelPlatform>);

impl Undoing<'_> {
    fn begin(&self) {
        match self.0 {
            Undone::Mark => self.change_entry(|entry| entry.moved(entry.pfn())),
            Undone::Reading => self.1.subtract(SpaceWord::MAP_LOCK, 1),
        }
    }

    fn end(&self) {
        match self.0 {
            Undone::Mark => self.change_entry(Entry::moving),
            Undone::Reading => self.1.add(SpaceWord::MAP_LOCK, 1),
        }
    }

    fn change_entry(&self, change: impl FnOnce(Entry) -> Entry) {
        let spot = self.1.walk(AT.0);
        let table = self.1.lock_table(spot.table);
        table.set(spot.index, change(table.entry(spot.index)));
    }
}

impl FaultInjector for Undoing<'_> {
    fn fails(&self, step: Step) -> bool {
        match (self.0, step) {
            (Undone::Reading, Step::Mark) | (Undone::Mark, Step::Freeze) => self.begin(),
            (_, Step::Thaw) => self.end(),
            _ => {}
        }
        false
    }
}

/// As [`move_page`], without a step.
fn move_without(undone: Undone, vm: Vm<'_, ModelPlatform>, id: SpaceId, pfn: Pfn, to: Pfn) {
    let space = Kept::new(vm.space(id).expect("the space is there"));
    let undoing = Undoing(undone, space.space());
    move_page(vm.with_injector(&undoing), pfn, to, Async);
}

/// As [`written_while_moved`], by somebody who does not mark the entry.
fn written_while_moved_unmarked() {
    let scene = scene(None);
    let (space, pfn) = written(scene.vm());
    let (to, id) = (target(scene.vm()), space.id());
    let other = scene.start(1, move |vm| move_without(Undone::Mark, vm, id, pfn, to));
    write(&space, AT, AFTER);
    other.join().unwrap();
    assert_eq!(read(&space, AT), AFTER, "a write was lost");
    finish(&scene, space);
}

/// As [`unmapped_while_moved`], by somebody who does not hold the map lock.
fn unmapped_while_moved_unlocked() {
    let scene = scene(None);
    let (space, pfn) = written(scene.vm());
    let (to, id) = (target(scene.vm()), space.id());
    let other = scene.start(1, move |vm| {
        let space = Kept::new(vm.space(id).expect("the space is there"));
        let _ = space.unmap(BOTH).expect("the area is there");
    });
    move_without(Undone::Reading, scene.vm(), id, pfn, to);
    other.join().unwrap();
    finish(&scene, space);
}

/// The page beside the one that is moved is mapped by a fault.
fn mapped_while_a_neighbour_is_moved(mode: MigrateMode) {
    let scene = scene(None);
    let (space, pfn) = written(scene.vm());
    let to = target(scene.vm());
    let other = scene.start(1, move |vm| move_page(vm, pfn, to, mode));
    space.touch(NEXT, MemoryAccess::Write).expect("mapped memory is used");
    other.join().unwrap();
    scene.vm().lru_drain_all();
    assert_eq!(read(&space, AT), BEFORE[0], "a write was lost");
    finish(&scene, space);
}

/// Two use an address for the first time: one of them maps a page, and what both write is there.
fn mapped_by_two(broken: Broken) {
    let scene = scene(broken);
    let space = written(scene.vm()).0;
    let id = space.id();
    let other = scene.start(1, move |vm| {
        let space = Kept::new(vm.space(id).expect("the space is there"));
        write(&space, NEXT, AFTER);
        vm.lru_drain();
    });
    write(&space, VirtAddr(NEXT.0 + 8), BEFORE[1]);
    other.join().unwrap();
    scene.vm().lru_drain();
    let found = [read(&space, NEXT), read(&space, VirtAddr(NEXT.0 + 8))];
    assert_eq!(found, [AFTER, BEFORE[1]], "a write was lost");
    finish(&scene, space);
}

/// A page is pinned while it is moved: it stays where the pin found it.
fn pinned_while_moved(broken: Broken, mode: MigrateMode) {
    let scene = scene(broken);
    let (space, pfn) = written(scene.vm());
    let to = target(scene.vm());
    let other = scene.start(1, move |vm| move_page(vm, pfn, to, mode));
    let pinned = Kept::new(space.pin(AT).expect("mapped memory is pinned"));
    other.join().unwrap();
    let found = space.translate(AT).map(|found| found.pfn);
    assert_eq!(found, Some(pinned.pfn()), "a pinned page was moved");
    drop(pinned);
    assert_eq!(read(&space, AT), BEFORE[0], "a write was lost");
    finish(&scene, space);
}

/// A page is unmapped while it is moved.
fn unmapped_while_moved(mode: MigrateMode) {
    let scene = scene(None);
    let (space, pfn) = written(scene.vm());
    let to = target(scene.vm());
    let other = scene.start(1, move |vm| move_page(vm, pfn, to, mode));
    let _ = space.unmap(BOTH).expect("the area is there");
    other.join().unwrap();
    finish(&scene, space);
}

/// A space ends while a page of it is moved.
fn ended_while_moved(mode: MigrateMode) {
    let scene = scene(None);
    let (space, pfn) = written(scene.vm());
    let to = target(scene.vm());
    let other = scene.start(1, move |vm| move_page(vm, pfn, to, mode));
    drop(space);
    other.join().unwrap();
    scene.finish();
}

/// The last handle of a space goes while another asks for one by the space's name.
fn ended_while_looked_up() {
    let scene = scene(None);
    let space = Kept::new(scene.vm().create_space().expect("a space"));
    let id = space.id();
    let other = scene.start(1, move |vm| {
        if let Some(space) = vm.space(id).map(Kept::new) {
            assert_eq!(space.id(), id, "the validator objects: another space");
        }
    });
    drop(space);
    other.join().unwrap();
    scene.finish();
}

#[test]
fn a_page_that_is_moved_loses_no_write() {
    explore(|| written_while_moved(None, Async));
}

#[test]
fn a_fault_meets_a_page_that_is_moved() {
    explore_to(2, || mapped_while_a_neighbour_is_moved(Async));
}

#[test]
fn of_two_faults_one_maps_a_page() {
    explore_to(1, || mapped_by_two(None));
}

#[test]
fn a_page_is_pinned_or_moved() {
    explore(|| pinned_while_moved(None, Async));
}

#[test]
fn a_page_is_unmapped_once_while_it_is_moved() {
    explore_to(1, || unmapped_while_moved(Async));
}

#[test]
fn a_space_ends_after_pages_are_moved() {
    explore_to(1, || ended_while_moved(Async));
}

#[test]
fn a_space_is_found_or_ends() {
    explore(ended_while_looked_up);
}

#[test]
fn a_fault_meets_a_page_that_is_moved_by_who_waits() {
    explore_to(1, || mapped_while_a_neighbour_is_moved(Sync));
}

#[test]
fn a_page_that_is_moved_by_who_waits_loses_no_write() {
    explore_to(2, || written_while_moved(None, Sync));
}

#[test]
fn a_page_is_unmapped_once_while_it_is_moved_by_who_waits() {
    explore_to(1, || unmapped_while_moved(Sync));
}

#[test]
fn a_space_ends_after_pages_are_moved_by_who_waits() {
    explore_to(1, || ended_while_moved(Sync));
}

#[test]
fn page_tables_whose_lock_refuses_nobody_who_waits_are_found() {
    assert_fails_to(2, || written_while_moved(NO_TABLE_LOCK, Sync), DAMAGED);
}

#[test]
fn page_tables_whose_lock_refuses_nobody_are_found() {
    assert_fails(|| written_while_moved(NO_TABLE_LOCK, Async), DAMAGED);
    assert_fails(|| mapped_by_two(NO_TABLE_LOCK), DAMAGED);
}

#[test]
fn page_tables_whose_lock_orders_nothing_are_found() {
    let broken: Broken = Some((|id| matches!(id, LockId::PageTable(_)), Flaw::TakenRelaxed));
    assert_fails(move || written_while_moved(broken, Async), DAMAGED);
}

#[test]
fn pages_that_are_moved_without_a_mark_are_found() {
    assert_fails(written_while_moved_unmarked, DAMAGED);
}

#[test]
fn pins_that_are_taken_without_a_lock_are_found() {
    // Or a page is met whose users are frozen, which nobody meets under the lock.
    let found = [DAMAGED, &["mapped memory is pinned"]].concat();
    assert_fails(|| pinned_while_moved(NO_TABLE_LOCK, Async), &found);
}

#[test]
fn pages_that_are_moved_without_the_map_lock_are_found() {
    assert_fails_to(1, unmapped_while_moved_unlocked, DAMAGED);
}

#[test]
fn visits_that_are_read_and_then_written_are_found() {
    weakened(Weakness::SplitCompareExchange, || assert_fails(ended_while_looked_up, DAMAGED));
}
