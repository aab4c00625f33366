//! Changes of the transfer policy (`yard::policy`) while another CPU allocates and frees, drains all lists, resizes them, or
//! also changes the policy.
//!
//! The models of one mechanism are in its folder; the models here change from one policy to another. At the end of each
//! execution no mechanism holds frames of another policy, and the lists have the policy's limits.

use std::sync::{Arc, Mutex};
use std::vec::Vec;

use crate::loom_models::machine::{Flaw, Locks, Machine, Runner, ZONE};
use crate::loom_models::{DAMAGES, assert_fails_within, explore_within};
use crate::policy::{PolicyError, ZonePolicy};
use crate::stats::CounterKind;
use crate::store::published;
use crate::sync::{Weakness, weakened};
use crate::units::{CpuId, Order, PageCount};
use crate::watermarks::PcpSizing;

/// The bound of involuntary switches. Executions are long because a change of the policy takes every list lock. One switch
/// finds every broken variant.
pub(crate) const SWITCHES: usize = 1;

/// The failure message for list limits that differ from the policy's.
const LIMITS: &str = "a list has the limits of another policy";
/// The failure message for frames that a mechanism still holds after its policy ends.
const LEFT_OVER: &str = "is left over from another policy";

/// The limit of lists under all policies other than `BigPcp`.
const HIGH: u32 = 4;

/// The failure messages for broken changes of the policy.
pub(crate) const ALL_DAMAGES: [&str; 8] = {
    let [a, b, c, d] = DAMAGES;
    [a, b, c, d, "frames were lost", "freed frames have merged", LIMITS, LEFT_OVER]
};

fn boot(policy: ZonePolicy, locks: Locks) -> Runner {
    let main = Machine::boot(2, PcpSizing::Fixed(HIGH), locks);
    main.yard.set_policy(policy).expect("no other thread changes it");
    main
}

/// Asserts that the lists have the policy's limits, that no frames are left over from other policies, and that every frame
/// can be allocated.
fn finish(main: &Runner, high: u32) {
    let own = main.yard.policy() != ZonePolicy::BigPcp;
    for cpu in [0, 1].map(CpuId) {
        let found = main.yard.zone(ZONE).pcp(cpu).expect("the lists of the CPU").high;
        assert_eq!(found == PageCount(u64::from(high)), own, "{LIMITS}: {found} under {}", main.yard.policy());
    }
    assert_nothing_left_over(main);
    main.finish();
}

fn assert_nothing_left_over(main: &Runner) {
    let store = main.yard.policy().parts().store;
    for (info, value) in main.yard.zone(ZONE).mechanism_counts().iter() {
        let is_held = info.kind == CounterKind::Gauge && !info.name.ends_with("_max");
        assert!(
            !is_held || published::counts(store, info.name) || value.unwrap_or(0) == 0,
            "{}: {value:?} {LEFT_OVER}",
            info.name
        );
    }
}

/// CPU 0 changes the policy while CPU 1 runs `other`. Each has its own thread, so either may run first without an
/// involuntary switch.
fn change_while(main: &Runner, to: ZonePolicy, other: impl FnOnce(&Runner) + 'static) {
    let changer = main.start(0, move |runner| runner.yard.set_policy(to).expect("no other thread changes it"));
    let other = main.start(1, other);
    changer.join().unwrap();
    other.join().unwrap();
}

/// CPU 1 frees one frame more than the limit of its lists and allocates one, while CPU 0 changes the policy.
pub(crate) fn use_and_change(from: ZonePolicy, to: ZonePolicy, locks: Locks) {
    let main = boot(from, locks);
    let held: Vec<_> = (0..=HIGH).map(|_| main.take(Order::ZERO).expect("a free frame")).collect();
    change_while(&main, to, move |runner| {
        held.into_iter().for_each(|pfn| runner.give(pfn, Order::ZERO));
        runner.take_and_give(Order::ZERO);
    });
    finish(&main, HIGH);
}

/// CPU 1, whose lists are empty, allocates a frame while CPU 0 changes the policy.
pub(crate) fn refill_and_change(from: ZonePolicy, to: ZonePolicy) {
    let main = boot(from, Locks::SOUND);
    main.fill_list(6);
    change_while(&main, to, |runner| runner.take_and_give(Order::ZERO));
    finish(&main, HIGH);
}

/// CPU 1 frees a frame past its lists, which hold nothing, while CPU 0 changes the policy.
fn overflow_and_change(from: ZonePolicy, to: ZonePolicy) {
    let main = Machine::boot(2, PcpSizing::Fixed(0), Locks::SOUND);
    main.yard.set_policy(from).expect("no other thread changes it");
    let pfn = main.take(Order::ZERO).expect("a free frame");
    change_while(&main, to, move |runner| runner.give(pfn, Order::ZERO));
    finish(&main, 0);
}

/// CPU 1 drains all lists and the mechanism behind them, while CPU 0 changes the policy.
fn drain_and_change(from: ZonePolicy, to: ZonePolicy) {
    let main = boot(from, Locks::SOUND);
    main.fill_list(6);
    change_while(&main, to, |runner| runner.yard.zone(ZONE).drain());
    finish(&main, HIGH);
}

/// Two CPUs change the policy at once. One of them may get `PolicyError::Busy`.
fn change_twice(policies: [ZonePolicy; 2]) {
    let main = boot(ZonePolicy::Vanilla, Locks::SOUND);
    let changed = Arc::new(Mutex::new(Vec::new()));
    let threads = [0, 1].map(|cpu| {
        let (changed, policy) = (Arc::clone(&changed), policies[cpu as usize]);
        main.start(cpu, move |runner| match runner.yard.set_policy(policy) {
            Ok(()) => changed.lock().unwrap().push(policy),
            Err(problem) => assert_eq!(problem, PolicyError::Busy),
        })
    });
    for thread in threads {
        thread.join().unwrap();
    }
    let last = main.yard.policy();
    assert!(changed.lock().unwrap().contains(&last), "the policy is {last}, but its change returned an error");
    finish(&main, HIGH);
}

/// CPU 1 resizes all lists while CPU 0 leaves `BigPcp`, the policy with its own list sizes.
fn size_and_change(locks: Locks) {
    const NEW_HIGH: u32 = 6;
    let main = boot(ZonePolicy::BigPcp, locks);
    change_while(&main, ZonePolicy::Vanilla, |runner| runner.yard.lists().resize(PcpSizing::Fixed(NEW_HIGH)));
    finish(&main, NEW_HIGH);
}

#[test]
fn frames_freed_under_one_policy_can_be_allocated_under_the_next() {
    use ZonePolicy::{BigPcp, SkipMerge, Vanilla, Vanilla416};
    for (from, to) in [(Vanilla, SkipMerge), (SkipMerge, BigPcp), (BigPcp, Vanilla416)] {
        explore_within(SWITCHES, move || use_and_change(from, to, Locks::SOUND));
    }
}

#[test]
fn a_free_under_one_policy_ends_before_the_next_begins() {
    explore_within(SWITCHES, || overflow_and_change(ZonePolicy::SkipMerge, ZonePolicy::Vanilla));
}

#[test]
fn drain_races_policy_change() {
    // Both threads visit all lists: loom switches threads only where one finds a lock held, waits or ends.
    explore_within(0, || drain_and_change(ZonePolicy::SkipMerge, ZonePolicy::BigPcp));
}

#[test]
fn one_policy_change_runs_at_a_time() {
    use ZonePolicy::{BigPcp, SkipMerge, Vanilla416};
    for policies in [[BigPcp, Vanilla416], [SkipMerge, BigPcp]] {
        explore_within(SWITCHES, move || change_twice(policies));
    }
}

#[test]
fn lists_resized_during_a_policy_change_have_its_limits() {
    explore_within(2, || size_and_change(Locks::SOUND));
}

#[test]
fn policy_change_that_skips_empty_lists_fails() {
    weakened(Weakness::EmptyListsNotLocked, || {
        assert_fails_within(SWITCHES, || overflow_and_change(ZonePolicy::SkipMerge, ZonePolicy::Vanilla), &ALL_DAMAGES);
    });
}

#[test]
fn concurrent_policy_changes_fail() {
    weakened(Weakness::SplitCompareExchange, || {
        assert_fails_within(SWITCHES, || change_twice([ZonePolicy::BigPcp, ZonePolicy::Vanilla416]), &ALL_DAMAGES);
    });
}

#[test]
fn policy_change_without_list_locks_fails() {
    let locks = Locks { per_cpu: Some(Flaw::NeverRefused), ..Locks::SOUND };
    let change = move || use_and_change(ZonePolicy::Vanilla, ZonePolicy::SkipMerge, locks);
    assert_fails_within(SWITCHES, change, &ALL_DAMAGES);
    assert_fails_within(SWITCHES, move || size_and_change(locks), &ALL_DAMAGES);
}
