//! The store by itself, natively: one thread, then several that hold every frame at most once.
