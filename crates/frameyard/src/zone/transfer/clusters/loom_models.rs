//! Clusters in transit (`zone::transfer::clusters`): pages that look free and are not, while another CPU merges, moves a
//! pageblock's pages to other lists, or quiesces the zone.
//!
//! A batch is two pages, and so is a cluster. It has one page of each of two pageblocks, so a CPU that holds their buddies meets
//! pages that look free. The models break the protection of its pages in four ways: its record is not held, the record's next use
//! does not wait for the pages to be cleared, a planned detachment is carried out whatever the list looks like by then, or the
//! zone lock does not exclude.

use crate::loom_models::machine::{Flaw, Locks, Machine, Runner, ZONE};
use crate::loom_models::{DAMAGES, assert_fails_within, explore_within, policies};
use crate::policy::ZonePolicy;
use crate::sync::{Weakness, weakened};
use crate::units::{CpuId, Order, PageCount, Pfn};
use crate::watermarks::PcpSizing;
use crate::zone::transfer::Quiescence;
use crate::zone::transfer::clusters::record::Record;

/// How many involuntary switches an execution has. What is broken here is found with one.
const SWITCHES: usize = 2;
/// The same, where executions are long or what is broken makes many of them.
const FEW_SWITCHES: usize = 1;

/// The failure of a page that looks free and is on no list although nothing is in progress.
const ONLY_LOOKS_FREE: &str = "looks free and is on no list";

/// What damage to lists comes to.
const ALL_DAMAGES: [&str; 10] = [
    DAMAGES[0],
    DAMAGES[1],
    DAMAGES[2],
    DAMAGES[3],
    "frames were lost",
    "what was freed has merged",
    "a free frame",
    "no cluster is left",
    // Checks of the code itself.
    " is buddy-free ",
    " is per-cpu ",
];

/// A machine of one block of four frames, all of which are taken. In ascending order.
fn boot(policy: ZonePolicy, locks: Locks) -> (Runner, [Pfn; 4]) {
    let main = Machine::boot(1, PcpSizing::Fixed(8), locks);
    main.yard.set_policy(policy).expect("nobody else changes it");
    let mut pages = [(); 4].map(|()| main.take(Order::ZERO).expect("a free frame"));
    pages.sort();
    (main, pages)
}

/// The same, and the first page of each pageblock is free, both in one cluster; the other two.
fn with_cluster(locks: Locks) -> (Runner, [Pfn; 2]) {
    let (main, pages) = boot(ZonePolicy::Cluster, locks);
    main.set_limits(PageCount(0), PageCount(2));
    main.give(pages[0], Order::ZERO);
    main.give(pages[2], Order::ZERO);
    main.set_limits(PageCount(8), PageCount(2));
    let counted = main.yard.zone(ZONE).mechanism_counts();
    assert_eq!((counted.get("clusters_in_use"), counted.get("unmerged_pages")), (1, 2), "two pages in one cluster");
    (main, [pages[1], pages[3]])
}

/// Demands that everything can be had, merged.
fn finish(main: &Runner) {
    main.yard.set_policy(ZonePolicy::Vanilla).expect("nobody else changes it");
    main.finish();
}

/// Frees pages to this CPU's list, and empties that: they are merged.
fn give_and_merge<const COUNT: usize>(runner: &Runner, pages: [Pfn; COUNT]) {
    for pfn in pages {
        runner.give(pfn, Order::ZERO);
    }
    runner.yard.zone(ZONE).drain_cpu(CpuId(1));
}

/// All pages are free, in two clusters of a page of each pageblock.
fn with_two_clusters() -> Runner {
    let (main, pages) = boot(ZonePolicy::ClusterBulk, Locks::SOUND);
    main.set_limits(PageCount(0), PageCount(2));
    for at in [0, 2, 1, 3] {
        main.give(pages[at], Order::ZERO);
    }
    main.set_limits(PageCount(8), PageCount(2));
    let counted = main.yard.zone(ZONE).mechanism_counts();
    assert_eq!((counted.get("clusters_in_use"), counted.get("unmerged_pages")), (2, 4), "four pages in two clusters");
    main
}

/// CPU 0 cuts both clusters off in one hold, if they stand as planned, while CPU 1 moves the pages of a pageblock to other
/// lists, and back.
fn cut_both_and_move_pageblock() {
    let main = with_two_clusters();
    let refiller = main.start(0, |runner| runner.take_and_give(Order::ZERO));
    let mover = main.start(1, |runner| {
        let view = runner.yard.zone_view(ZONE);
        if view.lock().isolate_pageblock(Pfn(0)) {
            view.lock().unisolate_pageblock(Pfn(0));
        }
    });
    refiller.join().unwrap();
    mover.join().unwrap();
    finish(&main);
}

/// CPU 0 cuts the cluster off while CPU 1 frees the buddy of one of its pages.
fn cut_and_merge(locks: Locks) {
    let (main, [buddy, other]) = with_cluster(locks);
    let refiller = main.start(0, |runner| runner.take_and_give(Order::ZERO));
    let merger = main.start(1, move |runner| give_and_merge(runner, [buddy]));
    refiller.join().unwrap();
    merger.join().unwrap();
    main.give(other, Order::ZERO);
    finish(&main);
}

/// As before, with the buddies of both: what is freed first gets a record, too.
fn cut_and_reuse() {
    let (main, buddies) = with_cluster(Locks::SOUND);
    let refiller = main.start(0, |runner| runner.take_and_give(Order::ZERO));
    let merger = main.start(1, move |runner| give_and_merge(runner, buddies));
    refiller.join().unwrap();
    merger.join().unwrap();
    finish(&main);
}

/// CPU 0 cuts the cluster off while CPU 1 moves the pages of a pageblock to other lists, and back.
fn cut_and_move_pageblock(locks: Locks) {
    let (main, others) = with_cluster(locks);
    let refiller = main.start(0, |runner| runner.take_and_give(Order::ZERO));
    let mover = main.start(1, |runner| {
        let view = runner.yard.zone_view(ZONE);
        assert!(view.lock().isolate_pageblock(Pfn(0)), "nobody else isolates it");
        view.lock().unisolate_pageblock(Pfn(0));
    });
    refiller.join().unwrap();
    mover.join().unwrap();
    others.into_iter().for_each(|pfn| main.give(pfn, Order::ZERO));
    finish(&main);
}

/// A page that looks free and is on no list. Returned instead of a panic: an unwinding thread cannot take locks.
fn only_looks_free(runner: &Runner) -> Option<Pfn> {
    let locked = runner.yard.zone_view(ZONE).lock();
    (0..4).map(Pfn).find(|pfn| {
        let tag = locked.page(*pfn).tag();
        tag.seems_free_buddy(Order::ZERO, ZONE) && !locked.is_listed(*pfn, tag)
    })
}

/// CPU 0 cuts the cluster off while CPU 1 suspends the zone.
fn cut_and_suspend(locks: Locks) {
    let (main, others) = with_cluster(locks);
    let refiller = main.start(0, |runner| runner.take_and_give(Order::ZERO));
    let other = main.start(1, |runner| {
        let suspended = Quiescence::begin(runner.yard.zone_view(ZONE));
        let found = suspended.is_ok().then(|| only_looks_free(runner)).flatten();
        drop(suspended);
        assert_eq!(found, None, "{ONLY_LOOKS_FREE}");
    });
    refiller.join().unwrap();
    other.join().unwrap();
    others.into_iter().for_each(|pfn| main.give(pfn, Order::ZERO));
    finish(&main);
}

/// CPU 0 drains two pages as one cluster while CPU 1 frees the buddy of one of them.
fn enter_and_merge(locks: Locks) {
    let (main, pages) = boot(ZonePolicy::ClusterBulk, locks);
    main.set_limits(PageCount(2), PageCount(2));
    main.give(pages[0], Order::ZERO);
    main.give(pages[2], Order::ZERO);
    let drainer = main.start(0, move |runner| runner.give(pages[3], Order::ZERO));
    let merger = main.start(1, move |runner| give_and_merge(runner, [pages[1]]));
    drainer.join().unwrap();
    merger.join().unwrap();
    let whole = main.yard.zone(ZONE).mechanism_counts().get("cluster_drains_movable");
    assert_eq!(whole, 1, "the drain enters as one cluster");
    finish(&main);
}

/// CPU 0 drains two pages as one cluster while CPU 1 isolates the pageblock of one of them.
fn enter_and_isolate(locks: Locks) {
    let (main, pages) = boot(ZonePolicy::ClusterBulk, locks);
    main.set_limits(PageCount(2), PageCount(2));
    main.give(pages[0], Order::ZERO);
    main.give(pages[2], Order::ZERO);
    let drainer = main.start(0, move |runner| runner.give(pages[3], Order::ZERO));
    let mover = main.start(1, |runner| assert!(runner.yard.zone_view(ZONE).lock().isolate_pageblock(Pfn(0))));
    drainer.join().unwrap();
    mover.join().unwrap();
    main.yard.validate().unwrap_or_else(|problem| panic!("the validator objects: {problem}"));
    main.yard.zone_view(ZONE).lock().unisolate_pageblock(Pfn(0));
    main.give(pages[1], Order::ZERO);
    finish(&main);
}

/// CPU 0 cuts the cluster off while CPU 1 changes the policy, which merges all and ends all clusters.
fn cut_and_change_policy(locks: Locks) {
    let (main, others) = with_cluster(locks);
    let refiller = main.start(0, |runner| runner.take_and_give(Order::ZERO));
    let changer = main.start(1, |runner| runner.yard.set_policy(ZonePolicy::Vanilla).unwrap());
    refiller.join().unwrap();
    changer.join().unwrap();
    assert_eq!(main.yard.zone(ZONE).mechanism_counts().get("clusters_in_use"), 0, "no cluster is left");
    others.into_iter().for_each(|pfn| main.give(pfn, Order::ZERO));
    finish(&main);
}

#[test]
fn no_page_of_a_cut_is_merged_with() {
    explore_within(SWITCHES, || cut_and_merge(Locks::SOUND));
}

#[test]
fn a_record_is_used_again_when_its_pages_are_cleared() {
    explore_within(FEW_SWITCHES, cut_and_reuse);
}

#[test]
fn no_page_of_a_cut_is_moved_with_its_pageblock() {
    explore_within(SWITCHES, || cut_and_move_pageblock(Locks::SOUND));
}

#[test]
fn free_pages_are_on_free_lists_while_the_zone_is_quiesced() {
    explore_within(SWITCHES, || cut_and_suspend(Locks::SOUND));
}

#[test]
fn no_page_that_enters_is_merged_with_before_it_is_there() {
    explore_within(SWITCHES, || enter_and_merge(Locks::SOUND));
}

#[test]
fn a_cluster_enters_no_isolated_pageblock() {
    explore_within(SWITCHES, || enter_and_isolate(Locks::SOUND));
}

#[test]
fn a_cut_in_progress_survives_a_change_of_the_policy() {
    explore_within(SWITCHES, || cut_and_change_policy(Locks::SOUND));
}

#[test]
fn two_clusters_cut_at_once_stand_as_planned() {
    explore_within(FEW_SWITCHES, || {
        let main = with_two_clusters();
        let refills = || main.yard.zone(ZONE).statistics().refills;
        let before = refills();
        main.take_and_give(Order::ZERO);
        let counted = main.yard.zone(ZONE).mechanism_counts();
        assert_eq!((counted.get("cluster_cuts"), refills() - before), (2, 1), "one refill takes both");
        finish(&main);
    });
    explore_within(FEW_SWITCHES, cut_both_and_move_pageblock);
}

#[test]
fn a_plan_executed_unchecked_is_detected() {
    weakened(Weakness::PlansNotRechecked, || {
        assert_fails_within(FEW_SWITCHES, || cut_and_merge(Locks::SOUND), &ALL_DAMAGES);
        assert_fails_within(FEW_SWITCHES, cut_both_and_move_pageblock, &ALL_DAMAGES);
        assert_fails_within(FEW_SWITCHES, || cut_and_suspend(Locks::SOUND), &[ONLY_LOOKS_FREE]);
    });
}

#[test]
fn a_cut_whose_record_is_not_held_is_found() {
    weakened(Weakness::LostStoresOf(Record::HELD.bits()), || {
        assert_fails_within(SWITCHES, || cut_and_merge(Locks::SOUND), &ALL_DAMAGES);
        assert_fails_within(SWITCHES, || cut_and_move_pageblock(Locks::SOUND), &ALL_DAMAGES);
    });
}

#[test]
fn a_record_used_again_before_its_pages_are_cleared_is_found() {
    weakened(Weakness::RelaxedIntersections, || {
        assert_fails_within(FEW_SWITCHES, cut_and_reuse, &ALL_DAMAGES);
    });
}

#[test]
fn a_quiescence_that_does_not_wait_for_detaches_is_detected() {
    weakened(Weakness::RelaxedLoadsOf(size_of::<u32>()), || {
        assert_fails_within(FEW_SWITCHES, || cut_and_suspend(Locks::SOUND), &[ONLY_LOOKS_FREE]);
    });
}

#[test]
fn a_zone_lock_that_does_not_exclude_is_found_by_clusters() {
    let locks = Locks { zone: Some(Flaw::NeverRefused), ..Locks::SOUND };
    assert_fails_within(FEW_SWITCHES, move || cut_and_merge(locks), &ALL_DAMAGES);
    assert_fails_within(FEW_SWITCHES, move || enter_and_isolate(locks), &ALL_DAMAGES);
}

#[test]
fn a_list_of_a_cpu_that_is_not_locked_is_found_while_the_policy_changes() {
    let locks = Locks { per_cpu: Some(Flaw::NeverRefused), ..Locks::SOUND };
    assert_fails_within(SWITCHES, move || cut_and_change_policy(locks), &ALL_DAMAGES);
}

#[test]
fn frames_in_clusters_are_had_under_the_next_policy() {
    use ZonePolicy::{ClusterBulk, Depot, Vanilla};
    for (from, to) in [(ClusterBulk, Depot), (Vanilla, ClusterBulk)] {
        explore_within(policies::SWITCHES, move || policies::use_and_change(from, to, Locks::SOUND));
    }
}

#[test]
fn a_refill_of_clusters_ends_before_the_next_policy_begins() {
    use ZonePolicy::{ClusterBulk, Depot, OwnedBlocks};
    for (from, to) in [(ClusterBulk, OwnedBlocks), (Depot, ClusterBulk)] {
        explore_within(policies::SWITCHES, move || policies::refill_and_change(from, to));
    }
}

#[test]
fn a_policy_change_to_or_from_clusters_that_does_not_hold_the_locks_of_lists_is_found() {
    use ZonePolicy::{ClusterBulk, Depot, OwnedBlocks};
    let locks = Locks { per_cpu: Some(Flaw::NeverRefused), ..Locks::SOUND };
    for (from, to) in [(ClusterBulk, Depot), (OwnedBlocks, ClusterBulk)] {
        let change = move || policies::use_and_change(from, to, locks);
        assert_fails_within(policies::SWITCHES, change, &policies::ALL_DAMAGES);
    }
}
