//! Huge pages in ordinary memory whose page maps take almost no memory: pools of pages of 2 MiB and 1 GiB.
//!
//! [`Yard::huge_pages`](crate::Yard::huge_pages) reserves blocks for a pool, hands pages out and takes them back. Only the map page
//! with the head of each page keeps its memory, 1 of 8 or 1 of 4096: the host takes back the memory behind the structures of the
//! tails (the kernel's hugetlbfs with HVO, `hugetlb_free_vmemmap`).
//!
//! A pool suits memory that is used in whole huge pages for long: that of virtual machines, or the buffers of a database. The
//! reserved memory serves no other request until the pool shrinks.

pub use crate::huge_pool::{HugePageError, HugePageSize, HugePoolStatistics};
pub use crate::yard::{HugePage, Reserved};
