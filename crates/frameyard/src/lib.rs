#![doc = include_str!("../README.md")]
//!
//! # Waiting
//!
//! The fast paths try one lock and never wait. Other calls spin for locks, whose holders never sleep. What else a call waits
//! for, and how long, depends on its flags: the table in [`alloc`](alloc#waiting) lists it.
//!
//! # Chapters
//!
//! | module | for |
//! |---|---|
//! | [`alloc`] | requests for frames, and what their errors say |
//! | [`views`] | a yard by subject: zones, devices, compaction, statistics, initialisation |
//! | [`boot`] | creating, attaching to and initialising a yard |
//! | [`memblock`] | the early map of memory and reservations |
//! | [`platform`] | what a yard needs from its environment |
//! | [`watermarks`] | reserves, watermarks and sizes of per-CPU lists |
//! | [`policy`] | how batches move between per-CPU lists and zones |
//! | [`page`] | page structures, their states and reference counts |
//! | [`owners`] | blocks that can be moved or reclaimed |
//! | [`compaction`], [`contig`] | making large blocks, and taking a chosen range |
//! | [`devices`] | page maps of device memory |
//! | [`huge_pages`] | pools of huge pages whose page maps take little memory |
//! | [`reporting`] | giving free memory back to the host |
//! | [`stats`], [`locks`], [`validate`] | counters, lock use, and the check of every equation |
//! | [`units`], [`sync`], [`job`] | the building blocks of the other modules |
#![cfg_attr(not(any(test, loom, shuttle)), no_std)]

// Places in the memory map are computed from frame numbers, of 64 bits. With narrower pointers they would wrap, and a free of
// one frame could free another.
#[cfg(any(target_pointer_width = "16", target_pointer_width = "32"))]
compile_error!("frameyard needs a target with 64-bit pointers");

pub mod alloc;
pub mod boot;
pub mod compaction;
pub mod contig;
mod control;
pub mod devices;
mod gfp;
pub mod huge_pages;
mod huge_pool;
pub mod job;
pub mod locks;
#[cfg(all(test, loom))]
mod loom_models;
mod memmap;
pub mod owners;
pub mod page;
pub mod platform;
pub mod policy;
pub mod reporting;
#[cfg(all(test, shuttle))]
mod shuttle_tests;
pub mod stats;
mod store;
pub mod sync;
pub mod validate;
pub mod views;
pub mod watermarks;
mod yard;
mod zone;

pub use boot::{CleanRegions, DefragMode, Layout, MemoryTable, YardConfig};
#[cfg(loom)]
#[doc(hidden)]
pub use control::ModelledRegion;
pub use frameyard_memblock as memblock;
pub use frameyard_units as units;
pub use frameyard_units::{ByteSize, CpuId, Geometry, MigrateType, NodeId, Order, PageCount, Pfn, PfnRange, ZoneId};
pub use gfp::Gfp;
pub use platform::Platform;
pub use yard::{AllocError, AllocRequest, Frames, FreeError, OtherThreads, RawRegion, Yard};
