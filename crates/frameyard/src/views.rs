//! Subject views: the operations of a yard, grouped by subject.
//!
//! [`Yard`](crate::Yard) itself allocates and frees. Everything else is behind a view: `yard.zone(id)`, `yard.devices()`,
//! `yard.huge_pages()`,
//! `yard.compaction()`, `yard.stats()`, `yard.init()`, `yard.counted()`, `yard.lists()`, `yard.cma()`. A view is a copyable
//! borrow of the yard, so making one costs nothing. Each view states the locks that its methods take.

pub use crate::yard::{
    CmaAreas, CountedBlocks, YardCompaction, YardDevices, YardHugePages, YardInit, YardLists, YardStats, YardZone,
};
