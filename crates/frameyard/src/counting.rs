//! A platform that counts what a yard does: accesses to page structures and other shared lines, distinct cache lines
//! touched under the zone lock and outside it, and lock acquisitions by kind. Needs the feature `counting`.
//!
//! A `CountingPlatform` wraps another platform and passes each call on to it. Attach a second view of an existing yard
//! with it (`Yard::attach`), and run the workload to be counted through that view. Counting makes each access slower,
//! so measure times in a separate run.
//!
//! # What is counted
//!
//! | figure | counted |
//! |---|---|
//! | accesses | each read or write of a page structure |
//! | lines | distinct page structures touched within one *stretch* |
//! | other lines | the same for all other lines: words of locks, lists, the allocation map, types of pageblocks, counters |
//! | prefetches | page structures requested ahead of time |
//! | locks | acquisitions, contended acquisitions and refused attempts, by kind of lock |
//!
//! A stretch is one hold of a zone lock, or the part of a refill or drain before, between or after such holds. A line
//! touched ten times in one hold counts once. A line touched in two holds counts twice, because another CPU may have fetched
//! it in between. `CountingPlatform::in_one_stretch` counts a whole call as one stretch.
//!
//! The example `bulk_lines` counts the lines of a block in bulk allocation, by policy.
//!
//! # Counters
//!
//! Each task counts in `TaskCounters` of its own that no other task writes. The caller provides a slice of them and a function
//! that returns the number of the current task. `TaskCounters` belong to the first task that uses them. If a second task maps
//! to the same ones, it counts nothing and `Counted::lost` rises.
//!
//! ```rust
//! use std::alloc::{Layout as Heap, alloc_zeroed};
//! use std::ptr::NonNull;
//!
//! use frameyard::*;
//! use frameyard::boot::ZoneLimits;
//! use frameyard::platform::LockKind;
//! use frameyard::counting::{CountingPlatform, TaskCounters};
//!
//! /// One CPU and no memory behind the frames.
//! struct Bare;
//!
//! impl Platform for Bare {
//!     type Guard = ();
//!     fn guard(&self) {}
//!     fn current_cpu(&self) -> CpuId { CpuId(0) }
//!     fn spin(&self, _round: u32) {}
//!     fn frame_bytes(&self, _pfn: Pfn) -> Option<NonNull<u8>> { None }
//! }
//!
//! let memory = [(PfnRange::new(Pfn(0x100), PageCount(0x4000)), NodeId(0))];
//! let source = MemoryTable { memory: &memory, ..MemoryTable::default() };
//! let config = YardConfig { zone_limits: ZoneLimits::NONE, ..YardConfig::new(&[NodeId(0)]) };
//! let layout = Layout::plan(&source, &config)?;
//! let region = |size: ByteSize| {
//!     let heap = Heap::from_size_align(size.0 as usize, 128).expect("a valid layout");
//!     // SAFETY: the size is not 0.
//!     RawRegion { base: NonNull::new(unsafe { alloc_zeroed(heap) }).expect("memory"), size }
//! };
//! let (map, control) = (region(layout.map_bytes()), region(layout.control_bytes()));
//!
//! let tasks: [TaskCounters; 1] = [TaskCounters::default()];
//! let platform = CountingPlatform::new(&Bare, &tasks, || 0);
//! // SAFETY: fresh zeroed memory with no other user, never freed.
//! let yard = unsafe { Yard::create(&source, &config, &layout, map, control, platform)? };
//!
//! let before = yard.platform().counted();
//! let frame = yard.alloc(Order(0), Gfp::KERNEL)?;
//! let counted = yard.platform().counted().since(&before);
//! assert!(counted.refill.spans >= 1); // the first allocation refills the per-CPU list
//! assert!(counted.locks(LockKind::PerCpu).acquisitions >= 1);
//! assert_eq!(counted.lost, 0);
//! yard.free(frame, Order(0))?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod counted;
mod platform;
mod task_counters;

pub use counted::{Counted, LineTouches, LocksTaken, PageTouches, SpanTouches};
pub use platform::CountingPlatform;
pub use task_counters::TaskCounters;
