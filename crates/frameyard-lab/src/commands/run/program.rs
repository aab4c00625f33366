//! The program to run: its file, and whether the dynamic linker would load a library into it.

use std::env;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};

use crate::Failure;

/// The mode bits for set-user-ID and set-group-ID.
const SET_ID: u32 = 0o6000;
/// The extended attribute with the capabilities that a program gets when it is executed.
const CAPABILITIES: &str = "security.capability";
const EXECUTABLE: u32 = 0o111;
/// The type of the program header that names the dynamic linker.
const PT_INTERP: u32 = 3;
/// An ELF file of 64 bits, little-endian, for x86-64.
const ELF: &[u8] = b"\x7fELF\x02\x01";
const X86_64: u16 = 62;
/// More program headers than programs have.
const MOST_HEADERS: u16 = 1024;

/// A file that can be executed.
#[derive(Debug)]
pub(super) struct Program {
    path: PathBuf,
}

impl Program {
    /// Finds a program as a shell does: a name without a slash is looked up in `PATH`.
    pub(super) fn find(name: &OsStr) -> Result<Self, Failure> {
        let is_program = |path: &PathBuf| {
            fs::metadata(path).is_ok_and(|file| file.is_file() && file.permissions().mode() & EXECUTABLE != 0)
        };
        let found = if name.as_encoded_bytes().contains(&b'/') {
            Some(PathBuf::from(name)).filter(is_program)
        } else {
            let folders = env::var_os("PATH").unwrap_or_default();
            env::split_paths(&folders).map(|folder| folder.join(name)).find(is_program)
        };
        let missing = || Failure::input(format!("there is no program {}", name.to_string_lossy()));
        found.map(|path| Self { path }).ok_or_else(missing)
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Refuses programs that would run without the library: those with rights of their own, and those without a dynamic linker. For a
    /// script, checks its interpreter.
    pub(super) fn check(&self) -> Result<(), Failure> {
        let refuse = |reason: &str| Err(Failure::input(format!("{} {reason}", self.path.display())));
        let unreadable = |error| Failure::input(format!("cannot read {}: {error}", self.path.display()));
        let file = File::open(&self.path).map_err(unreadable)?;
        if file.metadata().map_err(unreadable)?.permissions().mode() & SET_ID != 0 {
            return refuse("is a set-user-ID or set-group-ID program: the dynamic linker would ignore the library");
        }
        if rustix::fs::fgetxattr(&file, CAPABILITIES, &mut [0_u8; 64]).is_ok_and(|bytes| bytes > 0) {
            return refuse("has capabilities: the dynamic linker would ignore the library");
        }
        let mut start = Vec::new();
        (&file).take(256).read_to_end(&mut start).map_err(unreadable)?;
        if let Some(line) = start.strip_prefix(b"#!") {
            let line = String::from_utf8_lossy(line);
            return match line.lines().next().unwrap_or_default().split_whitespace().next() {
                Some(interpreter) => Self { path: interpreter.into() }.check_interpreter(),
                None => refuse("names no interpreter"),
            };
        }
        match has_dynamic_linker(&file, &start) {
            Some(true) => Ok(()),
            Some(false) => refuse("is a static program: it has no dynamic linker that could load the library"),
            None => refuse("is no program for x86-64"),
        }
    }

    /// Checks the interpreter of a script, which is no script itself.
    fn check_interpreter(&self) -> Result<(), Failure> {
        let mut start = [0; 2];
        let is_script =
            File::open(&self.path).is_ok_and(|file| file.read_exact_at(&mut start, 0).is_ok() && start == *b"#!");
        if is_script {
            return Err(Failure::input(format!("the interpreter {} is a script itself", self.path.display())));
        }
        self.check()
    }
}

/// Whether an ELF file names a dynamic linker; `None` if it is no program for this machine.
fn has_dynamic_linker(file: &File, start: &[u8]) -> Option<bool> {
    let word = |at: usize, len: usize| {
        let bytes = start.get(at..at + len)?;
        Some(bytes.iter().rev().fold(0_u64, |value, byte| value << 8 | u64::from(*byte)))
    };
    if !start.starts_with(ELF) || word(18, 2)? != u64::from(X86_64) {
        return None;
    }
    let (offset, size, count) = (word(32, 8)?, word(54, 2)?, word(56, 2)?.min(MOST_HEADERS.into()));
    for header in 0..count {
        let mut kind = [0; 4];
        file.read_exact_at(&mut kind, offset.checked_add(header * size)?).ok()?;
        if u32::from_le_bytes(kind) == PT_INTERP {
            return Some(true);
        }
    }
    Some(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An executable file in a folder of the test's own.
    fn program(name: &str, bytes: &[u8], mode: u32) -> Program {
        let folder = env::temp_dir().join(format!("frameyard-program-{name}-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let path = folder.join(name);
        fs::write(&path, bytes).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        Program { path }
    }

    /// A header with one program header of that type.
    fn elf(machine: u16, kind: u32) -> Vec<u8> {
        let mut bytes = vec![0; 64 + 56];
        bytes[..6].copy_from_slice(ELF);
        bytes[18..20].copy_from_slice(&machine.to_le_bytes());
        bytes[32] = 64;
        bytes[54] = 56;
        bytes[56] = 1;
        bytes[64..68].copy_from_slice(&kind.to_le_bytes());
        bytes
    }

    /// Removes the file and its folder.
    fn remove(program: &Program) {
        fs::remove_dir_all(program.path.parent().unwrap()).unwrap();
    }

    fn refusal(program: &Program) -> String {
        program.check().map_or_else(|failure| failure.to_string(), |()| "none".to_owned())
    }

    #[test]
    fn programs_that_would_run_without_the_library_are_refused() {
        let cases: [(&str, Vec<u8>, u32, &str); 8] = [
            ("dynamic", elf(X86_64, PT_INTERP), 0o755, "none"),
            ("static", elf(X86_64, 1), 0o755, "static program"),
            ("set-user", elf(X86_64, PT_INTERP), 0o4755, "set-user-ID"),
            ("set-group", elf(X86_64, PT_INTERP), 0o2755, "set-user-ID or set-group-ID"),
            ("other-machine", elf(183, PT_INTERP), 0o755, "no program for x86-64"),
            ("cut", elf(X86_64, PT_INTERP)[..60].to_vec(), 0o755, "no program for x86-64"),
            ("script", b"#! /bin/sh -e\nexit\n".to_vec(), 0o755, "none"),
            ("bare-script", b"#!\n".to_vec(), 0o755, "names no interpreter"),
        ];
        for (name, bytes, mode, expected) in cases {
            let program = program(name, &bytes, mode);
            let refusal = refusal(&program);
            assert!(refusal.contains(expected), "{name}: {refusal}");
            remove(&program);
        }
        let outer = program("script-of-script", b"", 0o755);
        let inner = program("inner-script", b"#! /bin/sh\n", 0o755).path;
        fs::write(&outer.path, format!("#!{}\n", inner.display())).unwrap();
        assert!(refusal(&outer).contains("is a script itself"));
        fs::remove_dir_all(inner.parent().unwrap()).unwrap();
        remove(&outer);
    }

    #[test]
    fn a_program_with_capabilities_is_refused() {
        let program = program("capable", &elf(X86_64, PT_INTERP), 0o755);
        // Version 2, permitted: CAP_NET_RAW.
        let capabilities: Vec<u8> =
            [0x0200_0000_u32, 1 << 13, 0, 0, 0].iter().flat_map(|word| word.to_le_bytes()).collect();
        let flags = rustix::fs::XattrFlags::empty();
        match rustix::fs::setxattr(program.path(), CAPABILITIES, &capabilities, flags) {
            Ok(()) => assert!(refusal(&program).contains("has capabilities"), "{}", refusal(&program)),
            Err(error) => {
                println!("skipped: capabilities of a file, which this user or file system does not allow: {error}");
            }
        }
        remove(&program);
    }

    #[test]
    fn names_without_a_slash_are_looked_up() {
        assert!(Program::find(OsStr::new("sh")).unwrap().path().is_absolute());
        let missing = Program::find(OsStr::new("no-such-program")).unwrap_err();
        assert_eq!(missing.to_string(), "there is no program no-such-program");
    }
}
