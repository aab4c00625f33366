//! `fork`: what this crate does before and after it.
//!
//! The child of a `fork` has a copy of the process's private memory, and only the thread that forked. No lock that the child needs may be
//! held by another thread at that moment.
//!
//! | lock | free in the child because the forking thread takes it |
//! |---|---|
//! | list of hooks | first |
//! | registry of private yards ([`private_yards`](super::private_yards)) | next |
//! | locks and owner words of these yards ([`Yard::lock_all`](frameyard::Yard::lock_all)) | next |
//! | mutexes taken with [`lock`](crate::sys::lock::lock): marks of threads, loads of CPUs, progress, maps of devices, open files | last, with [`GATE`]; their holders call no yard |
//!
//! | not free | why the child does not need it |
//! |---|---|
//! | mutexes of a shared yard's view | it only drops an inherited shared yard |
//! | table of devices of a platform | it changes no devices |
//! | locks of `frameyard-vm`, in frames | it uses no inherited address space |
//!
//! The hooks and registrations are made with the first yard; a fork while another thread makes that one is not covered. Neither is a
//! fork from a signal handler that interrupted a call of a yard, which would wait for itself, nor a child of a bare `clone` system call,
//! which runs no handlers.

use std::cell::Cell;
use std::io;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// What became of the threads other than the one that forks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum OtherThreads {
    /// They go on: this is the process that they belong to.
    GoOn,
    /// They do not exist here: this is a copy of their process.
    AreGone,
}

/// What a module does around a fork.
pub(crate) struct Hook {
    /// Called in the thread that forks.
    pub(crate) before: fn(),
    /// Called in that thread afterwards, and in the child.
    pub(crate) after: fn(OtherThreads),
}

static HOOKS: Mutex<Vec<&'static Hook>> = Mutex::new(Vec::new());
/// Read-locked while a thread has a mutex of this crate, and locked during a fork.
static GATE: RwLock<()> = RwLock::new(());

thread_local! {
    /// What this thread has locked while it forks.
    static FORKING: Cell<Option<Forking>> = const { Cell::new(None) };
}

/// The hooks and the gate, locked.
struct Forking {
    hooks: MutexGuard<'static, Vec<&'static Hook>>,
    gate: RwLockWriteGuard<'static, ()>,
}

/// Keeps forks away until it is dropped. A thread has at most one of these guards, and calls no yard meanwhile.
pub(crate) fn inside() -> RwLockReadGuard<'static, ()> {
    GATE.read().unwrap_or_else(PoisonError::into_inner)
}

fn hooks() -> MutexGuard<'static, Vec<&'static Hook>> {
    HOOKS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Has a hook called at each fork from now on. Adding it again changes nothing.
pub(crate) fn add(hook: &'static Hook) -> io::Result<()> {
    static INSTALLED: OnceLock<i32> = OnceLock::new();
    let installed = INSTALLED.get_or_init(|| {
        // SAFETY: the handlers are functions that may run in any thread and never unwind.
        unsafe { libc::pthread_atfork(Some(before_fork), Some(after_fork_in_parent), Some(after_fork_in_child)) }
    });
    if *installed != 0 {
        return Err(io::Error::from_raw_os_error(*installed));
    }
    let mut hooks = hooks();
    if !hooks.iter().any(|other| std::ptr::eq(*other, hook)) {
        hooks.push(hook);
    }
    Ok(())
}

extern "C" fn before_fork() {
    // A thread that is ending has no `FORKING` any more. The child is then as without hooks.
    let _ = FORKING.try_with(|forking| {
        let hooks = hooks();
        hooks.iter().for_each(|hook| (hook.before)());
        let gate = GATE.write().unwrap_or_else(PoisonError::into_inner);
        forking.set(Some(Forking { hooks, gate }));
    });
}

extern "C" fn after_fork_in_parent() {
    after_fork(OtherThreads::GoOn);
}

extern "C" fn after_fork_in_child() {
    after_fork(OtherThreads::AreGone);
}

fn after_fork(others: OtherThreads) {
    let Some(Forking { hooks, gate }) = FORKING.try_with(Cell::take).ok().flatten() else { return };
    drop(gate);
    hooks.iter().for_each(|hook| (hook.after)(others));
}

/// A hook that only the child needs.
pub(crate) const fn in_child(after: fn(OtherThreads)) -> Hook {
    Hook { before: || (), after }
}
