//! Frameyard on real memory, in processes of Linux.
//!
//! The core knows frame numbers alone; this crate puts memory behind them and tells it who is running:
//!
//! - [`HostYard`] is a yard on such memory, and where to begin;
//! - [`HostTopology`] reads the machine that the program runs on;
//! - [`HostMemory`] is memory behind the frames of a yard: anonymous, memfd, hugetlb, a file, or nothing
//!   ([`Backing`]); [`Region`] is memory for its memory map and its control region;
//! - [`HostPlatform`] implements [`frameyard::Platform`]: CPU identity from `rseq`, waiting, worker threads;
//! - [`SharedMemoryFile`] holds a whole yard for several processes, which [`spawn_workers`] starts by
//!   executing the program again.
//!
//! ```
//! use frameyard::{Geometry, NodeId, Pfn, PfnRange, Platform};
//! use frameyard_host::{HostMemory, HostPlatform, HostTopology, NodeFrames};
//!
//! let host = HostTopology::current()?;
//! let range = PfnRange { start: Pfn(0), end: Pfn(0x1000) };
//! let memory = HostMemory::builder(Geometry::X86_64, &[NodeFrames { range, node: NodeId(0) }]).build(&host)?;
//! let platform = HostPlatform::new(memory, &host);
//! assert!(host.online().contains(platform.current_cpu()));
//! assert!(platform.frame_bytes(Pfn(0xfff)).is_some());
//! assert!(platform.frame_bytes(Pfn(0x1000)).is_none());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! All system calls and all `unsafe` code are in the module `sys`.
#![deny(unsafe_code)]
#![cfg(target_os = "linux")]

mod cpu_list;
mod hugetlb;
mod memory;
mod platform;
mod prefault;
mod processes;
mod region;
mod resident;
mod shared;
#[expect(unsafe_code, reason = "system calls and what they map are unsafe by nature; the module offers safe wrappers")]
mod sys;
#[cfg(test)]
mod test_tree;
mod topology;
mod yard;

pub use cpu_list::{CpuList, ParseCpuListError};
pub use hugetlb::{HugetlbPool, HugetlbShortage, HugetlbSize};
pub use memory::{
    Backing, FileGrowth, FrameBytesError, HostMemory, HostMemoryBuilder, HugePages, MemoryError, NodeBinding,
    NodeFrames,
};
pub use platform::{CpuIdentity, HostPlatform, RseqUnavailable};
pub use prefault::PrefaultProgress;
pub use processes::{WorkerError, Workers, spawn_workers};
pub use region::Region;
pub use resident::ResidentSize;
pub use shared::{HeaderError, InheritedFile, SharedFileError, SharedFrames, SharedLayout, SharedMemoryFile};
pub use topology::{HostNode, HostTopology, TopologyError};
pub use yard::{HostYard, HostYardBuilder, HostYardError};
