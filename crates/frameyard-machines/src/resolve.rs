//! Machines by name or file.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use super::bootlog::looks_like_boot_log;
use super::builtin::built_in_text;
use super::iomem::looks_like_iomem;
use super::{Machine, MachineError, built_in, built_in_names, from_boot_log, from_iomem, from_toml};

/// The size limit of a file. Larger files are devices or dumps, not descriptions.
const LARGEST_FILE: u64 = 64 << 20;

/// The minimum Jaro-Winkler similarity of a suggested name.
const MIN_SIMILARITY: f64 = 0.75;

/// The machine that `argument` names: a built-in machine, or a file.
///
/// A file whose name ends in `.toml` is a description. For other files the contents decide between boot messages, a resource
/// map as in `/proc/iomem`, and a description.
///
/// # Errors
///
/// [`MachineError::Unknown`] with the most similar built-in name, [`MachineError::Unreadable`], and the errors of the file's
/// reader.
pub fn resolve(argument: &str) -> Result<Machine, MachineError> {
    resolve_with_text(argument).map(|(machine, _)| machine)
}

/// As [`resolve`], with the text that was read.
///
/// # Errors
///
/// As for [`resolve`].
pub fn resolve_with_text(argument: &str) -> Result<(Machine, String), MachineError> {
    if let Some((machine, text)) = built_in(argument).zip(built_in_text(argument)) {
        return Ok((machine, text.to_owned()));
    }
    let path = Path::new(argument);
    if !path.exists() && !argument.contains(std::path::MAIN_SEPARATOR) && path.extension().is_none() {
        return Err(MachineError::Unknown { name: argument.to_owned(), nearest: nearest(argument) });
    }
    let text = read(argument)?;
    let machine = if path.extension().is_some_and(|ending| ending == "toml") {
        from_toml(argument, &text)
    } else if looks_like_iomem(&text) {
        from_iomem(argument, &text)
    } else if looks_like_boot_log(&text) {
        from_boot_log(argument, &text)
    } else {
        from_toml(argument, &text)
    };
    Ok((machine?, text))
}

/// The most similar built-in name, if one is similar enough.
fn nearest(name: &str) -> Option<String> {
    let name = name.to_ascii_lowercase();
    built_in_names()
        .map(|known| (strsim::jaro_winkler(&name, known), known))
        .filter(|(similarity, _)| *similarity >= MIN_SIMILARITY)
        .max_by(|one, other| one.0.total_cmp(&other.0))
        .map(|(_, known)| known.to_owned())
}

/// The text of a file. Bytes that are not UTF-8, which boot messages may contain, become replacement characters.
fn read(file: &str) -> Result<String, MachineError> {
    let unreadable = |reason: String| MachineError::Unreadable { file: file.to_owned(), reason };
    let mut bytes = Vec::new();
    let open = File::open(file).map_err(|error| unreadable(error.to_string()))?;
    open.take(LARGEST_FILE + 1).read_to_end(&mut bytes).map_err(|error| unreadable(error.to_string()))?;
    if bytes.len() as u64 > LARGEST_FILE {
        return Err(unreadable("it is larger than 64 MiB: a description of a machine has a few KiB".to_owned()));
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mistyped_name_suggests_the_most_similar() {
        let error = resolve("skylak-112").unwrap_err();
        let text = "unknown machine 'skylak-112': did you mean skylake-112? (see `frameyard machines`)";
        assert_eq!(error.to_string(), text);
        assert!(matches!(resolve("qqq").unwrap_err(), MachineError::Unknown { nearest: None, .. }));
    }

    #[test]
    fn a_missing_file_is_unreadable() {
        assert!(matches!(resolve("no/such.toml").unwrap_err(), MachineError::Unreadable { .. }));
        assert!(matches!(resolve("missing.toml").unwrap_err(), MachineError::Unreadable { .. }));
        assert!(matches!(resolve(".").unwrap_err(), MachineError::Unreadable { .. }));
    }
}
