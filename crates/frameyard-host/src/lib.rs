// Links of the README, which come first so that they replace its own links to docs.rs.
//! [`HostYard`]: HostYard
//! [`HostYardBuilder`]: HostYardBuilder
//! [`MappedFrames`]: MappedFrames
//! [`HostRequest`]: HostRequest
//! [`Order`]: #reexport.Order
//! [`Gfp`]: #reexport.Gfp
//! [`Pfn`]: #reexport.Pfn
//! [`AllocError`]: #reexport.AllocError
//! [`HostYardError`]: HostYardError
//! [`ObservedYard`]: ObservedYard
//!
#![doc = include_str!("../README.md")]
#![deny(unsafe_code)]
#![cfg(target_os = "linux")]

mod budget;
mod cpu_list;
mod device;
mod device_map;
mod device_part;
mod device_problem;
mod hugetlb;
mod init_watch;
mod io_ring;
mod kernel_text;
mod map_rates;
mod map_tails;
#[expect(unsafe_code, reason = "the core cannot check that the memory of a yard outlives it; the module does")]
mod mapped;
mod memory;
mod memory_use;
mod observed_yard;
mod platform;
mod prefault;
mod processes;
mod processor_use;
mod region;
mod resident;
mod shared;
mod shared_words;
mod speculation;
#[expect(
    unsafe_code,
    reason = "system calls and the memory that they map are unsafe; the module wraps them in safe types"
)]
mod sys;
#[cfg(test)]
mod test_addresses;
#[cfg(test)]
mod test_huge_pages;
#[cfg(test)]
mod test_tree;
mod topology;
mod yard;

/// The names of the core that most programs need. The crate [`frameyard`] has the rest.
#[doc(no_inline)]
pub use frameyard::{AllocError, ByteSize, FreeError, Gfp, NodeId, Order, PageCount, Pfn, PfnRange, Yard};

pub use budget::{Budget, BudgetError, BudgetProcess, BudgetShare};
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
pub use mapped::frames::{MappedFrames, YardHandle};
pub use mapped::yard::CountingYard;
pub use memory::{
    Backing, FileGrowth, FrameBytesError, HostMemory, HostMemoryBuilder, HugePages, MemoryError, NodeBinding,
    NodeFrames,
};
pub use memory_use::{MappingLimit, MemoryUse, page_table_bytes};
pub use observed_yard::ObservedYard;
pub use platform::{CpuIdentity, HostPlatform, ListAccess, LockTiming, PopulateMap, RseqUnavailable};
pub use prefault::PrefaultProgress;
pub use processes::{WorkerError, Workers, spawn_workers};
pub use processor_use::ProcessorUse;
pub use region::Region;
pub use resident::ResidentSize;
pub use shared::{
    HeaderError, InheritedFile, SharedFileError, SharedFrames, SharedLayout, SharedMemoryFile, SharedPlace,
};
pub use shared_words::SharedWords;
pub use topology::{HostNode, HostTopology, TopologyError};
pub use yard::HostYard;
pub use yard::builder::HostYardBuilder;
pub use yard::error::{HostYardError, MapRegionProblem};
pub use yard::request::HostRequest;

/// The samples of the documents.
#[cfg(doctest)]
mod documents {
    #[doc = include_str!("../../../README.md")]
    struct Readme;

    #[doc = include_str!("../../../docs/guide/2-hosted.md")]
    struct Hosted;

    #[doc = include_str!("../../../docs/guide/5-tuning.md")]
    struct Tuning;
}
