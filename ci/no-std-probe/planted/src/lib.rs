//! What the core must never do: link `std` or `alloc` while calling itself `no_std`.
#![no_std]

#[cfg(feature = "alloc")]
extern crate alloc;
#[cfg(feature = "std")]
extern crate std;
