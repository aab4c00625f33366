//! Memory regions (`crate::region`): a range is registered or deregistered while another thread unmaps it, moves a page of it, or
//! faults one in.

use std::vec::Vec;

use frameyard::owners::MigrateMode;
use frameyard::sync::{Weakness, weakened};
use frameyard::{PageCount, Pfn};

use super::kept::Kept;
use super::machine::{Broken, ModelPlatform};
use super::migrate::{AT, BOTH, NO_TABLE_LOCK, Space, finish, move_page, target, write, written};
use super::pins::{PAGE, WRONG, free_page, open, take_over};
use super::{Scene, assert_fails_to, explore_to, in_long_runs};
use crate::address::{VirtAddr, VirtRange};
use crate::{MemoryAccess, MemoryRegion, PageRun, VmConfig};

/// The bound of involuntary switches, in long runs. One switch finds every broken variant.
const SWITCHES: usize = 2;

const FIRST: VirtRange = VirtRange { start: AT, end: VirtAddr(AT.0 + PAGE) };

/// The failure message for a region whose runs are not those of the mapping.
const OTHER_PAGES: &str = "the region has other pages than the mapping";

type Region<'y> = Kept<MemoryRegion<'y, ModelPlatform>>;

/// Room for a frame of runs more than the other models need.
fn scene(broken: Broken) -> Scene {
    Scene::new(5, &VmConfig { lru_batch: 2, shards: 1, ..VmConfig::default() }, broken)
}

fn register<'y>(space: &Space<'y>, range: VirtRange) -> Option<Region<'y>> {
    MemoryRegion::register(space, range, MemoryAccess::Write).ok().map(Kept::new)
}

/// The frames of a region, in order.
fn frames(region: &Region<'_>) -> Vec<Pfn> {
    let each = |run: PageRun| (0..run.pages.0).map(move |page| run.first + PageCount(page));
    region.runs().flat_map(each).collect()
}

/// Asserts that a region has the pages that are mapped.
fn assert_same(space: &Space<'_>, region: &Region<'_>) {
    let pages = (0..region.range().size().0 / PAGE).map(|page| VirtAddr(region.range().start.0 + page * PAGE));
    let mapped: Option<Vec<Pfn>> = pages.map(|addr| Some(space.translate(addr)?.pfn)).collect();
    assert_eq!(Some(frames(region)), mapped, "{OTHER_PAGES}");
}

/// A page is registered while another thread unmaps it, and takes its frame if that is free.
fn registered_while_unmapped() {
    let scene = scene(None);
    let (space, pfn) = written(scene.vm());
    let id = space.id();
    let other = scene.start(1, move |vm| {
        let _ = open(vm, id).unmap(FIRST).expect("the area is there");
        take_over(vm, pfn);
    });
    let region = register(&space, FIRST);
    other.join().unwrap();
    free_page(scene.vm(), pfn);
    if let Some(region) = region {
        assert_eq!(frames(&region), [pfn], "a page of another owner was pinned");
    }
    finish(&scene, space);
}

/// A region is deregistered while another thread unmaps its page. The later of the two frees it.
fn deregistered_while_unmapped() {
    let scene = scene(None);
    let (space, _) = written(scene.vm());
    let id = space.id();
    let region = register(&space, FIRST).expect("the page is there");
    let other = scene.start(1, move |vm| {
        let _ = open(vm, id).unmap(FIRST).expect("the area is there");
    });
    drop(region);
    other.join().unwrap();
    finish(&scene, space);
}

/// A page is registered while another thread moves it.
fn registered_while_moved(broken: Broken) {
    let scene = scene(broken);
    let (space, pfn) = written(scene.vm());
    let to = target(scene.vm());
    let other = scene.start(1, move |vm| move_page(vm, pfn, to, MigrateMode::Async));
    let region = register(&space, FIRST);
    other.join().unwrap();
    if let Some(region) = region {
        assert_same(&space, &region);
    }
    finish(&scene, space);
}

/// Two pages are registered while another thread faults the second one in.
fn registered_while_faulted(broken: Broken) {
    let scene = scene(broken);
    let (space, _) = written(scene.vm());
    let id = space.id();
    let other = scene.start(1, move |vm| write(&open(vm, id), FIRST.end, 1));
    let region = register(&space, BOTH).expect("both pages can be there");
    other.join().unwrap();
    assert_same(&space, &region);
    drop(region);
    finish(&scene, space);
}

/// The failure messages for regions with wrong pages or counts.
fn wrong() -> Vec<&'static str> {
    [WRONG, &[OTHER_PAGES, "self.entry(index).is_empty()"]].concat()
}

#[test]
fn registration_races_unmap() {
    explore_to(in_long_runs(SWITCHES), registered_while_unmapped);
}

#[test]
fn deregistration_races_unmap() {
    explore_to(in_long_runs(SWITCHES), deregistered_while_unmapped);
}

#[test]
fn registration_races_migration() {
    explore_to(in_long_runs(SWITCHES), || registered_while_moved(None));
}

#[test]
fn registration_races_fault() {
    explore_to(in_long_runs(SWITCHES), || registered_while_faulted(None));
}

#[test]
fn detects_regions_whose_entries_are_not_rechecked() {
    weakened(Weakness::EntriesNotRechecked, || assert_fails_to(SWITCHES, registered_while_unmapped, &wrong()));
}

#[test]
fn detects_regions_without_table_lock() {
    assert_fails_to(SWITCHES, || registered_while_faulted(NO_TABLE_LOCK), &wrong());
}

#[test]
fn detects_references_of_regions_that_are_not_atomic() {
    weakened(Weakness::SplitCompareExchange, || {
        assert_fails_to(SWITCHES, deregistered_while_unmapped, &wrong());
    });
}
