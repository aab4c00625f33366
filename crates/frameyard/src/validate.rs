//! The validator: what [`Yard::validate`](crate::Yard::validate) checks, and the error that names the first violation.
//!
//! Each structure of a yard has counting equations, stated above its definition: a zone's managed frames are the frames
//! on its free lists, on per-CPU lists, in the policies' stores, and allocated. The validator recounts every list and
//! every initialised page, and compares. It expects a yard without operations in flight.

pub use crate::yard::{ListKind, ValidateError};
