//! Tells the program which commit it was built from, as `FRAMEYARD_COMMIT`.
//!
//! In order: the commit that `cargo package` recorded, the commit of the checkout around the workspace
//! (with `-dirty` when sources differ from it), or `unknown`. Nothing here can fail the build.

use std::path::{Path, PathBuf};
use std::process::Command;

/// What is compiled into the program: when one of these differs from the commit, the build is `-dirty`.
const SOURCES: [&str; 3] = ["crates", "Cargo.toml", "Cargo.lock"];

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let package = PathBuf::from(std::env::var_os("CARGO_MANIFEST_DIR").unwrap_or_default());
    let commit = packaged(&package).or_else(|| checked_out(&package)).unwrap_or_else(|| "unknown".to_owned());
    println!("cargo::rustc-env=FRAMEYARD_COMMIT={commit}");
}

/// The commit in the record that `cargo package` leaves in a published crate.
fn packaged(package: &Path) -> Option<String> {
    let record = std::fs::read_to_string(package.join(".cargo_vcs_info.json")).ok()?;
    let (_, rest) = record.split_once("\"sha1\"")?;
    let commit = rest.split('"').nth(1)?;
    let dirty = if record.contains("\"dirty\": true") { "-dirty" } else { "" };
    Some(format!("{}{dirty}", commit.get(..12)?))
}

/// The commit of the git checkout, if it is the workspace's own and not one that happens to lie around it.
fn checked_out(package: &Path) -> Option<String> {
    let workspace = package.ancestors().nth(2)?;
    let top = git(workspace, &["rev-parse", "--show-toplevel"])?;
    if Path::new(&top).canonicalize().ok()? != workspace.canonicalize().ok()? {
        return None;
    }
    let commit = git(workspace, &["rev-parse", "--short=12", "HEAD"])?;
    watch(workspace);
    let mut status = vec!["status", "--porcelain", "--untracked-files=normal", "--"];
    status.extend(SOURCES);
    let dirty = if git(workspace, &status)?.is_empty() { "" } else { "-dirty" };
    Some(format!("{commit}{dirty}"))
}

/// Has cargo run this again when the commit or the sources change.
fn watch(workspace: &Path) {
    let reference = git(workspace, &["symbolic-ref", "--quiet", "HEAD"]);
    for name in ["HEAD", "packed-refs"].into_iter().chain(reference.as_deref()) {
        // Cargo takes a path that does not exist for one that changed.
        if let Some(path) = git(workspace, &["rev-parse", "--git-path", name])
            && workspace.join(&path).exists()
        {
            println!("cargo::rerun-if-changed={}", workspace.join(path).display());
        }
    }
    for source in SOURCES {
        println!("cargo::rerun-if-changed={}", workspace.join(source).display());
    }
}

fn git(folder: &Path, arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").arg("-C").arg(folder).args(arguments).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}
