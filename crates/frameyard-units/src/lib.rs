// Links of the README, which come first so that they replace its own links to docs.rs.
//! [`Pfn`]: Pfn
//! [`PfnRange`]: PfnRange
//! [`PageCount`]: PageCount
//! [`Order`]: Order
//! [`Block`]: Block
//! [`PhysAddr`]: PhysAddr
//! [`ByteSize`]: ByteSize
//! [`NodeId`]: NodeId
//! [`CpuId`]: CpuId
//! [`ZoneId`]: ZoneId
//! [`ZoneKind`]: ZoneKind
//! [`MigrateType`]: MigrateType
//! [`Geometry`]: Geometry
//!
#![doc = include_str!("../README.md")]
#![cfg_attr(not(test), no_std)]

mod errors;
mod frames;
mod geometry;
mod ids;
mod kinds;
mod names;
mod order;
mod size;

pub use frames::{Block, Pfn, PfnRange, PhysAddr};
pub use geometry::{BlockSizeError, Geometry, GeometryError};
pub use ids::{CpuId, NodeId};
pub use kinds::{MigrateType, ZoneId, ZoneKind};
pub use names::UnknownName;
pub use order::{ORDER_SLOTS, Order, PageCount};
pub use size::{ByteSize, ParseSizeError};
