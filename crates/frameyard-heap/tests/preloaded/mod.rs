//! Running and compiling programs for the library.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// The heaps of the library.
pub(crate) const HEAPS: [&str; 2] = ["jemalloc", "mimalloc"];

/// The library, which cargo builds beside the tests.
pub(crate) fn library() -> PathBuf {
    let test = std::env::current_exe().expect("the test's own path");
    let folders = test.ancestors().skip(2).take(1).map(|folder| folder.join("examples/libframeyard_malloc.so"));
    folders.into_iter().find(|path| path.is_file()).expect("libframeyard_malloc.so beside the tests")
}

/// Runs a command under the library.
pub(crate) fn run(command: &mut Command, variables: &[(&str, &str)]) -> Output {
    command.env("LD_PRELOAD", library());
    for variable in ["FRAMEYARD_HEAP", "FRAMEYARD_MEMORY", "FRAMEYARD_POLICY", "FRAMEYARD_SUMMARY", "FRAMEYARD_SHARED"]
    {
        command.env_remove(variable);
    }
    command.envs(variables.iter().copied()).output().expect("the command runs")
}

/// A folder that goes away with the value.
pub(crate) struct Folder(pub(crate) PathBuf);

impl Folder {
    pub(crate) fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("frameyard-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        Self(folder)
    }

    /// Compiles a program or a library of the folder `c`.
    pub(crate) fn compile(&self, source: &str, options: &[&str]) -> PathBuf {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c").join(source);
        let made = self.0.join(source.file_stem().expect("a name"));
        let mut compiler = Command::new("cc");
        // Without optimisation a compiler keeps allocations whose result is not used.
        compiler.args([
            "-O0",
            "-Wall",
            "-Wextra",
            "-Werror",
            "-pthread",
            "-D_GNU_SOURCE",
            "-Wno-alloc-size-larger-than",
        ]);
        let status = compiler.args(options).arg(&source).arg("-o").arg(&made).arg("-ldl").status();
        assert!(status.expect("`cc` runs").success(), "{}", source.display());
        made
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The output of a program that ends without an error and says nothing on standard error.
pub(crate) fn success_of(command: &mut Command, variables: &[(&str, &str)]) -> String {
    let output = run(command, variables);
    let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{}: {stdout}{stderr}", output.status);
    assert_eq!(stderr, "");
    stdout
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
