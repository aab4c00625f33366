//! Statistics: what a yard counts of its zones, per-CPU lists, locks, policies and compaction.
//!
//! All counters are kept all the time, by plain stores under a lock that is held anyway, or per CPU. Reading them takes no
//! lock: each value is recent, and values of one snapshot need not agree with each other while other CPUs allocate.
//! [`Yard::validate`](crate::Yard::validate) checks the equations between them when nothing is in flight.

pub use crate::yard::{CompactStatistics, FrameInfo, PcpStatistics, ZoneStatistics};
pub use crate::zone::Stock;
pub use crate::zone::{CompactEvent, CounterInfo, CounterKind, CounterScope, MechanismCounts, ZoneLockTelemetry};
pub use crate::zone::{RegionCounts, RegionStatistics};
