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
