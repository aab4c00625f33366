//! Reading of source trees.

use std::path::{Path, PathBuf};

/// A source file: its path and text.
pub(crate) struct SourceFile {
    pub(crate) path: PathBuf,
    pub(crate) text: String,
}

/// All Rust files below a folder, with paths relative to it.
pub(crate) fn rust_files(folder: &Path) -> Result<Vec<SourceFile>, String> {
    let mut files = Vec::new();
    for path in walk(folder)? {
        if path.extension().is_some_and(|extension| extension == "rs") {
            let text = read(&path)?;
            let path = path.strip_prefix(folder).map_err(|error| error.to_string())?.to_owned();
            files.push(SourceFile { path, text });
        }
    }
    Ok(files)
}

/// All files below a folder, sorted, without build outputs.
pub(crate) fn walk(folder: &Path) -> Result<Vec<PathBuf>, String> {
    let mut files = Vec::new();
    for path in entries(folder)? {
        if !path.is_dir() {
            files.push(path);
        } else if path.file_name().is_none_or(|name| name != "target") {
            files.extend(walk(&path)?);
        }
    }
    Ok(files)
}

/// The entries of a folder, sorted.
pub(crate) fn entries(folder: &Path) -> Result<Vec<PathBuf>, String> {
    let mut paths = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(|error| format!("{}: {error}", folder.display()))? {
        paths.push(entry.map_err(|error| format!("{}: {error}", folder.display()))?.path());
    }
    paths.sort();
    Ok(paths)
}

pub(crate) fn read(path: &Path) -> Result<String, String> {
    std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))
}
