//! Policies that put merging off and move clusters of pages: what stands on the lists, and what is counted.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier};
use std::thread;

use crate::fixture::{Fixture, Frames, Moment, order};
use crate::random_actions::{long_lives_under, random_actions_with_lists};
use crate::stress::live_under;
use frameyard::AllocError;
use frameyard::boot::ZoneLimits;
use frameyard::compaction::{CompactEffort, CompactRequest, CompactResult};
use frameyard::owners::Owners;
use frameyard::page::{FrameState, PAGE_WORDS};
use frameyard::platform::Access;
use frameyard::policy::ZonePolicy;
use frameyard::stats::MechanismCounts;
use frameyard::units::ZoneKind;
use frameyard::validate::ValidateError;
use frameyard::watermarks::{PcpSizing, WatermarkOptions};
use frameyard::{CpuId, Gfp, MemoryTable, MigrateType, NodeId, Order, PageCount, Pfn, PfnRange, YardConfig, ZoneId};

pub(crate) const ZONE: ZoneId = ZoneId::new(NodeId(0), ZoneKind::Normal);
pub(crate) const FIRST: Pfn = Pfn(0x1000);
pub(crate) const PAGES: u64 = 8192;

/// A yard whose lists hold `high` frames, so that a quarter of that is a batch.
pub(crate) fn yard(policy: ZonePolicy, high: u32) -> Fixture {
    let memory = [(PfnRange::new(FIRST, PageCount(PAGES)), NodeId(0))];
    let cpus = [NodeId(0); 2];
    let config = YardConfig {
        zone_limits: ZoneLimits::NONE,
        policy,
        // So that all memory can be taken.
        watermarks: WatermarkOptions { min_free_kbytes: Some(0), ..WatermarkOptions::default() },
        pcp_sizing: PcpSizing::Fixed(high),
        ..YardConfig::new(&cpus)
    };
    crate::fixture::run_on(0);
    Fixture::new(&MemoryTable { memory: &memory, ..MemoryTable::default() }, &config, Frames::Phantom)
}

fn take(yard: &Fixture, count: usize) -> Vec<Pfn> {
    (0..count).map(|_| yard.alloc(Order::ZERO, Gfp::HIGHUSER_MOVABLE).unwrap()).collect()
}

pub(crate) fn give(yard: &Fixture, frames: impl IntoIterator<Item = Pfn>) {
    frames.into_iter().for_each(|pfn| yard.free(pfn, Order::ZERO).unwrap());
}

/// All pages there are, ascending.
pub(crate) fn take_all(yard: &Fixture) -> Vec<Pfn> {
    let one = || yard.alloc(Order::ZERO, Gfp::HIGHUSER_MOVABLE | Gfp::NOWARN).ok();
    let mut pages: Vec<Pfn> = core::iter::from_fn(one).collect();
    pages.sort();
    pages
}

fn counted(yard: &Fixture) -> MechanismCounts {
    yard.zone(ZONE).mechanism_counts()
}

fn free_blocks(yard: &Fixture, at: u8) -> u64 {
    yard.zone(ZONE).free_blocks(order(at), MigrateType::Movable)
}

/// Takes pages and frees all of them, most of them over the limit of the list.
fn overflow(yard: &Fixture, count: usize) {
    let frames = take(yard, count);
    give(yard, frames);
    yard.validate().unwrap();
}

#[test]
fn pages_that_overflow_a_list_are_not_merged_until_compaction_meets_them() {
    let yard = yard(ZonePolicy::SkipMerge, 64);
    let whole = free_blocks(&yard, 9);
    overflow(&yard, 4096);
    let before = counted(&yard);
    assert!(before.get("skipped_merges") >= 4000 && before.get("later_merges") == 0, "{before:?}");
    assert_eq!(before.get("unmerged_pages"), before.get("skipped_merges"));
    assert!(free_blocks(&yard, 0) >= before.get("unmerged_pages"));
    yard.compaction().zone(ZONE, CompactRequest::WHOLE_ZONE, &Owners::NONE);
    yard.validate().unwrap();
    let after = counted(&yard);
    // All but what the free scanner's pageblock holds, and pages whose buddies are on lists.
    assert!(
        after.get("later_merges") >= 1500 && after.get("unmerged_pages") < before.get("unmerged_pages") / 4,
        "{after:?}"
    );
    assert!(free_blocks(&yard, 9) + 2 >= whole);
}

#[test]
fn a_request_for_a_large_block_has_pages_merged_rather_than_fail() {
    let yard = yard(ZonePolicy::SkipMerge, 64);
    let pages = take_all(&yard);
    give(&yard, pages);
    assert_eq!(free_blocks(&yard, 9), 0);
    let request = CompactRequest::for_order(order(9), CompactEffort::Sync);
    assert_eq!(yard.compaction().zone(ZONE, request, &Owners::NONE).result, CompactResult::Success);
    let pfn = yard.alloc(order(9), Gfp::HIGHUSER_MOVABLE).unwrap();
    yard.free(pfn, order(9)).unwrap();
    yard.validate().unwrap();
}

#[test]
fn a_large_request_that_must_not_wait_has_pages_merged_rather_than_fail() {
    for policy in [ZonePolicy::SkipMerge, ZonePolicy::Cluster, ZonePolicy::ClusterBulk] {
        for gfp in [Gfp::NOWAIT, Gfp::ATOMIC, Gfp::MOVABLE, Gfp::KERNEL | Gfp::NORETRY] {
            let yard = yard(policy, 64);
            let pages = take_all(&yard);
            give(&yard, pages);
            assert_eq!(free_blocks(&yard, 9), 0);
            assert!(counted(&yard).get("unmerged_pages") > 6000, "{policy}: {:?}", counted(&yard));
            let pfn = yard.alloc(order(8), gfp).unwrap_or_else(|problem| panic!("{policy}, {gfp}: {problem}"));
            yard.free(pfn, order(8)).unwrap();
            yard.validate().unwrap();
        }
    }
}

#[test]
fn little_free_memory_is_compacted_where_all_of_it_could_merge() {
    let yard = yard(ZonePolicy::SkipMerge, 16);
    let pages = take_all(&yard);
    let (some, others): (Vec<Pfn>, Vec<Pfn>) = pages.iter().partition(|pfn| (0x1200..0x1400).contains(&pfn.0));
    give(&yard, some);
    assert!(counted(&yard).get("unmerged_pages") >= 490, "{:?}", counted(&yard));
    // Too little to move anything to, were that needed.
    let request = CompactRequest::for_order(order(8), CompactEffort::Sync);
    assert_eq!(yard.compaction().zone(ZONE, request, &Owners::NONE).result, CompactResult::Success);
    assert!(counted(&yard).get("later_merges") > 0 && free_blocks(&yard, 8) > 0);
    give(&yard, others);
}

#[test]
fn frees_merge_again_when_compaction_has_failed() {
    let yard = yard(ZonePolicy::SkipMerge, 64);
    let mut pages: Vec<Pfn> =
        core::iter::from_fn(|| yard.alloc(Order::ZERO, Gfp::MOVABLE | Gfp::NOWARN).ok()).collect();
    pages.sort();
    // Enough is free, and none of it can ever be a large block: every other page stays.
    let (free, kept): (Vec<Pfn>, Vec<Pfn>) = pages.iter().partition(|pfn| pfn.0 % 2 == 0);
    give(&yard, free);
    yard.drain_all();
    let request = CompactRequest::for_order(order(4), CompactEffort::Sync);
    assert_eq!(yard.compaction().zone(ZONE, request, &Owners::NONE).result, CompactResult::Complete);
    assert_eq!(yard.compaction().zone(ZONE, request, &Owners::NONE).result, CompactResult::Deferred);
    assert!(yard.zone(ZONE).compaction().considered > 0);
    let before = counted(&yard).get("skipped_merges");
    give(&yard, kept);
    assert_eq!(counted(&yard).get("skipped_merges"), before, "merging is missed, so it is not skipped");
    yard.validate().unwrap();
}

#[test]
fn a_refill_takes_a_whole_cluster_in_one_step() {
    let yard = yard(ZonePolicy::Cluster, 256);
    assert_eq!((counted(&yard).get("cluster_pages_max"), counted(&yard).get("clusters_max")), (64, PAGES / 64));
    overflow(&yard, 4096);
    let before = counted(&yard);
    assert!(before.get("clusters_in_use") >= 55 && before.get("clusters_used_up") == 0, "{before:?}");
    let refills = yard.zone(ZONE).statistics().refills;
    let frames = take(&yard, 1024);
    let (after, refilled) = (counted(&yard), yard.zone(ZONE).statistics().refills - refills);
    assert!(
        after.get("cluster_cuts") - before.get("cluster_cuts") >= refilled && refilled >= 12,
        "{refilled} refills, {after:?}"
    );
    assert!(
        (after.get("cluster_cut_pages") - before.get("cluster_cut_pages"))
            / (after.get("cluster_cuts") - before.get("cluster_cuts"))
            >= 50,
        "{after:?}"
    );
    give(&yard, frames);
    yard.validate().unwrap();
}

#[test]
fn drains_of_a_batch_enter_as_one_cluster() {
    let yard = yard(ZonePolicy::ClusterBulk, 256);
    overflow(&yard, 4096);
    let [drains, full, spliced] = ["overflow_drains_movable", "full_batch_drains_movable", "cluster_drains_movable"]
        .map(|name| counted(&yard).get(name));
    assert!(drains >= 55 && (full, spliced) == (drains, drains), "{drains} drains, {full} full, {spliced} spliced");
    let frames = take(&yard, 2048);
    yard.validate().unwrap();
    give(&yard, frames);
}

#[test]
fn nothing_skips_merging_while_a_list_is_emptied() {
    let yard = yard(ZonePolicy::ClusterBulk, 4096);
    let blocks = free_blocks(&yard, 10);
    let frames = take(&yard, 1000);
    give(&yard, frames);
    yard.zone(ZONE).drain_cpu(CpuId(0));
    assert_eq!((counted(&yard).get("skipped_merges"), free_blocks(&yard, 10)), (0, blocks));
}

#[test]
fn pages_stand_alone_when_all_clusters_are_in_use() {
    let yard = yard(ZonePolicy::Cluster, 12);
    let clusters = counted(&yard).get("clusters_max");
    assert_eq!((clusters, counted(&yard).get("cluster_pages_max")), (PAGES / 3, 4));
    let pages = take_all(&yard);
    let (mut free, kept): (Vec<Pfn>, Vec<Pfn>) = pages.iter().partition(|pfn| pfn.0 % 2 == 0);
    give(&yard, free.iter().copied());
    // One page of each cluster stays, and the rest make new clusters.
    for _ in 0..6 {
        let others = free.iter().enumerate().filter(|(at, _)| at % 4 > 0);
        free = others.map(|(_, pfn)| *pfn).collect();
        free.iter().for_each(|pfn| _ = yard.request(PfnRange::new(*pfn, PageCount(1)), Gfp::MOVABLE).range().unwrap());
        give(&yard, free.iter().copied());
        yard.validate().unwrap();
        assert!(counted(&yard).get("clusters_in_use") <= clusters);
    }
    assert!(counted(&yard).get("clusters_used_up") > 0, "{:?}", counted(&yard));
    // Pages without a cluster are taken and joined like all pages, at the head of the list and, when they are isolated, at its tail.
    let pageblock = PfnRange::new(FIRST + PageCount(512), PageCount(512));
    let blocked = yard.request(pageblock, Gfp::MOVABLE).owners(&Owners::NONE).range();
    assert!(blocked.is_err(), "every other page is held");
    yard.validate().unwrap();
    let again = take_all(&yard);
    assert_eq!(again.len() + kept.len(), pages.len());
    yard.validate().unwrap();
    give(&yard, again.into_iter().chain(kept));
    assert_eq!(yard.stats().free_pages(), yard.stats().managed_pages());
}

#[test]
fn zones_whose_batch_is_a_page_have_no_clusters() {
    let yard = yard(ZonePolicy::ClusterBulk, 4);
    assert_eq!((counted(&yard).get("clusters_max"), counted(&yard).get("cluster_pages_max")), (0, 0));
    overflow(&yard, 2000);
    let counted = counted(&yard);
    assert!(
        counted.get("skipped_merges") > 0
            && (counted.get("clusters_in_use"), counted.get("clusters_used_up"), counted.get("cluster_cuts"))
                == (0, 0, 0),
        "{counted:?}"
    );
}

#[test]
fn another_policy_finds_everything_merged_and_no_cluster() {
    for policy in [ZonePolicy::SkipMerge, ZonePolicy::Cluster, ZonePolicy::ClusterBulk] {
        let yard = yard(policy, 64);
        let blocks = free_blocks(&yard, 10);
        overflow(&yard, 5000);
        assert!(counted(&yard).get("unmerged_pages") > 0);
        yard.set_policy(ZonePolicy::Vanilla).unwrap();
        yard.validate().unwrap();
        assert_eq!((counted(&yard).get("unmerged_pages"), counted(&yard).get("clusters_in_use")), (0, 0), "{policy}");
        assert_eq!(free_blocks(&yard, 10), blocks, "{policy}");
    }
}

#[test]
fn from_clusters_to_unmerged_pages_and_back_nothing_is_lost() {
    let yard = yard(ZonePolicy::Cluster, 64);
    for policy in [ZonePolicy::SkipMerge, ZonePolicy::ClusterBulk, ZonePolicy::SkipMerge, ZonePolicy::Cluster] {
        overflow(&yard, 3000);
        let frames = take(&yard, 700);
        yard.set_policy(policy).unwrap();
        yard.validate().unwrap();
        assert!(policy != ZonePolicy::SkipMerge || counted(&yard).get("clusters_in_use") == 0, "{policy}");
        give(&yard, frames);
    }
}

#[test]
fn a_range_is_taken_out_of_clusters() {
    let yard = yard(ZonePolicy::ClusterBulk, 256);
    overflow(&yard, 6000);
    let range = PfnRange::new(FIRST + PageCount(700), PageCount(900));
    for _ in 0..2 {
        let taken = yard.request(range, Gfp::MOVABLE).owners(&Owners::NONE).range().unwrap();
        yard.validate().unwrap();
        yard.free_range(taken).unwrap();
    }
    assert_eq!(counted(&yard).get("cut_stalls"), 0);
}

/// Runs `meanwhile` while a thread of CPU 1 is stopped between granularity a cluster off and clearing its pages.
pub(crate) fn with_a_cut_in_progress(yard: &Fixture, meanwhile: impl FnOnce()) {
    thread_local! {
        static CUTS: Cell<bool> = const { Cell::new(false) };
    }
    // One cluster, and nothing behind it: so no page is written before the lock is given back.
    overflow(yard, 320);
    assert_eq!((counted(yard).get("clusters_in_use"), counted(yard).get("unmerged_pages")), (1, 64));
    let (stopped, goes_on) = (Arc::new(Barrier::new(2)), Arc::new(Barrier::new(2)));
    let was_there = Arc::new(AtomicBool::new(false));
    yard.watch().spy_with({
        let (stopped, goes_on) = (Arc::clone(&stopped), Arc::clone(&goes_on));
        move |moment| {
            let first_write = matches!(moment, Moment::Touch(_, Access::Write)) && CUTS.get();
            if first_write && !was_there.swap(true, Ordering::Relaxed) {
                stopped.wait();
                goes_on.wait();
            }
        }
    });
    thread::scope(|scope| {
        scope.spawn(|| {
            crate::fixture::run_on(1);
            CUTS.set(true);
            let frames = take(yard, 1);
            give(yard, frames);
        });
        stopped.wait();
        meanwhile();
        goes_on.wait();
    });
    yard.watch().calm();
    yard.validate().unwrap();
}

#[test]
fn a_wait_for_a_thread_stopped_in_a_detachment_ends_without_loss() {
    let yard = yard(ZonePolicy::Cluster, 256);
    let range = PfnRange::new(FIRST + PageCount(1024), PageCount(64));
    with_a_cut_in_progress(&yard, || {
        let outcome = yard.compaction().zone(ZONE, CompactRequest::WHOLE_ZONE, &Owners::NONE);
        assert_eq!(outcome.result, CompactResult::Stalled);
        let refused = yard.request(range, Gfp::HIGHUSER_MOVABLE).owners(&Owners::NONE).range();
        assert_eq!(refused, Err(AllocError::Stalled(ZONE)));
        assert_eq!((counted(&yard).get("cut_waits"), counted(&yard).get("cut_stalls")), (2, 2));
        // Everybody else goes on.
        let pfn = yard.alloc(order(9), Gfp::MOVABLE).unwrap();
        yard.free(pfn, order(9)).unwrap();
    });
    let taken = yard.request(range, Gfp::MOVABLE).owners(&Owners::NONE).range().unwrap();
    yard.free_range(taken).unwrap();
    assert_eq!(counted(&yard).get("cut_stalls"), 2);
}

/// A word of a page structure of the yard, to be damaged.
fn page_word(yard: &Fixture, pfn: Pfn, name: &str) -> *mut u64 {
    let word = PAGE_WORDS.iter().find(|word| word.name == name).expect("a word of that name");
    // The map begins where the first section does, at frame 0.
    let offset = pfn.0 as usize * 64 + word.offset;
    // SAFETY: the page of a frame of the yard lies in its map.
    unsafe { yard.map.raw().base.as_ptr().add(offset).cast() }
}

#[test]
fn broken_clusters_and_marks_are_found() {
    type Expected = fn(&ValidateError) -> bool;
    let unmerged =
        |error: &ValidateError| matches!(error, ValidateError::Count { what, .. } if what.contains("skipped"));
    let damages: [(&str, &str, u64, Expected); 4] = [
        ("a page that names another cluster", "mechanism", 3, |error| {
            matches!(error, ValidateError::BrokenMechanism { .. })
        }),
        ("a page that names none", "mechanism", 1, |error| matches!(error, ValidateError::BrokenMechanism { .. })),
        ("a page that says it is in none", "tag", 1 << 27, |error| matches!(error, ValidateError::WordsNotZero(..))),
        ("a page that lost its mark", "tag", 1 << 26, unmerged),
    ];
    for (what, word, bits, expected) in damages {
        let yard = yard(ZonePolicy::Cluster, 256);
        overflow(&yard, 320);
        let is_free = |pfn: &Pfn| {
            let info = yard.stats().frame(*pfn).unwrap();
            (info.state, info.order) == (FrameState::BuddyFree, Order::ZERO)
        };
        let pages: Vec<Pfn> = (0..PAGES).map(|at| FIRST + PageCount(at)).filter(is_free).collect();
        assert_eq!(pages.len(), 64);
        let place = page_word(&yard, pages[20], word);
        // SAFETY: no other thread uses the yard, whose words are plain memory.
        let flip = || unsafe { place.write(place.read() ^ bits) };
        flip();
        let found = yard.validate().expect_err(what);
        assert!(expected(&found), "{what}: {found}");
        flip();
    }
}

#[test]
fn only_single_free_pages_may_be_marked() {
    let yard = yard(ZonePolicy::Cluster, 256);
    let pair = yard.alloc(order(1), Gfp::MOVABLE).unwrap();
    let place = page_word(&yard, pair, "tag");
    // SAFETY: no other thread uses the yard, whose words are plain memory.
    let flip = || unsafe { place.write(place.read() ^ (1 << 26)) };
    flip();
    assert_eq!(yard.validate(), Err(ValidateError::BadTag(pair)));
    flip();
    yard.free(pair, order(1)).unwrap();
}

#[test]
fn random_actions_with_clusters() {
    random_actions_with_lists(ZonePolicy::Cluster);
}

#[test]
fn random_actions_with_drains_as_clusters() {
    random_actions_with_lists(ZonePolicy::ClusterBulk);
}

#[test]
fn clusters_keep_their_books_over_long_lives() {
    long_lives_under(ZonePolicy::ClusterBulk, Some(256));
}

#[test]
fn clusters_and_skipped_merges_lose_nothing_while_policies_change() {
    use ZonePolicy::{Cluster, ClusterBulk, SkipMerge, Vanilla};
    live_under(&[ClusterBulk, SkipMerge, Cluster, ClusterBulk, Vanilla, ClusterBulk], 15_000);
    live_under(&[ClusterBulk], 10_000);
}

#[test]
fn the_cpu_that_drains_and_refills_counts() {
    let yard = yard(ZonePolicy::ClusterBulk, 252);
    crate::fixture::run_on(1);
    for _ in 0..4 {
        let pages = take(&yard, 2000);
        give(&yard, pages);
    }
    let of = |cpu| yard.zone(ZONE).mechanism_counts_of(Some(CpuId(cpu))).unwrap();
    for name in ["skipped_merges", "cluster_cuts", "cluster_cut_pages"] {
        assert!(of(1).get(name) > 0 && of(0).get(name) == 0, "{name}: {:?}", counted(&yard));
        assert_eq!(of(1).get(name), counted(&yard).get(name), "{name}");
    }
    let [all, full, spliced] =
        ["overflow_drains_movable", "full_batch_drains_movable", "cluster_drains_movable"].map(|name| of(1).get(name));
    assert!(full > 0 && full <= spliced && spliced <= all, "{all} drains, {full} full, {spliced} spliced");
    yard.set_policy(ZonePolicy::Vanilla).unwrap();
    let direct = yard.zone(ZONE).mechanism_counts_of(None).unwrap();
    assert!(direct.get("later_merges") > 0, "the change of the policy merges past the lists of CPUs");
}
