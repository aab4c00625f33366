//! Loom's atomics with a switch that weakens them: a model must fail when its protocol is broken.

use std::cell::Cell;

pub use loom::sync::atomic::{Ordering, fence};

use crate::sync::models::weakness::{Weakness, is_weakened, weakness};

fn load_ordering<T>(ordering: Ordering) -> Ordering {
    match weakness() {
        Weakness::RelaxedLoads => Ordering::Relaxed,
        Weakness::RelaxedLoadsOf(bytes) if bytes == size_of::<T>() => Ordering::Relaxed,
        _ => ordering,
    }
}

fn store_ordering<T>(ordering: Ordering) -> Ordering {
    match weakness() {
        Weakness::RelaxedStores => Ordering::Relaxed,
        Weakness::RelaxedStoresOf(bytes) if bytes == size_of::<T>() => Ordering::Relaxed,
        _ => ordering,
    }
}

loom::thread_local! {
    /// The weak exchanges of a thread in this execution.
    static WEAK_EXCHANGES: Cell<u32> = Cell::new(0);
}

/// Whether this weak exchange fails although the word has the expected value.
fn fails_without_cause() -> bool {
    is_weakened(Weakness::SpuriousFailures)
        && WEAK_EXCHANGES.with(|exchanges| exchanges.replace(exchanges.get() + 1).is_multiple_of(2))
}

macro_rules! modelled_atomic {
    ($name:ident, $value:ty) => {
        /// An atomic integer of a model.
        #[derive(Debug, Default)]
        pub struct $name(loom::sync::atomic::$name);

        impl $name {
            /// An atomic that holds `value`.
            #[track_caller]
            pub fn new(value: $value) -> Self {
                Self(loom::sync::atomic::$name::new(value))
            }

            /// As the method of the same name of `core`'s atomic.
            #[track_caller]
            pub fn load(&self, ordering: Ordering) -> $value {
                self.0.load(load_ordering::<$value>(ordering))
            }

            /// As the method of the same name of `core`'s atomic; nothing while a failed model unwinds.
            #[track_caller]
            pub fn store(&self, value: $value, ordering: Ordering) {
                // A guard that unlocks while its thread unwinds must not let the model's other threads continue.
                if !std::thread::panicking() && !is_weakened(Weakness::LostStoresOf(value.into())) {
                    self.0.store(value, store_ordering::<$value>(ordering));
                }
            }

            /// As the method of the same name of `core`'s atomic; only for words that hold 0 or `value`.
            ///
            /// An exchange that finds `value` writes nothing here. Loom does not know that a plain store cannot come
            /// between an exchange and what it has read: it would try executions in which the exchange of a thread
            /// that finds a lock held comes after the holder's unlock, and the lock stays taken for ever.
            ///
            /// # Panics
            ///
            /// If the word has another value.
            #[track_caller]
            pub fn swap(&self, value: $value, ordering: Ordering) -> $value {
                let found =
                    self.0.compare_exchange(0, value, ordering, Ordering::Relaxed).unwrap_or_else(|found| found);
                assert!(found == 0 || found == value, "a word that is exchanged in models holds 0 or {value}");
                found
            }

            /// As the method of the same name of `core`'s atomic.
            #[track_caller]
            pub fn fetch_add(&self, value: $value, ordering: Ordering) -> $value {
                if !is_weakened(Weakness::SplitAddition) {
                    return self.0.fetch_add(value, ordering);
                }
                let found = self.0.load(Ordering::Relaxed);
                self.0.store(found.wrapping_add(value), Ordering::Relaxed);
                found
            }

            /// As the method of the same name of `core`'s atomic.
            #[track_caller]
            pub fn fetch_sub(&self, value: $value, ordering: Ordering) -> $value {
                if !is_weakened(Weakness::SplitAddition) {
                    return self.0.fetch_sub(value, ordering);
                }
                let found = self.0.load(Ordering::Relaxed);
                self.0.store(found.wrapping_sub(value), Ordering::Relaxed);
                found
            }

            /// As the method of the same name of `core`'s atomic.
            #[track_caller]
            pub fn fetch_or(&self, value: $value, ordering: Ordering) -> $value {
                if is_weakened(Weakness::SplitUnion) {
                    let found = self.0.load(Ordering::Relaxed);
                    self.0.store(found | value, Ordering::Relaxed);
                    return found;
                }
                let relaxed = is_weakened(Weakness::RelaxedUnions);
                let found = self.0.fetch_or(value, if relaxed { Ordering::Relaxed } else { ordering });
                if is_weakened(Weakness::UnionReportsAll) { found & !value } else { found }
            }

            /// As the method of the same name of `core`'s atomic.
            #[track_caller]
            pub fn fetch_max(&self, value: $value, ordering: Ordering) -> $value {
                self.0.fetch_max(value, ordering)
            }

            /// As the method of the same name of `core`'s atomic.
            #[track_caller]
            pub fn fetch_and(&self, value: $value, ordering: Ordering) -> $value {
                if is_weakened(Weakness::SplitIntersection) {
                    let found = self.0.load(Ordering::Relaxed);
                    self.0.store(found & value, Ordering::Relaxed);
                    return found;
                }
                let relaxed = is_weakened(Weakness::RelaxedIntersections);
                self.0.fetch_and(value, if relaxed { Ordering::Relaxed } else { ordering })
            }

            /// As the method of the same name of `core`'s atomic. Fails without cause only under
            /// [`Weakness::SpuriousFailures`].
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
            /// The value found, if it is not `current`.
            #[track_caller]
            pub fn compare_exchange(
                &self,
                current: $value,
                new: $value,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$value, $value> {
                if is_weakened(Weakness::RelaxedExchanges) {
                    return self.0.compare_exchange(current, new, Ordering::Relaxed, Ordering::Relaxed);
                }
                if !is_weakened(Weakness::SplitCompareExchange) {
                    return self.0.compare_exchange(current, new, success, failure);
                }
                let found = self.0.load(Ordering::Relaxed);
                if found != current {
                    return Err(found);
                }
                self.0.store(new, Ordering::Relaxed);
                Ok(found)
            }

            /// As the method of the same name of `core`'s atomic.
            ///
            /// # Errors
            ///
            /// The value found, if `change` returns `None` for it.
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
    };
}

modelled_atomic!(AtomicU8, u8);
modelled_atomic!(AtomicU16, u16);
modelled_atomic!(AtomicU32, u32);
modelled_atomic!(AtomicU64, u64);
