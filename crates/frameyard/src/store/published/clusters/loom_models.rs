//! Clusters in transit (`store::published::clusters`): their pages look free but are on no list, while another CPU merges, moves
//! a pageblock's pages to other lists, or quiesces the zone.
//!
//! A batch has two pages, and so has a cluster: one page of each of two pageblocks. A CPU that frees a buddy of one of them
//! therefore meets a page that looks free.
//!
//! The models break the protection of the pages in four ways:
//!
//! - the record of a detached cluster is not marked as held
//! - a record is used again before the pages of its last cluster are cleared
//! - a planned detachment runs without a second check of the list
//! - the zone lock does not exclude

use crate::loom_models::machine::{Flaw, Locks, Machine, Runner, ZONE};
use crate::loom_models::{LIST_DAMAGES, assert_fails_within, explore_within, in_long_runs, policies};
use crate::policy::ZonePolicy;
use crate::store::Quiescence;
use crate::store::published::clusters::record::Record;
use crate::sync::{Weakness, weakened};
use crate::units::{CpuId, Order, PageCount, Pfn};
use crate::watermarks::PcpSizing;

/// The bound of involuntary switches. One switch finds every broken variant.
const SWITCHES: usize = 2;
/// The same, for long executions and for broken variants with many executions.
const FEW_SWITCHES: usize = 1;

/// The failure message for a page that looks free and is on no list although the zone is quiesced.
const ONLY_LOOKS_FREE: &str = "looks free and is on no list";

/// The failure messages for damaged lists.
const ALL_DAMAGES: [&str; 10] = {
    let [a, b, c, d, e, f, g] = LIST_DAMAGES;
    // The last is an assertion of the production code.
    [a, b, c, d, e, f, g, "a free frame", "no cluster is left", " is per-cpu "]
};

/// A machine of one block of four frames, all of which are allocated. Returns them in ascending order.
fn boot(policy: ZonePolicy, locks: Locks) -> (Runner, [Pfn; 4]) {
    let main = Machine::boot(1, PcpSizing::Fixed(8), locks);
    main.yard.set_policy(policy).expect("no other thread changes it");
    let mut pages = [(); 4].map(|()| main.take(Order::ZERO).expect("a free frame"));
    pages.sort();
    (main, pages)
}

/// As [`boot`], then frees the first page of each pageblock into one cluster. Returns the other two pages.
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

/// Asserts that all pages can be allocated, as merged blocks.
fn finish(main: &Runner) {
    main.yard.set_policy(ZonePolicy::Vanilla).expect("no other thread changes it");
    main.finish();
}

/// Frees pages to this CPU's list and drains the list, which merges them.
fn give_and_merge<const COUNT: usize>(runner: &Runner, pages: [Pfn; COUNT]) {
    for pfn in pages {
        runner.give(pfn, Order::ZERO);
    }
    runner.yard.zone(ZONE).drain_cpu(CpuId(1));
}

/// A machine whose pages are all free, in two clusters of one page of each pageblock.
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

/// Moves the free pages of the first pageblock to other lists.
fn isolate(runner: &Runner) -> bool {
    runner.yard.zone_view(ZONE).lock().unwrap().isolate_pageblock(Pfn(0))
}

/// Moves them back.
fn unisolate(runner: &Runner) {
    runner.yard.zone_view(ZONE).lock().unwrap().unisolate_pageblock(Pfn(0));
}

/// CPU 0 detaches both clusters under one hold of the lock, if they are still as planned, while CPU 1 moves the pages of a
/// pageblock to other lists.
fn detach_both_and_move_pageblock() {
    let main = with_two_clusters();
    let refiller = main.start(0, |runner| runner.take_and_give(Order::ZERO));
    let mover = main.start(1, |runner| _ = isolate(runner));
    refiller.join().unwrap();
    mover.join().unwrap();
    unisolate(&main);
    finish(&main);
}

/// CPU 0 detaches the cluster while CPU 1 frees the buddy of one of its pages.
fn detach_and_merge(locks: Locks) {
    let (main, [buddy, other]) = with_cluster(locks);
    let refiller = main.start(0, |runner| runner.take_and_give(Order::ZERO));
    let merger = main.start(1, move |runner| give_and_merge(runner, [buddy]));
    refiller.join().unwrap();
    merger.join().unwrap();
    main.give(other, Order::ZERO);
    finish(&main);
}

/// As [`detach_and_merge`], with the buddies of both pages. The first freed page also gets a record.
fn detach_and_reuse() {
    let (main, buddies) = with_cluster(Locks::SOUND);
    let refiller = main.start(0, |runner| runner.take_and_give(Order::ZERO));
    let merger = main.start(1, move |runner| give_and_merge(runner, buddies));
    refiller.join().unwrap();
    merger.join().unwrap();
    finish(&main);
}

/// CPU 0 detaches the cluster while CPU 1 moves the pages of a pageblock to other lists.
fn detach_and_move_pageblock(locks: Locks) {
    let (main, others) = with_cluster(locks);
    let refiller = main.start(0, |runner| runner.take_and_give(Order::ZERO));
    let mover = main.start(1, |runner| assert!(isolate(runner), "no other thread isolates it"));
    refiller.join().unwrap();
    mover.join().unwrap();
    unisolate(&main);
    others.into_iter().for_each(|pfn| main.give(pfn, Order::ZERO));
    finish(&main);
}

/// A page that looks free and is on no list. Returned instead of a panic: an unwinding thread cannot take locks.
fn only_looks_free(runner: &Runner) -> Option<Pfn> {
    let locked = runner.yard.zone_view(ZONE).lock().unwrap();
    (0..4).map(Pfn).find(|pfn| {
        let tag = locked.page(*pfn).tag();
        tag.seems_free_buddy(Order::ZERO, ZONE) && !locked.is_listed(*pfn, tag)
    })
}

/// CPU 0 detaches the cluster while CPU 1 quiesces the zone.
fn detach_and_quiesce(locks: Locks) {
    let (main, others) = with_cluster(locks);
    let refiller = main.start(0, |runner| runner.take_and_give(Order::ZERO));
    let other = main.start(1, |runner| {
        let quiesced = Quiescence::begin(runner.yard.zone_view(ZONE), crate::zone::Patience::Sleeps);
        let found = quiesced.is_ok().then(|| only_looks_free(runner)).flatten();
        drop(quiesced);
        assert_eq!(found, None, "{ONLY_LOOKS_FREE}");
    });
    refiller.join().unwrap();
    other.join().unwrap();
    others.into_iter().for_each(|pfn| main.give(pfn, Order::ZERO));
    finish(&main);
}

/// CPU 0 drains two pages as one cluster while CPU 1 frees the buddy of one of them.
fn splice_and_merge(locks: Locks) {
    let (main, pages) = boot(ZonePolicy::ClusterBulk, locks);
    main.set_limits(PageCount(2), PageCount(2));
    main.give(pages[0], Order::ZERO);
    main.give(pages[2], Order::ZERO);
    let drainer = main.start(0, move |runner| runner.give(pages[3], Order::ZERO));
    let merger = main.start(1, move |runner| give_and_merge(runner, [pages[1]]));
    drainer.join().unwrap();
    merger.join().unwrap();
    let whole = main.yard.zone(ZONE).mechanism_counts().get("cluster_drains_movable");
    assert_eq!(whole, 1, "the drain splices one cluster");
    finish(&main);
}

/// CPU 0 detaches a cluster, and splices its pages into the list as a new one, while CPU 1 frees the buddy of one of them. On weakly
/// ordered CPUs the other CPU may see the tags of either cluster with the record's name in the other.
fn detach_splice_and_merge() {
    let (main, pages) = boot(ZonePolicy::ClusterBulk, Locks::SOUND);
    main.set_limits(PageCount(0), PageCount(2));
    main.give(pages[0], Order::ZERO);
    main.give(pages[2], Order::ZERO);
    main.set_limits(PageCount(2), PageCount(2));
    let drainer = main.start(0, move |runner| {
        let taken = [(); 2].map(|()| runner.take(Order::ZERO));
        taken.into_iter().flatten().for_each(|pfn| runner.give(pfn, Order::ZERO));
        runner.give(pages[3], Order::ZERO);
    });
    let merger = main.start(1, move |runner| give_and_merge(runner, [pages[1]]));
    drainer.join().unwrap();
    merger.join().unwrap();
    finish(&main);
}

/// CPU 0 drains two pages as one cluster while CPU 1 isolates the pageblock of one of them.
fn splice_and_isolate(locks: Locks) {
    let (main, pages) = boot(ZonePolicy::ClusterBulk, locks);
    main.set_limits(PageCount(2), PageCount(2));
    main.give(pages[0], Order::ZERO);
    main.give(pages[2], Order::ZERO);
    let drainer = main.start(0, move |runner| runner.give(pages[3], Order::ZERO));
    let mover = main.start(1, |runner| assert!(isolate(runner)));
    drainer.join().unwrap();
    mover.join().unwrap();
    main.yard.validate().unwrap_or_else(|problem| panic!("the validator objects: {problem}"));
    unisolate(&main);
    main.give(pages[1], Order::ZERO);
    finish(&main);
}

/// CPU 0 detaches the cluster while CPU 1 changes the policy, which merges all pages and dissolves all clusters.
fn detach_and_change_policy(locks: Locks) {
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
fn merge_skips_pages_of_a_detachment() {
    explore_within(SWITCHES, || detach_and_merge(Locks::SOUND));
}

#[test]
fn record_reuse_waits_for_cleared_pages() {
    explore_within(FEW_SWITCHES, detach_and_reuse);
}

#[test]
fn moving_a_pageblock_skips_pages_of_a_detachment() {
    explore_within(in_long_runs(SWITCHES), || detach_and_move_pageblock(Locks::SOUND));
}

#[test]
fn quiesced_zone_has_all_free_pages_on_lists() {
    explore_within(SWITCHES, || detach_and_quiesce(Locks::SOUND));
}

#[test]
fn merge_skips_pages_of_a_splice() {
    explore_within(SWITCHES, || splice_and_merge(Locks::SOUND));
}

#[test]
fn merge_skips_pages_of_a_detachment_and_of_a_splice_after_it() {
    explore_within(in_long_runs(SWITCHES), detach_splice_and_merge);
}

#[test]
fn splice_skips_isolated_pageblocks() {
    explore_within(SWITCHES, || splice_and_isolate(Locks::SOUND));
}

#[test]
fn detachment_races_policy_change() {
    explore_within(SWITCHES, || detach_and_change_policy(Locks::SOUND));
}

#[test]
fn one_refill_detaches_two_clusters() {
    explore_within(FEW_SWITCHES, || {
        let main = with_two_clusters();
        let refills = || main.yard.zone(ZONE).statistics().refills;
        let before = refills();
        main.take_and_give(Order::ZERO);
        let counted = main.yard.zone(ZONE).mechanism_counts();
        assert_eq!((counted.get("cluster_cuts"), refills() - before), (2, 1), "one refill takes both");
        finish(&main);
    });
    explore_within(FEW_SWITCHES, detach_both_and_move_pageblock);
}

#[test]
fn unchecked_plan_fails() {
    weakened(Weakness::PlansNotRechecked, || {
        assert_fails_within(FEW_SWITCHES, || detach_and_merge(Locks::SOUND), &ALL_DAMAGES);
        assert_fails_within(FEW_SWITCHES, detach_both_and_move_pageblock, &ALL_DAMAGES);
        assert_fails_within(FEW_SWITCHES, || detach_and_quiesce(Locks::SOUND), &[ONLY_LOOKS_FREE]);
    });
}

#[test]
fn detachment_without_held_record_fails() {
    weakened(Weakness::LostStoresOf(Record::HELD.bits()), || {
        assert_fails_within(SWITCHES, || detach_and_merge(Locks::SOUND), &ALL_DAMAGES);
        assert_fails_within(SWITCHES, || detach_and_move_pageblock(Locks::SOUND), &ALL_DAMAGES);
        assert_fails_within(SWITCHES, detach_splice_and_merge, &ALL_DAMAGES);
    });
}

#[test]
fn record_reused_before_its_pages_are_cleared_fails() {
    weakened(Weakness::RelaxedIntersections, || {
        assert_fails_within(FEW_SWITCHES, detach_and_reuse, &ALL_DAMAGES);
    });
}

#[test]
fn quiescence_without_a_wait_for_detachments_fails() {
    weakened(Weakness::RelaxedLoadsOf(size_of::<u32>()), || {
        assert_fails_within(FEW_SWITCHES, || detach_and_quiesce(Locks::SOUND), &[ONLY_LOOKS_FREE]);
    });
}

#[test]
fn clusters_under_a_zone_lock_without_exclusion_fail() {
    let locks = Locks { zone: Some(Flaw::NeverRefused), ..Locks::SOUND };
    assert_fails_within(FEW_SWITCHES, move || detach_and_merge(locks), &ALL_DAMAGES);
    assert_fails_within(FEW_SWITCHES, move || splice_and_isolate(locks), &ALL_DAMAGES);
}

#[test]
fn policy_change_without_list_locks_fails() {
    let locks = Locks { per_cpu: Some(Flaw::NeverRefused), ..Locks::SOUND };
    assert_fails_within(SWITCHES, move || detach_and_change_policy(locks), &ALL_DAMAGES);
}

#[test]
fn frames_in_clusters_can_be_allocated_under_the_next_policy() {
    use ZonePolicy::{ClusterBulk, SkipMerge, Vanilla};
    for (from, to) in [(ClusterBulk, SkipMerge), (Vanilla, ClusterBulk)] {
        explore_within(policies::SWITCHES, move || policies::use_and_change(from, to, Locks::SOUND));
    }
}

#[test]
fn a_refill_of_clusters_ends_before_the_next_policy_begins() {
    use ZonePolicy::{ClusterBulk, Vanilla};
    for (from, to) in [(ClusterBulk, Vanilla), (Vanilla, ClusterBulk)] {
        explore_within(policies::SWITCHES, move || policies::refill_and_change(from, to));
    }
}

#[test]
fn policy_change_to_or_from_clusters_without_list_locks_fails() {
    use ZonePolicy::{ClusterBulk, Vanilla};
    let locks = Locks { per_cpu: Some(Flaw::NeverRefused), ..Locks::SOUND };
    for (from, to) in [(ClusterBulk, Vanilla), (Vanilla, ClusterBulk)] {
        let change = move || policies::use_and_change(from, to, locks);
        assert_fails_within(policies::SWITCHES, change, &policies::ALL_DAMAGES);
    }
}
