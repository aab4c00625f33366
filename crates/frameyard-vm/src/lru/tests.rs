//! LRU lists with one thread and with several.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use frameyard::owners::{Ownership, ReclaimRequest, Reclaimer};
use frameyard::page::{CountedPage, Counts};
use frameyard::units::ZoneKind;
use frameyard::{Gfp, NodeId, Order, PageCount, Pfn};

use super::{LruList, LruStatistics, ShardKey};
use crate::VmCounter;
use crate::error::VmValidateError;
use crate::object_id::ObjectId;
use crate::page::{Flags, PageKind, owner_word, shard_of};
use crate::root::{LruPolicy, VmConfig};
use crate::test_yard::{TestMachine, TestPlatform, TestYard, run_on};
use crate::vm::{TestVm, Vm};

type TestPage<'y> = CountedPage<'y, TestPlatform>;

const NODE: NodeId = NodeId(0);

fn four_cpus() -> TestYard {
    run_on(0);
    TestYard::of(TestMachine { cpus: 4, ..TestMachine::default() })
}

fn sharded() -> VmConfig {
    VmConfig { lru: LruPolicy::Sharded, shards: 2, ..VmConfig::default() }
}

fn batches_of(lru_batch: u8) -> VmConfig {
    VmConfig { lru_batch, ..VmConfig::default() }
}

/// A new block with a reference of the caller and one for a batch.
fn new_block<'y>(vm: &TestVm<'y>, order: Order, kind: PageKind, flags: u64) -> TestPage<'y> {
    let pfn = vm.yard().alloc(order, Gfp::HIGHUSER_MOVABLE).expect("a frame");
    let owner = owner_word(kind, ObjectId::NONE, flags);
    let counts = Counts { references: 2, mappings: 0 };
    vm.yard().counted().init_refs(pfn, order, Ownership { counts, owner, index: 0 }).expect("an allocated block");
    vm.page(pfn)
}

fn new_page<'y>(vm: &TestVm<'y>) -> TestPage<'y> {
    new_block(vm, Order::ZERO, PageKind::Cache, 0)
}

/// New file pages, added by the caller's CPU.
fn added<'y>(vm: &TestVm<'y>, count: usize) -> Vec<TestPage<'y>> {
    let add = |_| {
        let page = new_page(vm);
        vm.lru_add(page);
        page
    };
    (0..count).map(add).collect()
}

/// Releases the last references of pages and frees them together.
fn release(vm: &TestVm<'_>, pages: &[TestPage<'_>]) {
    let last = |page: &&TestPage<'_>| page.put().expect("a reference") == 0;
    let unused: Vec<Pfn> = pages.iter().filter(last).map(CountedPage::pfn).collect();
    vm.free_unused(&unused);
}

fn statistics(vm: &TestVm<'_>) -> LruStatistics {
    vm.lru_statistics(NODE)
}

fn acquisitions(vm: &TestVm<'_>) -> u64 {
    statistics(vm).lock.acquisitions
}

fn on(vm: &TestVm<'_>, list: LruList) -> u64 {
    statistics(vm).on(list).0
}

/// Asserts that all is valid and that lists and batches are empty.
fn finish(vm: TestVm<'_>) {
    vm.lru_drain_all();
    vm.validate().expect("valid lists");
    assert_eq!(statistics(&vm).pages, [PageCount(0); 4], "no page is left on a list");
    vm.finish();
}

#[test]
fn new_pages_of_a_batch_share_one_acquisition() {
    for size in [1, 15, 31] {
        let yard = four_cpus();
        let vm = Vm::create(&yard, &batches_of(size)).unwrap();
        let pages = added(&vm, usize::from(size) * 4);
        assert_eq!(acquisitions(&vm), 4, "once for each batch of {size}");
        assert_eq!(on(&vm, LruList::InactiveFile), u64::from(size) * 4);
        vm.validate().unwrap();
        release(&vm, &pages);
        assert_eq!(acquisitions(&vm), 8, "once for each batch of {size} that is released");
        finish(vm);
    }
}

#[test]
fn pages_in_a_batch_are_on_no_list_and_cannot_be_isolated() {
    let yard = four_cpus();
    let vm = Vm::create(&yard, &VmConfig::default()).unwrap();
    let pages = added(&vm, 3);
    assert_eq!((on(&vm, LruList::InactiveFile), acquisitions(&vm)), (0, 0));
    assert!(!vm.lru_isolate(pages[1]));
    vm.validate().unwrap();
    vm.lru_drain();
    assert_eq!((on(&vm, LruList::InactiveFile), acquisitions(&vm)), (3, 1));
    assert!(vm.lru_isolate(pages[1]));
    assert!(!vm.lru_isolate(pages[1]), "one alone isolates a page");
    assert_eq!(on(&vm, LruList::InactiveFile), 2);
    vm.validate().unwrap();
    vm.lru_put_back(pages[1]);
    assert_eq!(on(&vm, LruList::InactiveFile), 3);
    release(&vm, &pages);
    finish(vm);
}

#[test]
fn pages_released_in_a_batch_reach_no_list() {
    let yard = four_cpus();
    let vm = Vm::create(&yard, &VmConfig::default()).unwrap();
    let pages = added(&vm, 14);
    release(&vm, &pages);
    assert!(pages.iter().all(|page| page.counts().references == 1), "the batch's");
    let free = yard.stats().free_pages();
    vm.lru_drain();
    assert_eq!(yard.stats().free_pages() - free, PageCount(14));
    assert_eq!(acquisitions(&vm), 0);
    finish(vm);
}

#[test]
fn anonymous_and_file_pages_have_separate_lists() {
    let yard = four_cpus();
    let vm = Vm::create(&yard, &batches_of(1)).unwrap();
    let kinds = [
        (PageKind::Anonymous, 0, LruList::InactiveAnon),
        (PageKind::Anonymous, Flags::ACTIVE, LruList::ActiveAnon),
        (PageKind::Cache, 0, LruList::InactiveFile),
        (PageKind::Cache, Flags::ACTIVE, LruList::ActiveFile),
    ];
    let mut pages = Vec::new();
    for (kind, flags, list) in kinds {
        let page = new_block(&vm, Order::ZERO, kind, flags);
        vm.lru_add(page);
        assert_eq!(on(&vm, list), 1, "{list:?}");
        pages.push(page);
    }
    vm.validate().unwrap();
    release(&vm, &pages);
    finish(vm);
}

#[test]
fn huge_pages_skip_batches_and_count_all_their_pages() {
    let yard = four_cpus();
    let vm = Vm::create(&yard, &VmConfig::default()).unwrap();
    let small = added(&vm, 2);
    let huge = new_block(&vm, Order(9), PageKind::Anonymous, 0);
    vm.lru_add(huge);
    assert_eq!((on(&vm, LruList::InactiveAnon), on(&vm, LruList::InactiveFile)), (512, 2));
    vm.validate().unwrap();
    vm.put_page(huge);
    assert_eq!((on(&vm, LruList::InactiveAnon), on(&vm, LruList::InactiveFile)), (0, 2));
    release(&vm, &small);
    finish(vm);
}

#[test]
fn second_use_activates_and_deactivation_reverts() {
    let yard = four_cpus();
    let vm = Vm::create(&yard, &VmConfig::default()).unwrap();
    let pages = added(&vm, 15);
    let used = &pages[..7];
    used.iter().for_each(|page| vm.lru_mark_accessed(*page));
    vm.lru_drain();
    assert_eq!(on(&vm, LruList::ActiveFile), 0, "used once");
    used.iter().for_each(|page| vm.lru_mark_accessed(*page));
    let before = acquisitions(&vm);
    vm.lru_drain();
    assert_eq!(acquisitions(&vm) - before, 1, "one acquisition for all");
    assert_eq!((on(&vm, LruList::ActiveFile), on(&vm, LruList::InactiveFile)), (7, 8));
    assert_eq!(vm.counted(VmCounter::Pgactivate), 7);
    vm.validate().unwrap();
    vm.lru_deactivate(used[3]);
    vm.lru_drain();
    assert_eq!((on(&vm, LruList::ActiveFile), on(&vm, LruList::InactiveFile)), (6, 9));
    vm.validate().unwrap();
    release(&vm, &pages);
    finish(vm);
}

#[test]
fn drain_skips_isolated_pages() {
    let yard = four_cpus();
    let vm = Vm::create(&yard, &VmConfig::default()).unwrap();
    let pages = added(&vm, 15);
    vm.lru_mark_accessed(pages[0]);
    vm.lru_mark_accessed(pages[0]);
    assert!(vm.lru_isolate(pages[0]));
    vm.lru_drain();
    assert_eq!((on(&vm, LruList::ActiveFile), on(&vm, LruList::InactiveFile)), (0, 14));
    vm.validate().unwrap();
    release(&vm, &pages);
    finish(vm);
}

#[test]
fn list_scan_skips_pages_being_isolated_or_freed() {
    let yard = four_cpus();
    let vm = Vm::create(&yard, &batches_of(1)).unwrap();
    let pages = added(&vm, 3);
    let key = ShardKey { node: NODE, shard: 0 };
    // An isolator is about to unlink this page: it has a reference, has cleared the flag, and waits for the lock.
    pages[0].get();
    pages[0].clear_owner_bits(Flags::LRU);
    assert!(vm.lock_shard(key).unwrap().isolate(pages[0]).is_none());
    assert_eq!((pages[0].counts().references, on(&vm, LruList::InactiveFile)), (2, 3));
    vm.lock_shard(key).unwrap().unlink(pages[0]);
    vm.put_page(pages[0]);
    // A free is about to unlink this page: it has released the last reference and waits for the lock.
    assert_eq!(pages[1].put(), Ok(0));
    assert!(vm.lock_shard(key).unwrap().isolate(pages[1]).is_none());
    assert_eq!((pages[1].counts().references, on(&vm, LruList::InactiveFile)), (0, 2));
    vm.free_unused(&[pages[1].pfn()]);
    assert!(vm.lock_shard(key).unwrap().isolate(pages[2]).is_some());
    vm.put_page(pages[2]);
    vm.validate().unwrap();
    vm.put_page(pages[0]);
    vm.put_page(pages[2]);
    finish(vm);
}

#[test]
fn kept_pages_return_to_the_shard_of_the_policy() {
    let yard = four_cpus();
    let vm = Vm::create(&yard, &sharded()).unwrap();
    run_on(3);
    let pages = added(&vm, 15);
    let isolate_and_return = || {
        for page in &pages {
            page.get();
            assert!(vm.lru_isolate(*page));
        }
        let before = acquisitions(&vm);
        vm.put_back_all(&pages.iter().map(CountedPage::pfn).collect::<Vec<_>>());
        assert_eq!(acquisitions(&vm) - before, 1);
        vm.validate().unwrap();
        shard_of(pages[7].owner())
    };
    run_on(0);
    assert_eq!(isolate_and_return(), 1, "to the shard that they were on");
    vm.set_lru_policy(LruPolicy::Vanilla);
    assert_eq!(isolate_and_return(), 0);
    release(&vm, &pages);
    finish(vm);
}

#[test]
fn assigns_shards_round_robin_within_cache_groups() {
    let yard = four_cpus();
    let vm = Vm::create(&yard, &sharded()).unwrap();
    let mut pages = Vec::new();
    for (cpu, shard) in [(0, 0), (1, 1), (2, 0), (3, 1)] {
        run_on(cpu);
        let own = added(&vm, 15);
        assert!(own.iter().all(|page| shard_of(page.owner()) == shard), "cpu {cpu} has shard {shard}");
        pages.extend(own);
    }
    assert_eq!(statistics(&vm).shards, 2);
    vm.validate().unwrap();
    release(&vm, &pages);
    finish(vm);
}

#[test]
fn release_takes_each_shard_lock_once_per_batch() {
    let yard = four_cpus();
    let vm = Vm::create(&yard, &sharded()).unwrap();
    let first = added(&vm, 15);
    run_on(3);
    let second = added(&vm, 15);
    let mixed: Vec<_> = first.into_iter().zip(second).flat_map(|(a, b)| [a, b]).collect();
    let before = acquisitions(&vm);
    release(&vm, &mixed);
    assert_eq!(acquisitions(&vm) - before, 4, "two batches of 15 and two shards");
    finish(vm);
}

#[test]
fn policy_changes_with_pages_on_lists() {
    let yard = four_cpus();
    let vm = Vm::create(&yard, &sharded()).unwrap();
    run_on(3);
    let mut pages = added(&vm, 20);
    vm.set_lru_policy(LruPolicy::Vanilla);
    pages.extend(added(&vm, 20));
    vm.validate().unwrap();
    assert!(pages[..15].iter().all(|page| shard_of(page.owner()) == 1), "where they were put");
    assert!(pages[15..30].iter().all(|page| shard_of(page.owner()) == 0), "where the policy says");
    assert!(vm.lru_isolate(pages[0]));
    vm.lru_put_back(pages[0]);
    assert_eq!(shard_of(pages[0].owner()), 0, "it moved when it was moved");
    vm.validate().unwrap();
    vm.lru_drain();
    assert_eq!(on(&vm, LruList::InactiveFile), 40);
    release(&vm, &pages);
    finish(vm);
}

#[test]
fn pages_are_on_lists_of_their_node() {
    run_on(0);
    let yard = TestYard::of(TestMachine { cpus: 2, nodes: 2, ..TestMachine::default() });
    let vm = Vm::create(&yard, &VmConfig::default()).unwrap();
    let on_node = |node| {
        let pfn = yard.request(Order::ZERO, Gfp::HIGHUSER_MOVABLE | Gfp::THISNODE).node(node).frame().unwrap();
        let owner = owner_word(PageKind::Cache, ObjectId::NONE, 0);
        let counts = Counts { references: 2, mappings: 0 };
        yard.counted().init_refs(pfn, Order::ZERO, Ownership { counts, owner, index: 0 }).unwrap();
        vm.lru_add(vm.page(pfn));
        vm.page(pfn)
    };
    let pages: Vec<_> = (0..15).map(|n| on_node(NodeId(n % 3 % 2))).collect();
    let counts = [0, 1].map(|node| vm.lru_statistics(NodeId(node)).on(LruList::InactiveFile).0);
    assert_eq!(counts, [10, 5]);
    vm.validate().unwrap();
    release(&vm, &pages);
    vm.finish();
}

#[test]
fn validator_detects_lost_lru_flag() {
    let yard = four_cpus();
    let vm = Vm::create(&yard, &batches_of(1)).unwrap();
    let pages = added(&vm, 3);
    pages[1].clear_owner_bits(Flags::LRU);
    let found = vm.validate();
    assert!(matches!(found, Err(VmValidateError::Frame { pfn, .. }) if pfn == pages[1].pfn()), "{found:?}");
    pages[1].set_owner_bits(Flags::LRU);
    vm.validate().unwrap();
    let link = pages[1].prev();
    pages[1].set_prev(frameyard::page::FrameLink::NONE);
    let found = vm.validate();
    assert!(matches!(found, Err(VmValidateError::Frame { pfn, .. }) if pfn == pages[1].pfn()), "{found:?}");
    pages[1].set_prev(link);
    release(&vm, &pages);
    finish(vm);
}

#[test]
fn validator_detects_lru_flag_of_unlinked_page() {
    let yard = four_cpus();
    let vm = Vm::create(&yard, &batches_of(1)).unwrap();
    let page = new_page(&vm);
    page.set_owner_bits(Flags::LRU);
    let found = vm.validate();
    assert!(matches!(found, Err(VmValidateError::Count { kept: 1, found: 0, .. })), "{found:?}");
    page.clear_owner_bits(Flags::LRU);
    vm.put_page(page);
    vm.put_page(page);
    finish(vm);
}

/// Random choices for the threads of a test.
struct Choices(u64);

impl Choices {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

/// Replaces the page in a slot by a new one or none, and releases the slot's reference.
fn replace(vm: &TestVm<'_>, slot: &AtomicU64, choices: &mut Choices) {
    let new = if choices.below(4) == 0 {
        0
    } else {
        let kind = if choices.below(2) == 0 { PageKind::Anonymous } else { PageKind::Cache };
        let page = new_block(vm, Order::ZERO, kind, 0);
        vm.lru_add(page);
        page.pfn().0
    };
    let old = slot.swap(new, Ordering::AcqRel);
    if old != 0 {
        vm.put_page(vm.page(Pfn(old)));
    }
}

/// Runs a random operation on the page of a frame, if it still is an LRU page.
fn use_page(vm: &TestVm<'_>, pfn: Pfn, choices: &mut Choices) {
    let page = vm.page(pfn);
    if !page.try_get() {
        return;
    }
    if matches!(PageKind::of_word(page.owner()), Some(PageKind::Anonymous | PageKind::Cache)) {
        match choices.below(4) {
            0 if vm.lru_isolate(page) => {
                page.set_owner_bits(Flags::ISOLATED);
                page.clear_owner_bits(Flags::ISOLATED);
                vm.lru_put_back(page);
            }
            1 => vm.lru_deactivate(page),
            _ => vm.lru_mark_accessed(page),
        }
    }
    vm.put_page(page);
}

#[test]
fn concurrent_list_operations_and_policy_changes_lose_nothing() {
    const SLOTS: usize = 400;
    let yard = four_cpus();
    let vm = Vm::create(&yard, &VmConfig { shards: 4, ..VmConfig::default() }).unwrap();
    let slots: Vec<AtomicU64> = (0..SLOTS).map(|_| AtomicU64::new(0)).collect();
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let workers: Vec<_> = (0..4u32)
            .map(|cpu| {
                let (vm, slots) = (&vm, &slots);
                scope.spawn(move || {
                    let mut choices = Choices(u64::from(cpu) + 1);
                    for round in 0..40_000 {
                        // Sometimes with the CPU number of another thread.
                        run_on(if round % 64 == 0 { choices.below(4) as u32 } else { cpu });
                        let slot = &slots[choices.below(SLOTS as u64) as usize];
                        match slot.load(Ordering::Acquire) {
                            pfn if pfn != 0 && choices.below(3) > 0 => use_page(vm, Pfn(pfn), &mut choices),
                            _ => replace(vm, slot, &mut choices),
                        }
                    }
                })
            })
            .collect();
        let (vm, done) = (&vm, &done);
        scope.spawn(move || {
            let request = ReclaimRequest {
                node: NODE,
                highest_zone: ZoneKind::Normal,
                order: Order::ZERO,
                wanted: PageCount(32),
            };
            for policy in LruPolicy::ALL.into_iter().cycle() {
                if done.load(Ordering::Relaxed) {
                    break;
                }
                vm.set_lru_policy(policy);
                vm.reclaim(request);
                vm.lru_drain_all();
                thread::yield_now();
            }
        });
        workers.into_iter().for_each(|worker| worker.join().expect("a worker comes to its end"));
        done.store(true, Ordering::Relaxed);
    });
    vm.validate().expect("valid lists");
    yard.validate().expect("a valid yard");
    vm.lru_drain_all();
    let held = slots.iter().filter(|slot| slot.load(Ordering::Relaxed) != 0).count() as u64;
    assert_eq!(statistics(&vm).pages.into_iter().sum::<PageCount>(), PageCount(held));
    assert!(held > 0 && statistics(&vm).moved > 10_000);
    slots
        .iter()
        .map(|slot| slot.load(Ordering::Relaxed))
        .filter(|pfn| *pfn != 0)
        .for_each(|pfn| vm.put_page(vm.page(Pfn(pfn))));
    finish(vm);
}

#[test]
fn a_batch_has_1_to_31_pages() {
    let yard = four_cpus();
    for size in [0, 32] {
        let found = Vm::create(&yard, &batches_of(size));
        assert!(matches!(found, Err(crate::VmError::BadConfig(_))), "{found:?}");
    }
}
