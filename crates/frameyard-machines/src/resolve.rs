//! From what a user calls a machine to the machine.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use super::bootlog::looks_like_boot_log;
use super::iomem::looks_like_iomem;
use super::{Machine, MachineError, built_in, built_in_names, from_boot_log, from_iomem, from_toml};

/// No description of a machine is as large as this; a device or a dump is.
const LARGEST_FILE: u64 = 64 << 20;

/// How alike a name must be to a built-in one to be suggested, by Jaro-Winkler.
const ALIKE: f64 = 0.75;

/// The machine that `argument` names: a built-in machine, or a file.
///
/// A file that ends in `.toml` is a description; any other is told by what it holds: boot messages, a resource
/// map as in `/proc/iomem`, else a description.
///
/// # Errors
///
/// [`MachineError::Unknown`] with the built-in name most like it for what is neither;
/// [`MachineError::Unreadable`], and whatever the reader of the file's kind finds.
pub fn resolve(argument: &str) -> Result<Machine, MachineError> {
    if let Some(machine) = built_in(argument) {
        return Ok(machine);
    }
    let path = Path::new(argument);
    if !path.exists() && !argument.contains(std::path::MAIN_SEPARATOR) && path.extension().is_none() {
        return Err(MachineError::Unknown { name: argument.to_owned(), nearest: nearest(argument) });
    }
    let text = read(argument)?;
    if path.extension().is_some_and(|ending| ending == "toml") {
        from_toml(argument, &text)
    } else if looks_like_iomem(&text) {
        from_iomem(argument, &text)
    } else if looks_like_boot_log(&text) {
        from_boot_log(argument, &text)
    } else {
        from_toml(argument, &text)
    }
}

/// The built-in name most like the given one, if any is like it.
fn nearest(name: &str) -> Option<String> {
    let name = name.to_ascii_lowercase();
    built_in_names()
        .map(|known| (strsim::jaro_winkler(&name, known), known))
        .filter(|(alike, _)| *alike >= ALIKE)
        .max_by(|one, other| one.0.total_cmp(&other.0))
        .map(|(_, known)| known.to_owned())
}

/// The text of a file; bytes that are no UTF-8, which boot messages may have, become replacement characters.
fn read(file: &str) -> Result<String, MachineError> {
    let unreadable = |reason: String| MachineError::Unreadable { file: file.to_owned(), reason };
    let mut bytes = Vec::new();
    let open = File::open(file).map_err(|error| unreadable(error.to_string()))?;
    open.take(LARGEST_FILE + 1).read_to_end(&mut bytes).map_err(|error| unreadable(error.to_string()))?;
    if bytes.len() as u64 > LARGEST_FILE {
        return Err(unreadable("it has more than 64 MiB: a description of a machine has a few KiB".to_owned()));
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mistyped_name_suggests_the_nearest() {
        let error = resolve("skylak-112").unwrap_err();
        let text = "unknown machine 'skylak-112': did you mean skylake-112? (see `frameyard machines`)";
        assert_eq!(error.to_string(), text);
        assert!(matches!(resolve("qqq").unwrap_err(), MachineError::Unknown { nearest: None, .. }));
    }

    #[test]
    fn a_file_that_is_not_there_is_said_to_be_unreadable() {
        assert!(matches!(resolve("no/such.toml").unwrap_err(), MachineError::Unreadable { .. }));
        assert!(matches!(resolve("missing.toml").unwrap_err(), MachineError::Unreadable { .. }));
        assert!(matches!(resolve(".").unwrap_err(), MachineError::Unreadable { .. }));
    }
}
