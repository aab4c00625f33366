//! Atomics: those of `core` or, in a model, those of `models`, which loom or shuttle explores.
//!
//! All modules of the core take their atomics from here, so that a protocol runs unchanged under the model checkers. A comment
//! at each ordering stronger than `Relaxed` names the function that it pairs with.

#[cfg(not(loom))]
pub(crate) use core::sync::atomic::compiler_fence;
#[cfg(not(any(loom, shuttle)))]
pub use core::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering, fence};

#[cfg(any(loom, shuttle))]
pub(crate) mod models;

#[cfg(any(loom, shuttle))]
pub use crate::sync::models::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering, fence};
#[cfg(any(loom, shuttle))]
#[doc(hidden)]
pub use crate::sync::models::{Weakness, is_weakened, weakened};

/// Whether a model has broken this protection (`crate::sync::models::Weakness`). Always false outside models.
macro_rules! is_broken {
    ($weakness:ident) => {{
        #[cfg(any(loom, shuttle))]
        let broken = $crate::sync::is_weakened($crate::sync::Weakness::$weakness);
        #[cfg(not(any(loom, shuttle)))]
        let broken = false;
        broken
    }};
}

/// A sequentially consistent fence in models, unless a model has broken that protection; nothing elsewhere. It stands between two sequentially
/// consistent accesses, which the language orders without it; loom treats such accesses as acquire and release, and knows only such fences.
macro_rules! fence_in_models {
    ($weakness:ident) => {{
        #[cfg(loom)]
        if !$crate::sync::is_broken!($weakness) {
            $crate::sync::fence($crate::sync::Ordering::SeqCst);
        }
    }};
}

mod all_atomic;

pub(crate) use all_atomic::{AllAtomic, all_atomic};

pub(crate) use {fence_in_models, is_broken};
