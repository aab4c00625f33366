//! A process that shares a yard is killed or stopped at random points while it allocates and frees.
//!
//! The other process never waits without end. It either goes on, and then every list is whole, or its calls say that the
//! yard is damaged. Frames that the killed process had, or had in transit, are lost.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use crate::sharing_process::{NO_HANG, SharingProcess, next, own_task, report_ready, seeds, without_hang};
use frameyard::alloc::FreeProblem;
use frameyard::platform::{LockError, LockId};
use frameyard::policy::{PolicyError, ZonePolicy};
use frameyard::validate::{ListKind, ValidateError};
use frameyard::{AllocError, CpuId, FreeError, Gfp, MemoryTable, NodeId, Order, Pfn, PfnRange, YardConfig};
use frameyard_host::{Backing, CpuIdentity, HostTopology, HostYard, HostYardError, SharedMemoryFile};

/// 64 MiB: with two CPUs, lists overflow and run empty often.
const MEMORY: [(PfnRange, NodeId); 1] = [(PfnRange { start: Pfn(0x10_0000), end: Pfn(0x10_4000) }, NodeId(0))];
/// The task of a process that changes the policy all the time.
const CHANGES_POLICIES: &str = "changes policies";

/// An error of a lock, if it is one.
fn lock_error(error: &AllocError) -> Option<LockError> {
    match error {
        AllocError::Lock(error) => Some(*error),
        _ => None,
    }
}

/// As [`lock_error`].
fn free_lock_error(error: &FreeError) -> Option<LockError> {
    match error.problem {
        FreeProblem::Lock(error) => Some(error),
        _ => None,
    }
}

/// Allocates and frees blocks at random, and drains now and then, until `stop` or an error of a lock.
fn work(yard: &HostYard, seed: u64, mut stop: impl FnMut() -> bool) -> Result<(), LockError> {
    let mut state = seed | 1;
    let mut held: Vec<(Pfn, Order)> = Vec::new();
    let freed = |(pfn, order): (Pfn, Order)| match yard.free(pfn, order) {
        Ok(()) => Ok(()),
        Err(error) => Err(free_lock_error(&error).expect("the block is this process's")),
    };
    while !stop() {
        let random = next(&mut state);
        if random.is_multiple_of(512) {
            yard.drain_all();
        }
        if random.is_multiple_of(2) && held.len() < 300 {
            let order = Order([0, 0, 0, 0, 1, 3, 5, 9][random as usize / 2 % 8]);
            match yard.alloc(order, Gfp::HIGHUSER_MOVABLE | Gfp::NOWARN) {
                Ok(pfn) => {
                    let overlaps =
                        |other: &(Pfn, Order)| pfn < other.0 + other.1.pages() && other.0 < pfn + order.pages();
                    assert!(!held.iter().any(overlaps), "{pfn} was given out twice");
                    held.push((pfn, order));
                }
                Err(error) => lock_error(&error).map_or(Ok(()), Err)?,
            }
        } else if !held.is_empty() {
            freed(held.swap_remove(random as usize / 16 % held.len()))?;
        }
    }
    held.into_iter().try_for_each(freed)
}

fn made(policy: ZonePolicy) -> (HostYard, SharedMemoryFile) {
    let memory = MemoryTable { memory: &MEMORY, ..MemoryTable::default() };
    let config = YardConfig { policy, ..YardConfig::new(&[NodeId(0); 2]) };
    let builder = HostYard::builder().identity(CpuIdentity::Fixed(CpuId(0))).lock_limit(Duration::from_millis(500));
    let yard = builder.machine(&memory, &config).backing(Backing::Phantom).shared().build().unwrap();
    let file = yard.shared_file().unwrap().try_clone().unwrap();
    (yard, file)
}

#[test]
#[ignore = "a worker of other tests"]
fn process_works_until_it_is_killed() {
    let host = HostTopology::current().unwrap();
    let file = SharedMemoryFile::from_environment(&host).unwrap();
    // The same CPU as the other process half of the time, so that both use the same lists.
    let (seed, task) = own_task();
    let builder = HostYard::builder().identity(CpuIdentity::Fixed(CpuId(seed as u32 / 2 % 2)));
    // SAFETY: only yards write to the file.
    let yard = unsafe { builder.attach(&file) }.host(&host).build().unwrap();
    report_ready();
    if task == CHANGES_POLICIES {
        loop {
            ZonePolicy::CHANGEABLE.iter().for_each(|policy| yard.core().set_policy(*policy).unwrap());
        }
    }
    work(&yard, seed, || false).unwrap();
}

/// Allocates all frames one by one: no frame is on two lists. Returns the error of a lock that ends it.
fn allocate_everything(yard: &HostYard) -> Result<(), LockError> {
    let mut all = BTreeSet::new();
    loop {
        match yard.alloc(Order::ZERO, Gfp::HIGHUSER_MOVABLE | Gfp::NOWARN | Gfp::NORETRY) {
            Ok(pfn) => assert!(all.insert(pfn) && MEMORY[0].0.contains(pfn), "{pfn} was given out twice"),
            Err(error) => return lock_error(&error).map_or(Ok(()), Err),
        }
    }
}

/// Checks a yard after a process that shares it was killed: it is sound, or every call says that it is damaged.
fn examine(yard: &HostYard, killed: u32) -> Result<(), LockError> {
    let validated = yard.validate();
    // A block in transit is on no list, which the check reports as a broken list of a CPU.
    let is_broken = match validated {
        Err(ValidateError::BrokenList { kind, .. }) => kind == ListKind::Free,
        Err(ValidateError::BrokenMechanism { .. }) => true,
        _ => false,
    };
    assert!(!is_broken, "{validated:?}");
    yard.drain_all();
    let found = allocate_everything(yard).and(match validated {
        Err(ValidateError::Lock(error)) => Err(error),
        _ => Ok(()),
    });
    if let Err(error) = found {
        assert!(matches!(error, LockError::OwnerDied { holder, .. } if holder == killed), "{error}");
        assert_eq!(yard.validate(), Err(ValidateError::Lock(error)));
        let refused = yard.alloc(Order::ZERO, Gfp::KERNEL).unwrap_err();
        assert_eq!(lock_error(&refused), Some(error), "{refused}");
    }
    found
}

/// Kills a sharing process at a random point; whether the yard is damaged then.
fn kill_one(policy: ZonePolicy, seed: u64) -> bool {
    without_hang(&format!("{policy}, seed {seed}"), move || {
        let (yard, file) = made(policy);
        let other = SharingProcess::start(module_path!(), &file, "", seed);
        let killed = other.id();
        let worked = work(&yard, !seed, other.killed_meanwhile(seed));
        let found = examine(&yard, killed);
        assert!(worked.is_ok() || found.is_err(), "{worked:?}");
        // SAFETY: only yards have written to the file, also the one that was killed.
        match (unsafe { HostYard::builder().attach(&file) }.build(), found) {
            (Ok(_), Ok(())) => {}
            (Err(HostYardError::Lock(refused)), Err(error)) => assert_eq!(refused, error),
            (attached, found) => panic!("{attached:?} after {found:?}"),
        }
        found.is_err()
    })
}

#[test]
fn no_call_hangs_or_goes_on_with_a_corrupt_list_after_a_sharing_process_was_killed() {
    for policy in ZonePolicy::ALL {
        let seeds = seeds();
        let damaged = seeds.iter().filter(|seed| kill_one(policy, **seed)).count();
        println!("{policy}: {damaged} of {} kills damaged the yard", seeds.len());
    }
}

#[test]
fn a_change_of_the_policy_names_the_process_that_was_killed_during_one() {
    let kills_during_change = |seed: &u64| {
        let (yard, file) = made(ZonePolicy::Vanilla);
        let other = SharingProcess::start(module_path!(), &file, CHANGES_POLICIES, *seed);
        let killed = other.id();
        std::thread::sleep(Duration::from_micros(2_000 + seed % 5_000));
        drop(other);
        let changed = without_hang(&format!("seed {seed}"), move || yard.core().set_policy(ZonePolicy::Vanilla));
        let named = PolicyError::Lock(LockError::OwnerDied { lock: LockId::Policy, holder: killed });
        assert!(changed.is_ok() || changed == Err(named), "{changed:?}");
        changed.is_err()
    };
    let (seeds, begin) = (seeds(), Instant::now());
    let mut hits = seeds.iter().filter(|seed| kills_during_change(seed)).count();
    // On a busy host, a process may be killed before it has begun.
    while hits == 0 && begin.elapsed() < NO_HANG {
        hits = seeds.iter().filter(|seed| kills_during_change(seed)).count();
    }
    assert!(hits > 0, "no kill hit a change of the policy");
}

#[test]
fn a_stopped_process_delays_a_call_and_damages_nothing() {
    let (yard, file) = made(ZonePolicy::Vanilla);
    let other = SharingProcess::start(module_path!(), &file, "", 4);
    let begin = Instant::now();
    let mut stops = (0..).take_while(|_| begin.elapsed() < NO_HANG);
    let stuck = stops.find_map(|_| {
        other.stop();
        yard.drain_all();
        let order = Order(9);
        let stuck = match yard.alloc(order, Gfp::HIGHUSER_MOVABLE | Gfp::NORETRY) {
            Ok(pfn) => yard.free(pfn, order).err().and_then(|error| free_lock_error(&error)),
            Err(error) => lock_error(&error),
        };
        if stuck.is_none() {
            other.go_on();
            std::thread::sleep(Duration::from_millis(1));
        }
        stuck
    });
    let stuck = stuck.expect("one of many stops hits a holder of the zone lock");
    assert!(matches!(stuck, LockError::LockStuck { holder, .. } if holder == other.id()), "{stuck}");
    other.go_on();
    let begin = Instant::now();
    while let Err(error) = yard.alloc(Order(5), Gfp::HIGHUSER_MOVABLE) {
        assert!(begin.elapsed() < NO_HANG, "{error}");
    }
}
