//! Finds the yard to watch: by its name, by a process that uses it, or the only one there is.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use frameyard_host::{HostYardError, ObservedYard, SharedFileError};

use crate::Failure;

/// Where named yards lie.
const NAMED: &str = "/dev/shm/";
/// What the links of descriptors of memory files without names begin with.
const UNNAMED: &str = "/memfd:frameyard";

/// A yard that is in use.
#[derive(Debug)]
pub(super) struct Found {
    /// Its name, or the number of a process that uses it.
    pub(super) name: String,
    pub(super) yard: ObservedYard,
}

/// The yard of a name or process number, or the only one there is.
///
/// # Errors
///
/// [`Failure::Input`] that says what to write instead.
pub(super) fn find(wanted: Option<&str>) -> Result<Found, Failure> {
    match wanted {
        None => the_only_one(),
        Some(name) => match name.parse::<u32>() {
            Ok(process) if !Path::new(NAMED).join(name).exists() => of_process(process),
            _ => named(name),
        },
    }
}

fn named(name: &str) -> Result<Found, Failure> {
    match ObservedYard::open(name) {
        Ok(yard) if yard.processes().map_err(Failure::run_time)?.is_empty() => {
            Err(Failure::input(format!("{name}: the processes of this yard have ended; {}", those_there_are())))
        }
        Ok(yard) => Ok(Found { name: name.to_owned(), yard }),
        Err(HostYardError::File(SharedFileError::NoSuchName(_))) => {
            Err(Failure::input(format!("{name}: there is no shared yard of this name; {}", those_there_are())))
        }
        Err(error) => Err(Failure::input(format!("{name}: {error}"))),
    }
}

fn of_process(process: u32) -> Result<Found, Failure> {
    let files = match open_files(process) {
        Ok(files) => files,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Err(Failure::input(format!("{process}: there is no such process; {}", those_there_are())));
        }
        Err(error) => return Err(Failure::input(format!("process {process}: its files cannot be read: {error}"))),
    };
    let mut yards = Yards::default();
    files.iter().filter(|file| file.link.is_absolute()).for_each(|file| yards.add(process, file));
    one_of(yards, || format!("process {process} has no shared yard; {}", those_there_are()))
}

fn the_only_one() -> Result<Found, Failure> {
    one_of(in_use(), || {
        "no process has a shared yard here: name one at another path, or start one, as with frameyard stress --mode processes".to_owned()
    })
}

/// The yard, if there is one. `none` words the refusal if there is none.
fn one_of(yards: Yards, none: impl FnOnce() -> String) -> Result<Found, Failure> {
    let mut found = yards.0.into_values();
    match (found.next(), found.len()) {
        (None, _) => Err(Failure::input(none())),
        (Some(yard), 0) => Ok(yard),
        (Some(first), _) => {
            let names: Vec<String> = std::iter::once(first.name).chain(found.map(|yard| yard.name)).collect();
            Err(Failure::input(format!("there are {} shared yards: name one of {}", names.len(), names.join(", "))))
        }
    }
}

/// A sentence with the yards that are in use.
fn those_there_are() -> String {
    let names: Vec<String> = in_use().0.into_values().map(|found| found.name).collect();
    if names.is_empty() { "there are none".to_owned() } else { format!("there are {}", names.join(", ")) }
}

/// All yards that processes use, except at paths outside `/dev/shm`.
fn in_use() -> Yards {
    let mut yards = Yards::default();
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let numbers = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    for process in numbers.filter(|process| *process != std::process::id()) {
        // A process that has ended, or whose files only root may read.
        let files = open_files(process).unwrap_or_default();
        let usual = |file: &&OpenFile| [NAMED, UNNAMED].iter().any(|begin| file.link_text().starts_with(begin));
        files.iter().filter(usual).for_each(|file| yards.add(process, file));
    }
    yards
}

/// Yards by device and inode of their files: processes that share one are found more than once.
#[derive(Debug, Default)]
struct Yards(BTreeMap<(u64, u64), Found>);

impl Yards {
    /// Adds the yard behind an open file of a process, if there is one.
    fn add(&mut self, process: u32, file: &OpenFile) {
        let Some(id) = regular_file(&file.path).filter(|id| !self.0.contains_key(id)) else { return };
        let Ok(yard) = ObservedYard::open(&file.path) else { return };
        if yard.processes().is_ok_and(|processes| !processes.is_empty()) {
            let name = name_of(id, &file.link).unwrap_or_else(|| process.to_string());
            self.0.insert(id, Found { name, yard });
        }
    }
}

/// A descriptor of a process.
#[derive(Debug)]
struct OpenFile {
    /// Opens the same file.
    path: PathBuf,
    /// The file that it is open on.
    link: PathBuf,
}

impl OpenFile {
    fn link_text(&self) -> String {
        self.link.to_string_lossy().into_owned()
    }
}

fn open_files(process: u32) -> io::Result<Vec<OpenFile>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(format!("/proc/{process}/fd"))? {
        let path = entry?.path();
        // It may have been closed.
        if let Ok(link) = fs::read_link(&path) {
            files.push(OpenFile { path, link });
        }
    }
    files.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(files)
}

/// The name of a yard with that file, or its path; `None` if it has none. The descriptors of the process that created it show the name that
/// the file had before.
fn name_of(id: (u64, u64), link: &Path) -> Option<String> {
    let named =
        fs::read_dir(NAMED).into_iter().flatten().flatten().find(|entry| regular_file(&entry.path()) == Some(id));
    match named {
        Some(entry) => Some(entry.file_name().to_string_lossy().into_owned()),
        None => (regular_file(link) == Some(id)).then(|| link.to_string_lossy().into_owned()),
    }
}

/// Device and inode of a regular file.
fn regular_file(path: &Path) -> Option<(u64, u64)> {
    let metadata = fs::metadata(path).ok().filter(fs::Metadata::is_file)?;
    Some((metadata.dev(), metadata.ino()))
}

#[cfg(test)]
mod tests {
    use frameyard::ByteSize;
    use frameyard_host::HostYard;

    use super::*;

    #[test]
    fn a_yard_is_found_by_its_name_and_by_its_process() {
        let name = format!("frameyard-top-find-{}", std::process::id());
        let yard = HostYard::create_shared(&name, ByteSize::mib(16)).unwrap();
        assert_eq!(Some(find(Some(&name)).unwrap().yard.path()), yard.path());
        let this = std::process::id();
        // Other tests of this process may have yards, too.
        match find(Some(&this.to_string())) {
            Ok(found) => assert_eq!(found.name, name),
            Err(several) => assert!(several.to_string().contains(&name), "{several}"),
        }
        drop(yard);
        let gone = find(Some(&name)).unwrap_err();
        assert!(gone.to_string().contains("there is no shared yard of this name") && gone.code() == 2, "{gone}");
    }

    #[test]
    fn refusals_say_what_is_missing() {
        let of = |wanted: &str| find(Some(wanted)).unwrap_err().to_string();
        assert!(of("4294967295").contains("4294967295: there is no such process"), "{}", of("4294967295"));
        assert!(of("/proc/self/status").contains("not a memory file of a yard"), "{}", of("/proc/self/status"));
    }
}
