//! State of which one thread alone makes use, behind a type that may be shared.
//!
//! A platform must be [`Sync`], and every access to a line goes through one. A simulated machine has one host thread; a lock
//! for each access would cost more than all that is done under it. So it is checked that it is that thread.

use std::cell::{RefCell, RefMut};

thread_local! {
    static MARK: u8 = const { 0 };
}

/// A number that no other living thread has.
fn this_thread() -> usize {
    MARK.with(|mark| std::ptr::from_ref(mark).addr())
}

/// A value that only the thread which made it can get at.
pub(crate) struct Confined<T> {
    owner: usize,
    value: RefCell<T>,
}

// SAFETY: `borrow` is the only way to the value, and refuses all threads but the one that made it, or one that has come after
// its end; so never two use the value at once, and it may be used by another thread than before, as `Send` says.
unsafe impl<T: Send> Sync for Confined<T> {}

impl<T> Confined<T> {
    pub(crate) fn new(value: T) -> Self {
        Self { owner: this_thread(), value: RefCell::new(value) }
    }

    /// The value, for the thread that made it.
    ///
    /// # Panics
    ///
    /// On another thread, and while it is borrowed already.
    #[inline(always)]
    pub(crate) fn borrow(&self) -> RefMut<'_, T> {
        assert!(this_thread() == self.owner, "a simulated machine is used on the thread that made it");
        self.value.borrow_mut()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_thread_is_refused() {
        let value = Confined::new(1);
        *value.borrow() += 1;
        let refused = std::thread::scope(|scope| scope.spawn(|| drop(value.borrow())).join().is_err());
        assert!(refused && *value.borrow() == 2);
    }
}
