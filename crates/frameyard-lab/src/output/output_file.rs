//! Files that results are written to.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::{Arc, OnceLock};

use crate::Failure;

/// A file for results. It is opened before the work that fills it begins, so that a bad path is found first. Clones are
/// the same file.
#[derive(Clone, Debug)]
pub(crate) struct OutputFile {
    path: PathBuf,
    file: Arc<OnceLock<File>>,
}

impl OutputFile {
    /// Creates the file, or opens it. What is in it stays until results are written.
    ///
    /// # Errors
    ///
    /// [`Failure::Input`].
    pub(crate) fn create(path: impl Into<PathBuf>) -> Result<Self, Failure> {
        let file = Self { path: path.into(), file: Arc::default() };
        file.open()?;
        Ok(file)
    }

    /// The path.
    #[must_use]
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Opens the file where that was not done before.
    ///
    /// # Errors
    ///
    /// [`Failure::Input`].
    pub(crate) fn open(&self) -> Result<&File, Failure> {
        if let Some(file) = self.file.get() {
            return Ok(file);
        }
        let opened = File::options().create(true).truncate(false).write(true).open(&self.path);
        let opened =
            opened.map_err(|error| Failure::input(format!("{}: cannot write: {error}", self.path.display())))?;
        Ok(self.file.get_or_init(|| opened))
    }

    /// Replaces the contents by what `write` writes.
    ///
    /// # Errors
    ///
    /// [`Failure::RunTime`].
    pub(crate) fn write(&self, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<(), Failure> {
        let mut file = self.open()?;
        let replace = || {
            // A pipe or a device has no length.
            if file.metadata()?.is_file() {
                file.set_len(0)?;
            }
            let mut out = BufWriter::new(&mut file);
            write(&mut out)?;
            out.flush()
        };
        replace().map_err(|error| Failure::run_time(format!("{}: cannot write: {error}", self.path.display())))
    }
}

impl FromStr for OutputFile {
    type Err = std::convert::Infallible;

    /// The file of a command line, which is opened when the whole line has been read.
    fn from_str(path: &str) -> Result<Self, Self::Err> {
        Ok(Self { path: path.into(), file: Arc::default() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contents_stay_until_results_replace_them() {
        let path = std::env::temp_dir().join(format!("frameyard-output-{}", std::process::id()));
        std::fs::write(&path, "earlier results").unwrap();
        let file = OutputFile::create(&path).unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "earlier results");
        file.write(|out| out.write_all(b"new")).unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "new");
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn a_missing_folder_is_bad_input() {
        let refused = OutputFile::create("/no/such/folder/rows.csv").unwrap_err();
        assert_eq!(refused.code(), 2);
        assert!(refused.to_string().starts_with("/no/such/folder/rows.csv: cannot write: "), "{refused}");
    }
}
