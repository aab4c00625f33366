//! Migration of pages of address spaces (`crate::anonymous`) against accesses, faults, pins, unmaps, and the end of the
//! space (`crate::space`).

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

/// The words written before the migration; two words of the page.
pub(super) const BEFORE: [u64; 2] = [11, 12];
const AFTER: u64 = 21;

/// A table lock without exclusion.
pub(super) const NO_TABLE_LOCK: Broken = Some((|id| matches!(id, LockId::PageTable(_)), Flaw::NeverRefused));

/// Messages of models whose space, counts or lists were broken.
pub(super) const DAMAGED: &[&str] = &[
    "a write was lost",
    "a pinned page was moved",
    "the validator objects",
    "frames were lost",
    "self.entry(index).is_empty()",
    "a moving entry stays unchanged",
    "a freed page has no other users",
    "the freezer owns a frozen block",
    "more were released",
    "ReferenceUnderflow",
    "a space in use has a root table",
    "a table has a user",
    "an object is deleted once",
    "attempt to subtract with overflow",
];

pub(super) fn scene(broken: Broken) -> Scene {
    let config = VmConfig { lru_batch: 2, shards: 1, ..VmConfig::default() };
    Scene::new(SECTIONS, &config, broken)
}

pub(super) type Space<'y> = Kept<AddressSpace<'y, ModelPlatform>>;

/// A space with an area of two pages, the first of which is resident, listed and written; and its frame.
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

/// A target frame for a migration.
pub(super) fn target(vm: Vm<'_, ModelPlatform>) -> Pfn {
    vm.yard().alloc(Order::ZERO, Gfp::HIGHUSER_MOVABLE).expect("a frame")
}

/// Moves a page found by number, like compaction, if possible.
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

/// Validates the space, ends it, and asserts that nothing is lost.
pub(super) fn finish(scene: &Scene, space: Space<'_>) {
    scene.vm().validate().unwrap_or_else(|problem| panic!("the validator objects: {problem}"));
    drop(space);
    scene.finish();
}

/// A page is written during its migration.
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

/// The step that a broken migration skips, from marking or freezing until the copy.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Undone {
    /// The mark of the entry.
    Mark,
    /// The map lock for reading.
    Reading,
}

/// Skips a step of the protocol.
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
        let spot = self.1.walk(AT.0).unwrap();
        let table = self.1.lock_table(spot.table).unwrap();
        table.set(spot.index, change(table.entry(spot.index)));
    }
}

impl FaultInjector for Undoing<'_> {
    fn fails(&self, step: Step) -> bool {
        match (self.0, step) {
            (Undone::Reading, Step::Mark) | (Undone::Mark, Step::Freeze) => self.begin(),
            (_, Step::Unfreeze) => self.end(),
            _ => {}
        }
        false
    }
}

/// Like [`move_page`] without a step.
fn move_without(undone: Undone, vm: Vm<'_, ModelPlatform>, id: SpaceId, pfn: Pfn, to: Pfn) {
    let space = Kept::new(vm.space(id).expect("the space is there"));
    let undoing = Undoing(undone, space.space());
    move_page(vm.with_injector(&undoing), pfn, to, Async);
}

/// Like [`written_while_moved`], without the mark of the entry.
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

/// Like [`unmapped_while_moved`], without the map lock.
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

/// A fault maps the neighbour of a page in migration.
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

/// Two threads access an address for the first time: one maps a page, and it contains both writes.
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

/// A page is pinned during its migration: it stays where the pin found it.
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

/// A page is unmapped during its migration.
fn unmapped_while_moved(mode: MigrateMode) {
    let scene = scene(None);
    let (space, pfn) = written(scene.vm());
    let to = target(scene.vm());
    let other = scene.start(1, move |vm| move_page(vm, pfn, to, mode));
    let _ = space.unmap(BOTH).expect("the area is there");
    other.join().unwrap();
    finish(&scene, space);
}

/// A space ends during a migration of its page.
fn ended_while_moved(mode: MigrateMode) {
    let scene = scene(None);
    let (space, pfn) = written(scene.vm());
    let to = target(scene.vm());
    let other = scene.start(1, move |vm| move_page(vm, pfn, to, mode));
    drop(space);
    other.join().unwrap();
    scene.finish();
}

/// The last handle of a space is dropped while another thread looks the space up by name.
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
fn async_migration_loses_no_write() {
    explore(|| written_while_moved(None, Async));
}

#[test]
fn fault_races_async_migration() {
    explore_to(2, || mapped_while_a_neighbour_is_moved(Async));
}

#[test]
fn one_of_two_faults_maps_the_page() {
    explore_to(1, || mapped_by_two(None));
}

#[test]
fn pin_races_migration() {
    explore(|| pinned_while_moved(None, Async));
}

#[test]
fn unmap_races_async_migration() {
    explore_to(1, || unmapped_while_moved(Async));
}

#[test]
fn exit_waits_for_async_migration() {
    explore_to(1, || ended_while_moved(Async));
}

#[test]
fn look_up_of_a_space_races_its_end() {
    explore(ended_while_looked_up);
}

#[test]
fn fault_races_sync_migration() {
    explore_to(1, || mapped_while_a_neighbour_is_moved(Sync));
}

#[test]
fn sync_migration_loses_no_write() {
    explore_to(2, || written_while_moved(None, Sync));
}

#[test]
fn unmap_races_sync_migration() {
    explore_to(1, || unmapped_while_moved(Sync));
}

#[test]
fn exit_waits_for_sync_migration() {
    explore_to(1, || ended_while_moved(Sync));
}

#[test]
fn detects_table_lock_without_exclusion_in_sync_migration() {
    assert_fails_to(2, || written_while_moved(NO_TABLE_LOCK, Sync), DAMAGED);
}

#[test]
fn detects_table_lock_without_exclusion() {
    assert_fails(|| written_while_moved(NO_TABLE_LOCK, Async), DAMAGED);
    assert_fails(|| mapped_by_two(NO_TABLE_LOCK), DAMAGED);
}

#[test]
fn detects_unordered_table_lock() {
    let broken: Broken = Some((|id| matches!(id, LockId::PageTable(_)), Flaw::TakenRelaxed));
    assert_fails(move || written_while_moved(broken, Async), DAMAGED);
}

#[test]
fn detects_migration_without_marked_entry() {
    assert_fails(written_while_moved_unmarked, DAMAGED);
}

#[test]
fn detects_pins_without_table_lock() {
    // The walk may also find a frozen page, which is impossible under the lock.
    let found = [DAMAGED, &["mapped memory is pinned"]].concat();
    assert_fails(|| pinned_while_moved(NO_TABLE_LOCK, Async), &found);
}

#[test]
fn detects_migration_without_map_lock() {
    assert_fails_to(1, unmapped_while_moved_unlocked, &["the area is there: Moving"]);
}

#[test]
fn detects_non_atomic_visits() {
    weakened(Weakness::SplitCompareExchange, || assert_fails(ended_while_looked_up, DAMAGED));
}
