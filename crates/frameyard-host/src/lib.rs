//! Frameyard on real memory, in processes of Linux.
//!
//! The core knows frame numbers alone; this crate puts memory behind them and tells it who is running:
//!
//! - [`HostYard`] is a yard on such memory, and where to begin;
//! - [`HostTopology`] reads the machine that the program runs on;
//! - [`HostMemory`] is memory behind the frames of a yard: anonymous, memfd, hugetlb, a file, or nothing
//!   ([`Backing`]); [`Region`] is memory for its memory map and its control region;
//! - [`HostPlatform`] implements [`frameyard::Platform`]: CPU identity from `rseq`, waiting, worker threads;
//!   an [`InitWatch`] says how far a memory map has come up;
//! - [`DeviceMemory`] is a device whose bytes are a file, a memory file, a DAX device or nothing, which a platform is given
//!   with a range of frames; [`HostYard::map_device`] maps it in the yard, [`MemoryUse`] says what its page structures cost;
//! - [`IoRing`] registers memory with the host's kernel as `io_uring` buffers;
//! - [`SharedMemoryFile`] holds a whole yard for several processes, which [`spawn_workers`] starts by
//!   executing the program again; [`SharedWords`] are words that these use beside it.
//!
//! ```
//! use frameyard::{Gfp, MemoryTable, NodeId, Order, PageCount, Pfn, PfnRange, YardConfig};
//! use frameyard_host::{HostTopology, HostYard};
//!
//! // 64 MiB from 4 GiB on, two CPUs on one node.
//! let memory = [(PfnRange::new(Pfn(0x10_0000), PageCount(0x4000)), NodeId(0))];
//! let table = MemoryTable { memory: &memory, ..MemoryTable::default() };
//! let config = YardConfig::new(&[NodeId(0); 2]);
//! let yard = HostYard::builder().build(&table, &config, &HostTopology::current()?)?;
//! assert_eq!(yard.free_pages(), PageCount(0x4000));
//!
//! // Frames with an owner: their bytes are a slice, and they are freed when it is dropped.
//! let mut huge = yard.frames(Order(9), Gfp::KERNEL | Gfp::ZERO)?;
//! huge.bytes_mut().expect("real memory")[..5].copy_from_slice(b"hello");
//! assert_eq!(huge.bytes().expect("real memory").len(), 2 << 20);
//! assert_eq!(yard.free_pages(), PageCount(0x4000 - 512));
//! drop(huge);
//!
//! // Frame numbers without one, as kernels have them. A second free is an error and changes nothing.
//! let pfn = yard.alloc(Order(0), Gfp::KERNEL)?;
//! yard.free(pfn, Order(0))?;
//! assert!(yard.free(pfn, Order(0)).is_err());
//! assert_eq!(yard.free_pages(), PageCount(0x4000));
//! yard.validate()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! All system calls and all `unsafe` code are in the module `sys`.
#![deny(unsafe_code)]
#![cfg(target_os = "linux")]

mod cpu_list;
mod device;
mod device_map;
mod device_part;
mod device_problem;
mod hugetlb;
mod init_watch;
mod io_ring;
mod map_rates;
mod memory;
mod memory_use;
mod platform;
mod prefault;
mod processes;
mod processor_use;
mod region;
mod resident;
mod shared;
mod shared_words;
mod shared_yard;
mod speculation;
#[expect(unsafe_code, reason = "system calls and what they map are unsafe by nature; the module offers safe wrappers")]
mod sys;
#[cfg(test)]
mod test_tree;
mod topology;
mod yard;

pub use cpu_list::{CpuList, ParseCpuListError};
pub use device::{
    AddDeviceError, DeviceAlignment, DeviceBacking, DeviceMemory, DeviceMemoryBuilder, DeviceMemoryError,
    DeviceSharing, ParseAlignmentError,
};
pub use device_problem::{DeviceMapProblem, HostDeviceError};
pub use hugetlb::{HugetlbPool, HugetlbShortage, HugetlbSize};
pub use init_watch::InitWatch;
pub use io_ring::{IoBuffer, IoRing, IoRingError, RegisteredBuffers};
pub use map_rates::MapRates;
pub use memory::{
    Backing, FileGrowth, FrameBytesError, HostMemory, HostMemoryBuilder, HugePages, MemoryError, NodeBinding,
    NodeFrames,
};
pub use memory_use::{MappingLimit, MemoryUse, page_table_bytes};
pub use platform::{CpuIdentity, HostPlatform, LockTiming, PopulateMap, RseqUnavailable};
pub use prefault::PrefaultProgress;
pub use processes::{WorkerError, Workers, spawn_workers};
pub use processor_use::ProcessorUse;
pub use region::Region;
pub use resident::ResidentSize;
pub use shared::{HeaderError, InheritedFile, SharedFileError, SharedFrames, SharedLayout, SharedMemoryFile};
pub use shared_words::SharedWords;
pub use shared_yard::SharedYard;
pub use sys::frames::{MappedFrames, YardHandle};
pub use sys::yard::CountingYard;
pub use topology::{HostNode, HostTopology, TopologyError};
pub use yard::HostYard;
pub use yard::builder::HostYardBuilder;
pub use yard::error::{HostYardError, MapRegionProblem};

/// Runs the examples of the README as tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
