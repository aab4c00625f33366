//! The types that the transfer mechanisms add to a zone's structures.
//!
//! The layers below [`store`](crate::store) keep these types and pass them on; `store` says what they are.

use crate::sync::AllAtomic;

/// The types of all mechanisms together.
pub(crate) trait MechanismTypes {
    /// In each zone.
    type State: AllAtomic;
    /// In the counters of each CPU and zone.
    type Counts: AllAtomic;
    /// In the view of a zone: the mechanisms' tables.
    type Tables: Copy;
}

/// All mechanisms that are compiled in.
pub(crate) struct Mechanisms;

/// The state of all mechanisms in one zone.
pub(crate) type MechanismState = <Mechanisms as MechanismTypes>::State;
/// What the mechanisms count for one CPU in one zone.
pub(crate) type MechanismCounts = <Mechanisms as MechanismTypes>::Counts;
/// The tables of all mechanisms.
pub(crate) type MechanismTables = <Mechanisms as MechanismTypes>::Tables;

/// The types that the placement adds to the state of a zone and a CPU. [`placement`](crate::placement) says what they are.
pub(crate) trait PlacementTypes {
    /// In each zone.
    type OfZone: AllAtomic;
    /// For each CPU in each zone.
    type OfCpu: AllAtomic;
}

/// The placement.
pub(crate) struct Placement;

/// What the placement knows of a zone.
pub(crate) type PlacementOfZone = <Placement as PlacementTypes>::OfZone;
/// What it knows of a CPU in a zone.
pub(crate) type PlacementOfCpu = <Placement as PlacementTypes>::OfCpu;
