//! State of one thread behind a type that is `Sync`.
//!
//! A platform must be [`Sync`], and every access to a line goes through it. A simulated machine runs on one host
//! thread. A lock per access would cost more than the simulation of the access, so a borrow checks the thread
//! instead.

use std::cell::UnsafeCell;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicUsize, Ordering};

thread_local! {
    static MARK: u8 = const { 0 };
}

/// A number that no other living thread has; never 0.
#[inline(always)]
fn this_thread() -> usize {
    MARK.with(|mark| std::ptr::from_ref(mark).addr())
}

/// A value that only its creating thread can reach.
pub(crate) struct Confined<T> {
    /// The thread that may borrow the value; 0 while it is borrowed.
    free_for: AtomicUsize,
    owner: usize,
    value: UnsafeCell<T>,
}

// SAFETY: `borrow` is the only way to the value. It refuses every thread except the creating one, or a thread that
// reuses its number after its end. So two threads never use the value at once, and the value may move between
// threads, which `Send` allows.
unsafe impl<T: Send> Sync for Confined<T> {}

impl<T> Confined<T> {
    pub(crate) fn new(value: T) -> Self {
        let owner = this_thread();
        Self { free_for: AtomicUsize::new(owner), owner, value: UnsafeCell::new(value) }
    }

    /// The value, for the creating thread.
    ///
    /// # Panics
    ///
    /// On another thread, and while the value is borrowed.
    #[inline(always)]
    pub(crate) fn borrow(&self) -> Borrowed<'_, T> {
        // Only the owner writes this word, so the owner reads its own last store. Another thread never reads its own
        // number.
        if self.free_for.load(Ordering::Relaxed) != this_thread() {
            self.refuse();
        }
        self.free_for.store(0, Ordering::Relaxed);
        Borrowed { of: self, _on_this_thread: PhantomData }
    }

    #[cold]
    fn refuse(&self) -> ! {
        assert!(this_thread() == self.owner, "a simulated machine works only on the thread that created it");
        panic!("the state of a simulated machine is already borrowed");
    }
}

/// The value of a [`Confined`] until drop. It stays on its thread.
pub(crate) struct Borrowed<'c, T> {
    of: &'c Confined<T>,
    _on_this_thread: PhantomData<*mut T>,
}

impl<T> Deref for Borrowed<'_, T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        // SAFETY: at most one `Borrowed` exists at a time, and it lends the value for as long as it is lent itself.
        unsafe { &*self.of.value.get() }
    }
}

impl<T> DerefMut for Borrowed<'_, T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as above.
        unsafe { &mut *self.of.value.get() }
    }
}

impl<T> Drop for Borrowed<'_, T> {
    #[inline(always)]
    fn drop(&mut self) {
        self.of.free_for.store(self.of.owner, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[should_panic(expected = "already borrowed")]
    fn a_second_borrow_is_refused() {
        let value = Confined::new(1);
        let _first = value.borrow();
        drop(value.borrow());
    }

    #[test]
    fn another_thread_is_refused() {
        let value = Confined::new(1);
        *value.borrow() += 1;
        let refused = std::thread::scope(|scope| scope.spawn(|| drop(value.borrow())).join().is_err());
        assert!(refused && *value.borrow() == 2);
    }
}
