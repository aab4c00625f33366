//! Transfer policies: how frames move between the per-CPU lists and their zone.
//!
//! A per-CPU list that is empty refills, and a list that is too long drains. A [`ZonePolicy`] says how such a batch gets
//! past the zone lock: page by page, in clusters, through lock-free stacks, as bits of pageblocks. A
//! policy is a value in the configuration ([`YardConfig::policy`](crate::YardConfig::policy)), and
//! [`Yard::set_policy`](crate::Yard::set_policy) changes it while the yard is in use. Every policy serves the same
//! requests; policies differ in lock acquisitions, in the frames they hold back, and in the order of the frames.

pub use crate::yard::PolicyError;
pub use crate::zone::ZonePolicy;
