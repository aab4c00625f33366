//! Free-page reporting: giving the memory behind free frames back to the host.
//!
//! [`Yard::report_free_pages`](crate::Yard::report_free_pages) takes large free blocks off the free lists, a few at a time, hands them to
//! [`MapBacking::return_frames`](crate::platform::MapBacking::return_frames), and puts them back with a mark in their tags. The next
//! allocation of a block ends its mark. After the kernel's `page_reporting_process`.

pub use crate::yard::{ReportError, ReportOutcome};
