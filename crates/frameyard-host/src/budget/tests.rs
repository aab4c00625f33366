use super::*;

const KIB: ByteSize = ByteSize::kib(1);

/// A name that no other test uses, and its file, which goes away with the value.
struct Named(String);

impl Named {
    fn new(name: &str) -> Self {
        Self(format!("test-{name}-{}", std::process::id()))
    }

    fn create(&self) -> Budget {
        Budget::create_and(&self.0, ByteSize::kib(10), Ok).unwrap()
    }
}

impl Drop for Named {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(path_of(&self.0).unwrap());
    }
}

/// A slot whose process has been killed, with something charged.
fn killed(budget: &Budget, used: u64) -> Identity {
    let mut child = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
    let text = std::fs::read_to_string(format!("/proc/{}/stat", child.id())).unwrap();
    let started: u64 = text.rsplit_once(')').unwrap().1.split_ascii_whitespace().nth(19).unwrap().parse().unwrap();
    let identity = Identity(u64::from(child.id()) << 32 | started);
    let slot = budget.take_slot(identity).unwrap();
    budget.word(slot, USED).store(used, Ordering::Relaxed);
    assert!(budget.processes().iter().any(|process| process.process == child.id()));
    child.kill().unwrap();
    child.wait().unwrap();
    identity
}

#[test]
fn charges_stay_within_the_limit_and_are_taken_back() {
    let name = Named::new("charges");
    let share = name.create().join().unwrap();
    assert!(share.charge(ByteSize::kib(7)) && share.charge(ByteSize::kib(3)));
    assert!(!share.charge(ByteSize(1)) && !share.charge(ByteSize(u64::MAX)));
    assert_eq!(share.budget().used(), ByteSize::kib(10));
    share.refund(ByteSize::kib(4));
    assert!(!share.charge(ByteSize::kib(5)) && share.charge(ByteSize::kib(4)));
    share.refund(ByteSize::kib(9));
    let own = BudgetProcess { process: std::process::id(), used: KIB, peak: ByteSize::kib(10) };
    assert_eq!(share.budget().processes(), [own]);
    // More than was charged: frees of what a parent has allocated.
    share.refund(ByteSize::gib(1));
    assert_eq!(share.budget().used(), ByteSize(0));
}

#[test]
fn the_memory_of_a_killed_process_returns() {
    let name = Named::new("killed");
    let budget = name.create();
    killed(&budget, 9 << 10);
    assert_eq!(budget.used(), ByteSize::kib(9));
    let share = name.create().join().unwrap();
    assert!(share.charge(ByteSize::kib(10)));
    assert_eq!(budget.used(), ByteSize::kib(10));
    // Also one that is killed later.
    share.refund(ByteSize::kib(5));
    killed(&budget, 5 << 10);
    assert!(share.charge(ByteSize::kib(5)));
    assert_eq!(budget.processes().len(), 1);
}

#[test]
fn a_process_has_one_slot_whatever_it_executes() {
    let name = Named::new("executes");
    let first = name.create().join().unwrap();
    assert!(first.charge(ByteSize::kib(8)));
    // The program that it executes joins anew, without dropping what it had.
    std::mem::forget(first);
    let second = name.create().join().unwrap();
    assert!(second.charge(ByteSize::kib(10)));
    assert_eq!(second.budget().processes().len(), 1);
    drop(second);
    assert_eq!(name.create().processes(), []);
}

#[test]
fn a_full_table_refuses_processes() {
    let name = Named::new("full");
    let budget = name.create();
    let own = Identity::own().unwrap();
    // Not counted as taken, so that no one looks whether their processes live.
    let take = |slot: usize| budget.word(slot, OWNER).store(own.0, Ordering::Relaxed);
    (0..SLOTS).for_each(take);
    assert!(matches!(name.create().join(), Err(BudgetError::Full)));
}

#[test]
fn a_budget_lasts_as_long_as_it_has_processes() {
    let name = Named::new("lasts");
    let share = name.create().join().unwrap();
    let other = name.create();
    other.remove_if_unused();
    assert_eq!(Budget::open(&name.0).unwrap().limit(), ByteSize::kib(10));
    drop(share);
    assert!(matches!(Budget::open(&name.0), Err(BudgetError::File { .. })));
    // The next one may have another limit.
    let share = Budget::create(&name.0, KIB).unwrap();
    assert_eq!(share.budget().limit(), KIB);
    // A view of the removed file leaves the new one alone.
    other.remove_if_unused();
    assert!(Budget::open(&name.0).is_ok());
}

#[test]
fn what_a_killed_process_leaves_of_a_budget_is_made_anew() {
    let name = Named::new("anew");
    let budget = name.create();
    killed(&budget, 3 << 10);
    let share = Budget::create(&name.0, KIB).unwrap();
    assert_eq!((share.budget().limit(), share.budget().used()), (KIB, ByteSize(0)));
    // Its maker was killed before it wrote the magic number.
    budget.table.atomics()[WORD_MAGIC].store(0, Ordering::Relaxed);
    assert!(matches!(Budget::open(&name.0), Err(BudgetError::NoBudget(_))));
    assert_eq!(name.create().limit(), ByteSize::kib(10));
}

#[test]
fn wrong_names_limits_and_files_are_refused() {
    for name in ["", "a/b", "..", "a b", "ä", &"x".repeat(65)] {
        let error = Budget::create(name, KIB).unwrap_err();
        assert!(matches!(error, BudgetError::Name(_)) && Budget::open(name).is_err(), "{name:?}: {error}");
    }
    let name = Named::new("refused");
    let budget = name.create();
    let share = budget.join().unwrap();
    let error = Budget::create(&name.0, ByteSize::kib(11)).unwrap_err();
    assert_eq!(error.to_string(), "the budget has a limit of 10K, not 11K");
    share.budget().table.atomics()[WORD_MAGIC].store(1, Ordering::Relaxed);
    assert!(matches!(Budget::create(&name.0, ByteSize::kib(10)), Err(BudgetError::NoBudget(_))));
    assert!(matches!(Budget::open(&name.0), Err(BudgetError::NoBudget(_))));
    std::fs::write(path_of(&name.0).unwrap(), "short").unwrap();
    assert!(matches!(Budget::open(&name.0), Err(BudgetError::NoBudget(_))));
    assert!(matches!(Budget::create(&name.0, KIB), Err(BudgetError::NoBudget(_))));
}
