//! A page-frame allocator for big machines: the `no_std`, heap-free core of Frameyard.
#![cfg_attr(not(test), no_std)]

mod platform;
pub mod sync;
mod units;

pub use platform::{Access, Contention, LockId, Platform, WorkerPanicked};
pub use units::{
    ByteSize, CpuId, Geometry, GeometryError, MigrateType, NodeId, ORDER_SLOTS, Order, PageCount, ParseSizeError, Pfn,
    PfnRange, PhysAddr, ZoneId, ZoneKind,
};

/// Runs the examples of the README as tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
