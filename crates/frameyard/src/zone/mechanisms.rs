//! The types that the transfer mechanisms add to a zone's structures.
//!
//! The layers below [`transfer`](super::transfer) store these types and pass them on; `transfer` says what they are.

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
