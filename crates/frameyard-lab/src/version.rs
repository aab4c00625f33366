//! Which build of the program this is.

/// The version of the package.
pub(crate) const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The commit it was built from, `-dirty` when the sources differ from it, or `unknown`.
pub(crate) const COMMIT: &str = env!("FRAMEYARD_COMMIT");

/// What `frameyard --version` prints behind the program's name.
pub(crate) const LONG_VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), " (", env!("FRAMEYARD_COMMIT"), ")");
