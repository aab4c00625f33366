//! Pins without locks (`crate::pin`) against unmaps, removal of page tables, and splits.

use std::cell::Cell;
use std::sync::Arc;

use frameyard::devices::{DeviceRequest, MapLayout, MapPlacement, Removal};
use frameyard::owners::{Block, FrameOwner, MigrateMode, Ownership};
use frameyard::page::Counts;
use frameyard::sync::{AtomicU64, Ordering, Weakness, weakened};
use frameyard::units::PhysAddr;
use frameyard::{ByteSize, Gfp, NodeId, Order, PageCount, Pfn, PfnRange};

use super::kept::Kept;
use super::machine::{Machine, ModelPlatform};
use super::migrate::{AT, BOTH, DAMAGED, Space, finish, scene, target, write, written};
use super::{Scene, assert_fails_to, explore_to, in_long_runs, start};
use crate::address::{PageLevel, VirtAddr, VirtRange};
use crate::area::HugeAdvice;
use crate::inject::{FaultInjector, Step};
use crate::map::MapRequest;
use crate::object_id::ObjectId;
use crate::page::{PageKind, owner_word};
use crate::pin::{Dirty, PinPath, PinRequest, RefHandling};
use crate::space::SpaceId;
use crate::table::{Entry, HUGE, Level};
use crate::vm::Vm;
use crate::words::FrameBytes;
use crate::{MemoryAccess, VmConfig};

pub(super) const PAGE: u64 = 4096;

pub(super) const WRONG: &[&str] = &[
    "a page of another owner was pinned",
    "the pin differs from the mapping",
    "pins were lost",
    "taken references can be released",
    "the frame is ours",
    DAMAGED[2],
    DAMAGED[3],
    DAMAGED[6],
    DAMAGED[8],
    DAMAGED[9],
];

pub(super) fn open<'y>(vm: Vm<'y, ModelPlatform>, id: SpaceId) -> Space<'y> {
    Kept::new(vm.space(id).expect("the space is there"))
}

/// The position of an unlocked walk between two of its loads, published to the threads that change what it reads. Loom
/// reorders two accesses only if no access of the same word lies between, and a thread that changes an entry reads it
/// first.
#[derive(Clone, Default)]
struct Meeting(Arc<AtomicU64>);

impl Meeting {
    fn meet(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// The step of a walk at which it publishes its position.
#[derive(Clone, Copy)]
enum Place {
    /// After it found the table, before it reads an entry.
    AtTable = 1,
    /// After it read the entry.
    BehindEntry = 2,
}

/// A walk that publishes its position.
struct Walker<'a>(&'a Meeting, Place, Cell<usize>);

// SAFETY: only the walking thread uses it; loom runs all threads of a model on one.
unsafe impl Sync for Walker<'_> {}

impl FaultInjector for Walker<'_> {
    fn fails(&self, step: Step) -> bool {
        if step == Step::WalkUnlocked {
            self.2.set(self.2.get() + 1);
            if self.2.get() == self.1 as usize {
                self.0.meet();
            }
        }
        false
    }
}

/// Pins the page of an address without a lock.
fn pin_fast(space: &Space<'_>, addr: VirtAddr, meeting: &Meeting, place: Place) -> Option<Pfn> {
    let mut frames = [Pfn(0)];
    let walker = Walker(meeting, place, Cell::new(0));
    let space = open(space.space().vm().with_injector(&walker), space.id());
    space.take_pages(addr, PinRequest::PIN.by(PinPath::FastOnly), &mut frames).ok().map(|_| frames[0])
}

fn unpin(vm: Vm<'_, ModelPlatform>, pfn: Pfn) {
    vm.unpin_pages(&[pfn], RefHandling::Batched, Dirty::Keep).unwrap_or_else(|lost| panic!("pins were lost: {lost}"));
}

const ONE: Counts = Counts { references: 1, mappings: 0 };

/// Allocates exactly that frame, if it is free by now, as a page of another owner.
pub(super) fn take_over(vm: Vm<'_, ModelPlatform>, pfn: Pfn) {
    if vm.yard().request(PfnRange::new(pfn, PageCount(1)), Gfp::KERNEL).range().is_ok() {
        let owner = owner_word(PageKind::Plain, ObjectId::NONE, 0);
        vm.yard()
            .counted()
            .init_refs(pfn, Order::ZERO, Ownership { counts: ONE, owner, index: 7 })
            .expect("the frame is ours");
    }
}

/// Frees a page that [`take_over`] may have got. No other references exist.
pub(super) fn free_page(vm: Vm<'_, ModelPlatform>, pfn: Pfn) {
    let page = vm.page(pfn);
    if page.is_counted() && PageKind::of_word(page.owner()) == Some(PageKind::Plain) {
        assert!(page.freeze(ONE), "a page of another owner was pinned");
        // SAFETY: this thread froze the counts.
        unsafe { vm.yard().counted().free(pfn, Order::ZERO) }.expect("the frame is ours");
    }
}

/// A page is unmapped and freed, and its frame gets a new owner, while another thread pins it.
fn pinned_while_unmapped() {
    let scene = scene(None);
    let (space, pfn) = written(scene.vm());
    let id = space.id();
    let meeting = Meeting::default();
    let met = meeting.clone();
    let other = scene.start(1, move |vm| {
        met.meet();
        let only = VirtRange { start: AT, end: VirtAddr(AT.0 + PAGE) };
        let _ = open(vm, id).unmap(only).expect("the area is there");
        take_over(vm, pfn);
    });
    let pinned = pin_fast(&space, AT, &meeting, Place::BehindEntry);
    other.join().unwrap();
    free_page(scene.vm(), pfn);
    if let Some(pinned) = pinned {
        assert_eq!(pinned, pfn, "a page of another owner was pinned");
        unpin(scene.vm(), pfn);
    }
    finish(&scene, space);
}

/// The CPU that writes to a freed page table.
#[derive(Clone, Copy, PartialEq, Eq)]
enum LaterOwner {
    /// The one that freed it.
    Remover,
    /// Another one. Its store carries no release of the removing CPU's stores.
    Third,
}

/// The page tables of an address are freed, and the frame of the lowest gets another owner's contents, while another
/// thread pins the page.
fn pinned_while_tables_are_removed(later: LaterOwner) {
    let scene = scene(None);
    let (space, pfn) = written(scene.vm());
    let vm = scene.vm();
    let (id, table) = (space.id(), space.space().walk(AT.0).unwrap().table.pfn);
    let foreign = target(vm);
    let owner = owner_word(PageKind::Anonymous, ObjectId::NONE, 0);
    vm.yard()
        .counted()
        .init_refs(foreign, Order::ZERO, Ownership { counts: ONE, owner, index: 7 })
        .expect("the frame is ours");
    let meeting = Meeting::default();
    let met = meeting.clone();
    let reuse = move |vm: Vm<'_, ModelPlatform>| {
        if vm.yard().request(PfnRange::new(table, PageCount(1)), Gfp::KERNEL).range().is_ok() {
            let entry = Entry::page(foreign, Level::SMALL).bits().to_le_bytes();
            // SAFETY: this thread has allocated the frame.
            let mut bytes = unsafe { FrameBytes::new(vm.yard(), table, Order::ZERO) };
            bytes.write(8 * Level::SMALL.index(AT.0), &entry).unwrap();
            vm.yard().free(table, Order::ZERO).expect("the frame is ours");
        }
    };
    let machine = Arc::clone(&scene.machine);
    let other = scene.start(1, move |vm| {
        met.meet();
        let _ = open(vm, id).unmap(BOTH).expect("the area is there");
        match later {
            LaterOwner::Remover => reuse(vm),
            LaterOwner::Third => start(&machine, 1, reuse).join().unwrap(),
        }
    });
    if let Some(pinned) = pin_fast(&space, AT, &meeting, Place::AtTable) {
        assert_eq!(pinned, pfn, "a page of another owner was pinned");
        unpin(vm, pfn);
    }
    other.join().unwrap();
    assert!(vm.page(foreign).freeze(ONE), "a page of another owner was pinned");
    // SAFETY: this thread froze the counts.
    unsafe { vm.yard().counted().free(foreign, Order::ZERO) }.expect("the frame is ours");
    finish(&scene, space);
}

/// A space with one huge page, and that page.
fn with_huge_page(scene: &Scene) -> (Space<'_>, Pfn) {
    let space = Kept::new(scene.vm().create_space().expect("a space"));
    let bytes = ByteSize(HUGE.pages().0 * PAGE);
    space.map(MapRequest::anonymous(bytes).at(AT).advised(HugeAdvice::Huge)).expect("an area");
    write(&space, AT, 1);
    let found = space.translate(AT).expect("a page that was written is mapped");
    assert_eq!(scene.vm().page(found.pfn).tag().order(), HUGE, "the huge page is there");
    (space, found.pfn)
}

fn huge_scene() -> Scene {
    Scene::new(6, &VmConfig { lru_batch: 2, shards: 1, ..VmConfig::default() }, None)
}

/// Asserts that a pin belongs to the mapped page, and releases it.
fn expect_pinned(scene: &Scene, space: &Space<'_>, addr: VirtAddr, pinned: Option<Pfn>) {
    if let Some(pfn) = pinned {
        let mapped = space.translate(addr).map(|found| found.pfn);
        assert_eq!(mapped, Some(pfn), "the pin differs from the mapping");
        unpin(scene.vm(), pfn);
    }
}

/// A partial unmap splits a huge page while another thread pins another part.
fn pinned_while_split() {
    let scene = huge_scene();
    let (space, _) = with_huge_page(&scene);
    let id = space.id();
    let meeting = Meeting::default();
    let met = meeting.clone();
    let other = scene.start(1, move |vm| {
        met.meet();
        let first = VirtRange { start: AT, end: VirtAddr(AT.0 + PAGE) };
        let _ = open(vm, id).unmap(first).expect("the area is there");
        vm.lru_drain();
    });
    let third = VirtAddr(AT.0 + 2 * PAGE);
    let pinned = pin_fast(&space, third, &meeting, Place::BehindEntry);
    other.join().unwrap();
    expect_pinned(&scene, &space, third, pinned);
    finish(&scene, space);
}

/// A huge page mapped by small entries is split into single pages while another thread pins one of them.
fn pinned_while_parts_are_split() {
    let scene = huge_scene();
    let (space, head) = with_huge_page(&scene);
    let (vm, id) = (scene.vm(), space.id());
    // Pinned, so that the block stays whole when its last part is unmapped.
    let pin = pin_fast(&space, AT, &Meeting::default(), Place::AtTable).expect("the page is there");
    let last = VirtAddr(AT.0 + 3 * PAGE);
    let _ = space.unmap(VirtRange { start: last, end: VirtAddr(last.0 + PAGE) }).expect("the area is there");
    unpin(vm, pin);
    let meeting = Meeting::default();
    let met = meeting.clone();
    let other = scene.start(1, move |vm| {
        met.meet();
        let space = open(vm, id);
        if vm.isolate(Block { pfn: head, order: HUGE }, MigrateMode::Async).is_ok() {
            let reading = space.space().map_lock().read().unwrap();
            space.space().split_parts(vm.page(head), space.space().walk(AT.0).unwrap().table);
            drop(reading);
            vm.put_back(Block { pfn: head, order: Order::ZERO });
        }
        vm.lru_drain();
    });
    let second = VirtAddr(AT.0 + PAGE);
    let pinned = pin_fast(&space, second, &meeting, Place::BehindEntry);
    other.join().unwrap();
    expect_pinned(&scene, &space, second, pinned);
    finish(&scene, space);
}

/// A device is unmapped and removed, and another device takes its place, while another thread pins a page of it.
fn pinned_while_device_is_removed() {
    const SECTIONS: u64 = 5;
    let scene = Scene::with_device(SECTIONS, &VmConfig { lru_batch: 2, shards: 1, ..VmConfig::default() });
    let vm = scene.vm();
    let range = Machine::device(SECTIONS);
    let request = move |order| DeviceRequest {
        range,
        node: NodeId(0),
        order,
        layout: MapLayout::Full,
        placement: MapPlacement::Memory,
    };
    let device = vm.yard().devices().map(request(HUGE)).expect("a device");
    let space = Kept::new(vm.create_space().expect("a space"));
    let bytes = ByteSize(HUGE.pages().0 * PAGE);
    let shows = MapRequest::device(PhysAddr(range.start.0 * PAGE), bytes, PageLevel::Huge);
    let mapped = space.map(shows.at(AT)).expect("an area");
    // Keeps the page table.
    space.map(MapRequest::anonymous(ByteSize(PAGE)).at(mapped.end)).expect("an area");
    space.touch(AT, MemoryAccess::Write).expect("the device is there");
    let id = space.id();
    let (meeting, met) = (Meeting::default(), Meeting::default());
    let (meeting_of_other, met_by_main) = (meeting.clone(), met.clone());
    let other = scene.start(1, move |vm| {
        meeting_of_other.meet();
        let _ = open(vm, id).unmap(mapped).expect("the area is there");
        if vm.yard().devices().unmap(device, Removal::Refuse).is_ok() {
            vm.yard().devices().map(request(Order::ZERO)).expect("a device");
            met.meet();
        }
    });
    let pinned = pin_fast(&space, VirtAddr(AT.0 + PAGE), &meeting, Place::BehindEntry);
    other.join().unwrap();
    let was_removed = met_by_main.0.load(Ordering::Relaxed) > 0;
    if let Some(pinned) = pinned {
        assert_eq!(pinned, Pfn(range.start.0 + 1), "a page of another owner was pinned");
        assert!(!was_removed, "a page of another owner was pinned");
        unpin(vm, pinned);
    }
    let last = vm.yard().devices().list().next().expect("a device").id;
    vm.yard().devices().unmap(last, Removal::Refuse).expect("a page of another owner was pinned");
    finish(&scene, space);
}

#[test]
fn fast_pin_races_removal_of_a_device() {
    explore_to(2, pinned_while_device_is_removed);
}

#[test]
fn detects_missing_recheck_of_device_entries() {
    weakened(Weakness::EntriesNotRechecked, || assert_fails_to(2, pinned_while_device_is_removed, WRONG));
}

#[test]
fn fast_pin_races_unmap() {
    explore_to(2, pinned_while_unmapped);
}

#[test]
fn fast_pin_races_removal_of_tables() {
    explore_to(in_long_runs(2), || pinned_while_tables_are_removed(LaterOwner::Third));
    // Where all CPUs see a store at once, release and acquire suffice.
    weakened(Weakness::StoresSeenEarly, || {
        explore_to(in_long_runs(2), || pinned_while_tables_are_removed(LaterOwner::Remover));
    });
}

#[test]
fn fast_pin_races_split_of_a_huge_page() {
    explore_to(in_long_runs(2), pinned_while_split);
}

#[test]
fn fast_pin_races_split_of_parts() {
    explore_to(in_long_runs(2), pinned_while_parts_are_split);
}

#[test]
fn detects_missing_recheck_of_entries() {
    weakened(Weakness::EntriesNotRechecked, || assert_fails_to(2, pinned_while_unmapped, WRONG));
}

#[test]
fn detects_removal_of_tables_without_count() {
    weakened(Weakness::TablesFreedUncounted, || {
        assert_fails_to(1, || pinned_while_tables_are_removed(LaterOwner::Remover), WRONG);
    });
}

#[test]
fn detects_stores_to_freed_tables_that_are_seen_early() {
    weakened(Weakness::StoresSeenEarly, || {
        assert_fails_to(2, || pinned_while_tables_are_removed(LaterOwner::Third), WRONG);
    });
}

#[test]
fn detects_split_without_marked_entry() {
    weakened(Weakness::SplitUnmarked, || assert_fails_to(2, pinned_while_split, WRONG));
}

#[test]
fn detects_late_change_of_part_entries() {
    weakened(Weakness::PartsChangedLate, || assert_fails_to(2, pinned_while_parts_are_split, WRONG));
}
