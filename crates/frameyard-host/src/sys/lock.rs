//! Mutexes without poisoning: in this crate, a thread that panics while it holds one leaves complete data behind.

use std::ops::{Deref, DerefMut};
use std::sync::{Mutex, MutexGuard, PoisonError, RwLockReadGuard};

use super::fork;

/// A held mutex, which no other thread holds when a thread forks.
pub(crate) struct Locked<'a, T> {
    // Fields drop in this order.
    guard: MutexGuard<'a, T>,
    _inside: RwLockReadGuard<'static, ()>,
}

/// Locks a mutex, even if an earlier holder has panicked. A fork waits until it is free, so it is free in the child. The holder locks
/// no other mutex this way, calls no yard and does not wait.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> Locked<'_, T> {
    let inside = fork::inside();
    Locked { guard: lock_past_forks(mutex), _inside: inside }
}

/// As [`lock`], for mutexes that a forked child does not need.
pub(crate) fn lock_past_forks<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<T> Deref for Locked<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.guard
    }
}

impl<T> DerefMut for Locked<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.guard
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::thread;

    use super::*;

    #[test]
    fn no_other_thread_has_a_mutex_when_one_forks() {
        static MUTEX: Mutex<u64> = Mutex::new(0);
        static HOOK: fork::Hook = fork::in_child(|_| ());
        fork::add(&HOOK).unwrap();
        let is_done = AtomicBool::new(false);
        let failed = thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    while !is_done.load(Ordering::Relaxed) {
                        *lock(&MUTEX) += 1;
                    }
                });
            }
            // SAFETY: the child takes the mutex, which is free, and exits.
            let forked = |_| unsafe {
                let child = libc::fork();
                if child == 0 {
                    libc::alarm(5);
                    *lock(&MUTEX) += 1;
                    libc::_exit(0);
                }
                let mut status = 0;
                assert_eq!(libc::waitpid(child, &raw mut status, 0), child);
                status
            };
            let failed = (0..200).map(forked).find(|status| *status != 0);
            is_done.store(true, Ordering::Relaxed);
            failed
        });
        assert_eq!(failed, None, "the status of a child");
    }
}
