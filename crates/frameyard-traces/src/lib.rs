// Links of the README, which come first so that they replace its own links to docs.rs.
//! [`import`]: fn@import
//! [`Item`]: Item
//! [`TraceEvent`]: TraceEvent
//! [`BadLines`]: BadLines
//! [`Imported`]: Imported
//! [`TraceWriter`]: TraceWriter
//! [`LlfreeWriter`]: LlfreeWriter
//! [`write_csv`]: write_csv
//! [`write_text`]: write_text
//! [`ReplayPlan`]: replay::ReplayPlan
//! [`ReplayCopies`]: replay::ReplayCopies
//! [`TraceError`]: TraceError
//!
#![doc = include_str!("../README.md")]

mod error;
mod export;
pub mod file;
mod import;
mod llfree;
pub mod replay;
pub mod snapshot;

pub use error::TraceError;
pub use export::{CSV_HEADER, write_csv, write_fact, write_text};
pub use file::{Item, TraceWriter};
pub use frameyard_formats::{ExtFrag, GfpFlags, PageEvent, TraceEvent, TracedBlock};
pub use import::{BadLines, Imported, TraceFormat, import};
pub use llfree::LlfreeWriter;
