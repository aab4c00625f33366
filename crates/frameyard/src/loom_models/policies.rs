//! Changing the policy of transfers (`yard::policy`) while another CPU allocates and frees, empties all lists, sizes them
//! anew, or changes the policy, too.
//!
//! The models of one mechanism are in its folder; here one policy follows the other. When all is done the validator finds nothing
//! under a policy that does not keep it, and the limits of lists are those of the policy.

use std::sync::{Arc, Mutex};
use std::vec::Vec;

use super::machine::{Flaw, Locks, Machine, Runner, ZONE};
use super::{DAMAGES, assert_fails_within, explore_within};
use crate::policy::{PolicyError, ZonePolicy};
use crate::stats::CounterKind;
use crate::sync::{Weakness, weakened};
use crate::units::{CpuId, Order, PageCount};
use crate::watermarks::PcpSizing;
use crate::zone::transfer::Mechanism;

/// How many involuntary switches an execution has: a change of the policy locks all that there is, so executions are long.
/// What is broken here is found with one.
pub(crate) const SWITCHES: usize = 1;

/// The failure of limits that are not the policy's.
const LIMITS: &str = "the limits of a list are another policy's";
/// The failure of frames that are left of a policy.
const LEFT_OVER: &str = "is left of another policy";

/// The limit of lists under all policies but one.
const HIGH: u32 = 4;

/// What broken changes come to.
pub(crate) const ALL_DAMAGES: [&str; 8] = {
    let [a, b, c, d] = DAMAGES;
    [a, b, c, d, "frames were lost", "what was freed has merged", LIMITS, LEFT_OVER]
};

fn boot(policy: ZonePolicy, locks: Locks) -> Runner {
    let main = Machine::boot(2, PcpSizing::Fixed(HIGH), locks);
    main.yard.set_policy(policy).expect("nobody else changes it");
    main
}

/// Demands that no list has other limits than its policy, that nothing is left of other policies, and that everything can be
/// had.
fn finish(main: &Runner, high: u32) {
    let own = main.yard.policy() != ZonePolicy::BigPcp;
    for cpu in [0, 1].map(CpuId) {
        let found = main.yard.zone(ZONE).pcp(cpu).expect("its lists").high;
        assert_eq!(found == PageCount(u64::from(high)), own, "{LIMITS}: {found} under {}", main.yard.policy());
    }
    nothing_is_left_over(main);
    main.finish();
}

fn nothing_is_left_over(main: &Runner) {
    let mechanism = Mechanism::of(main.yard.policy()).expect("a policy that is compiled in");
    for (info, value) in main.yard.zone(ZONE).mechanism_counts().iter() {
        let is_held = info.kind == CounterKind::Gauge && !info.name.ends_with("_max");
        assert!(
            !is_held || mechanism.counts(info.name) || value.unwrap_or(0) == 0,
            "{}: {value:?} {LEFT_OVER}",
            info.name
        );
    }
}

/// CPU 0 changes the policy while CPU 1 does something else. Both are threads of their own, so that either may come first
/// without an involuntary switch.
fn change_while(main: &Runner, to: ZonePolicy, other: impl FnOnce(&Runner) + 'static) {
    let changer = main.start(0, move |runner| {
        // Another collector may hold what the old policy kept; it returns that.
        let changed = runner.yard.set_policy(to);
        assert!(matches!(changed, Ok(()) | Err(PolicyError::Stalled(_))), "nobody else changes it");
    });
    let other = main.start(1, other);
    changer.join().unwrap();
    other.join().unwrap();
}

/// CPU 1 frees one frame more than its lists hold and takes one, while CPU 0 changes the policy.
pub(crate) fn use_and_change(from: ZonePolicy, to: ZonePolicy, locks: Locks) {
    let main = boot(from, locks);
    let held: Vec<_> = (0..=HIGH).map(|_| main.take(Order::ZERO).expect("a free frame")).collect();
    change_while(&main, to, move |runner| {
        held.into_iter().for_each(|pfn| runner.give(pfn, Order::ZERO));
        runner.take_and_give(Order::ZERO);
    });
    finish(&main, HIGH);
}

/// CPU 1, whose lists are empty, takes a frame while CPU 0 changes the policy.
pub(crate) fn refill_and_change(from: ZonePolicy, to: ZonePolicy) {
    let main = boot(from, Locks::SOUND);
    main.fill_list(6);
    change_while(&main, to, |runner| runner.take_and_give(Order::ZERO));
    finish(&main, HIGH);
}

/// CPU 1 empties all lists, and what stands behind them, while CPU 0 changes the policy.
fn drain_and_change(from: ZonePolicy, to: ZonePolicy) {
    let main = boot(from, Locks::SOUND);
    main.fill_list(6);
    change_while(&main, to, |runner| runner.yard.zone(ZONE).drain());
    finish(&main, HIGH);
}

/// Two CPUs change the policy at once. One of them may be told that the other is at it.
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
    assert!(changed.lock().unwrap().contains(&last), "somebody was told that he had not set {last}");
    finish(&main, HIGH);
}

/// CPU 1 sizes all lists anew while CPU 0 leaves the policy that has sizes of its own.
fn size_and_change(locks: Locks) {
    const NEW_HIGH: u32 = 6;
    let main = boot(ZonePolicy::BigPcp, locks);
    change_while(&main, ZonePolicy::Vanilla, |runner| runner.yard.lists().resize(PcpSizing::Fixed(NEW_HIGH)));
    finish(&main, NEW_HIGH);
}

#[test]
fn frames_freed_under_one_policy_are_had_under_the_next() {
    use ZonePolicy::{BigPcp, Depot, OwnedBlocks, SkipMerge, Vanilla416};
    for (from, to) in [(Depot, OwnedBlocks), (OwnedBlocks, SkipMerge), (SkipMerge, BigPcp), (BigPcp, Vanilla416)] {
        explore_within(SWITCHES, move || use_and_change(from, to, Locks::SOUND));
    }
}

#[test]
fn a_refill_under_one_policy_ends_before_the_next_begins() {
    explore_within(SWITCHES, || refill_and_change(ZonePolicy::OwnedBlocks, ZonePolicy::Depot));
}

#[test]
fn lists_are_emptied_whatever_the_policy_becomes_meanwhile() {
    // Two that go through all lists: they change places where one finds a lock held, waits or ends.
    explore_within(0, || drain_and_change(ZonePolicy::Depot, ZonePolicy::BigPcp));
}

#[test]
fn one_change_of_the_policy_is_made_at_a_time() {
    use ZonePolicy::{BigPcp, Depot, Vanilla416};
    for policies in [[BigPcp, Vanilla416], [Depot, BigPcp]] {
        explore_within(SWITCHES, move || change_twice(policies));
    }
}

#[test]
fn lists_sized_while_the_policy_changes_have_its_limits() {
    explore_within(2, || size_and_change(Locks::SOUND));
}

#[test]
fn a_change_that_skips_empty_lists_is_detected() {
    use ZonePolicy::{Depot, OwnedBlocks, Vanilla};
    weakened(Weakness::EmptyListsNotLocked, || {
        assert_fails_within(SWITCHES, || refill_and_change(OwnedBlocks, Vanilla), &ALL_DAMAGES);
        assert_fails_within(SWITCHES, || refill_and_change(Depot, Vanilla), &ALL_DAMAGES);
    });
}

#[test]
fn two_concurrent_changes_of_the_policy_are_detected() {
    weakened(Weakness::SplitCompareExchange, || {
        assert_fails_within(SWITCHES, || change_twice([ZonePolicy::BigPcp, ZonePolicy::Vanilla416]), &ALL_DAMAGES);
    });
}

#[test]
fn a_change_that_does_not_hold_the_locks_of_lists_is_found() {
    let locks = Locks { per_cpu: Some(Flaw::NeverRefused), ..Locks::SOUND };
    let change = move || use_and_change(ZonePolicy::Depot, ZonePolicy::OwnedBlocks, locks);
    assert_fails_within(SWITCHES, change, &ALL_DAMAGES);
    assert_fails_within(SWITCHES, move || size_and_change(locks), &ALL_DAMAGES);
}
