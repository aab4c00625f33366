//! `core`'s atomics, before each access to which shuttle may let another thread run.
//!
//! They are plain words, so a yard has its real layout and sizes. All threads of an execution run in turns on one
//! operating-system thread, so every execution is sequentially consistent. Loom checks orderings.

use core::cell::Cell;

pub use core::sync::atomic::{Ordering, fence};

use shuttle::rand::RngCore;

use crate::sync::models::weakness::{Weakness, is_weakened};

std::thread_local! {
    /// Whether accesses of this thread's execution are scheduled.
    static SCHEDULED: Cell<bool> = const { Cell::new(false) };
}

/// Runs `body` with scheduled accesses, its own and those of all threads of the execution.
#[cfg(test)]
pub(crate) fn run_scheduled<T>(body: impl FnOnce() -> T) -> T {
    with(true, body)
}

/// Runs `body` without thread switches at accesses.
#[cfg(test)]
pub(crate) fn run_alone<T>(body: impl FnOnce() -> T) -> T {
    with(false, body)
}

#[cfg(test)]
fn with<T>(scheduled: bool, body: impl FnOnce() -> T) -> T {
    struct Restore(bool);
    impl Drop for Restore {
        fn drop(&mut self) {
            SCHEDULED.set(self.0);
        }
    }
    let _restore = Restore(SCHEDULED.replace(scheduled));
    body()
}

/// Lets the scheduler choose the next thread. Does not switch while a failed execution unwinds.
#[track_caller]
fn choose() {
    if SCHEDULED.get() && !std::thread::panicking() {
        // Time stands still in an execution. Unlike a yield, this is no hint to prefer other threads.
        shuttle::thread::sleep(core::time::Duration::ZERO);
    }
}

/// Whether this weak exchange fails although the word has the expected value.
fn fails_without_cause() -> bool {
    SCHEDULED.get() && !std::thread::panicking() && shuttle::rand::thread_rng().next_u32().is_multiple_of(8)
}

macro_rules! scheduled_atomic {
    ($name:ident, $value:ty) => {
        /// An atomic integer of an execution.
        #[derive(Debug, Default)]
        #[repr(transparent)]
        pub struct $name(core::sync::atomic::$name);

        impl $name {
            /// An atomic that holds `value`.
            pub const fn new(value: $value) -> Self {
                Self(core::sync::atomic::$name::new(value))
            }

            /// As the method of the same name of `core`'s atomic.
            #[track_caller]
            pub fn load(&self, ordering: Ordering) -> $value {
                choose();
                self.0.load(ordering)
            }

            /// As the method of the same name of `core`'s atomic.
            #[track_caller]
            pub fn store(&self, value: $value, ordering: Ordering) {
                choose();
                if !is_weakened(Weakness::LostStoresOf(value.into())) {
                    self.0.store(value, ordering);
                }
            }

            /// As the method of the same name of `core`'s atomic.
            ///
            /// # Errors
            ///
            /// The value found, where it is not `current`.
            #[track_caller]
            pub fn compare_exchange(
                &self,
                current: $value,
                new: $value,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$value, $value> {
                if is_weakened(Weakness::SplitCompareExchange) {
                    let found = self.load(Ordering::Relaxed);
                    if found != current {
                        return Err(found);
                    }
                    self.store(new, Ordering::Relaxed);
                    return Ok(found);
                }
                choose();
                self.0.compare_exchange(current, new, success, failure)
            }

            /// As the method of the same name of `core`'s atomic: one in eight fails without cause.
            ///
            /// # Errors
            ///
            /// The value found.
            #[track_caller]
            pub fn compare_exchange_weak(
                &self,
                current: $value,
                new: $value,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$value, $value> {
                if fails_without_cause() {
                    return Err(self.load(failure));
                }
                self.compare_exchange(current, new, success, failure)
            }

            /// As the method of the same name of `core`'s atomic.
            ///
            /// # Errors
            ///
            /// The value found, where `change` has no other for it.
            #[track_caller]
            pub fn fetch_update(
                &self,
                set: Ordering,
                fetch: Ordering,
                mut change: impl FnMut($value) -> Option<$value>,
            ) -> Result<$value, $value> {
                let mut found = self.load(fetch);
                while let Some(changed) = change(found) {
                    match self.compare_exchange(found, changed, set, fetch) {
                        Ok(before) => return Ok(before),
                        Err(other) => found = other,
                    }
                }
                Err(found)
            }
        }

        scheduled_changes!($name, $value, swap fetch_add fetch_sub fetch_or fetch_and fetch_max);
    };
}

/// Changes that are one access.
macro_rules! scheduled_changes {
    ($name:ident, $value:ty, $($change:ident)*) => {
        impl $name {
            $(
                /// As the method of the same name of `core`'s atomic.
                #[track_caller]
                pub fn $change(&self, value: $value, ordering: Ordering) -> $value {
                    choose();
                    self.0.$change(value, ordering)
                }
            )*
        }
    };
}

scheduled_atomic!(AtomicU8, u8);
scheduled_atomic!(AtomicU16, u16);
scheduled_atomic!(AtomicU32, u32);
scheduled_atomic!(AtomicU64, u64);
