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
