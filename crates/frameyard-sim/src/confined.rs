//! State of which one thread alone makes use, behind a type that may be shared.
//!
//! A platform must be [`Sync`], and every access to a line goes through one. A simulated machine has one host thread; a lock
//! for each access would cost more than all that is done under it. So it is checked that it is that thread.

use std::cell::UnsafeCell;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicUsize, Ordering};

thread_local! {
    static MARK: u8 = const { 0 };
}

/// A number that no other living thread has, and none has 0.
#[inline(always)]
fn this_thread() -> usize {
    MARK.with(|mark| std::ptr::from_ref(mark).addr())
}

/// A value that only the thread which made it can get at.
pub(crate) struct Confined<T> {
    /// The thread that may borrow the value; 0 while it is borrowed.
    free_for: AtomicUsize,
    owner: usize,
    value: UnsafeCell<T>,
}

// SAFETY: `borrow` is the only way to the value, and refuses all threads but the one that made it, or one that has come after
// its end; so never two use the value at once, and it may be used by another thread than before, as `Send` says.
unsafe impl<T: Send> Sync for Confined<T> {}

impl<T> Confined<T> {
    pub(crate) fn new(value: T) -> Self {
        let owner = this_thread();
        Self { free_for: AtomicUsize::new(owner), owner, value: UnsafeCell::new(value) }
    }

    /// The value, for the thread that made it.
    ///
    /// # Panics
    ///
    /// On another thread, and while it is borrowed already.
    #[inline(always)]
    pub(crate) fn borrow(&self) -> Borrowed<'_, T> {
        // The owner alone writes this, so what it reads is what it wrote last; others never read their own number.
        if self.free_for.load(Ordering::Relaxed) != this_thread() {
            self.refuse();
        }
        self.free_for.store(0, Ordering::Relaxed);
        Borrowed { of: self, _on_this_thread: PhantomData }
    }

    #[cold]
    fn refuse(&self) -> ! {
        assert!(this_thread() == self.owner, "a simulated machine is used on the thread that made it");
        panic!("the state of a simulated machine is in use already");
    }
}

/// The value of a [`Confined`], until this is dropped. It stays on its thread.
pub(crate) struct Borrowed<'c, T> {
    of: &'c Confined<T>,
    _on_this_thread: PhantomData<*mut T>,
}

impl<T> Deref for Borrowed<'_, T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        // SAFETY: there is one `Borrowed` at a time, which lends its value as itself is lent.
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
    #[should_panic(expected = "in use already")]
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
