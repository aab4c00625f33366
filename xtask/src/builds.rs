//! Checks that build or format, and what they have in common.

use std::fs;

use crate::process::{Outcome, command, failed, is_installed, output, run};
use crate::sources;

/// The crates outside the workspace that have tests and lints of their own.
const TOOLS: [(&str, &str); 2] = [("xtask/Cargo.toml", "target/xtask"), ("ci/figures/Cargo.toml", "target/ci")];

/// The option with which cargo selects the crates that this machine can build: all of the workspace, or, where `make` or `cc` is missing,
/// none, which selects the default members. jemalloc's build needs both.
pub(crate) fn selection() -> Option<&'static str> {
    let missing = ["make", "cc"].into_iter().find(|tool| !is_installed(tool));
    if let Some(tool) = missing {
        eprintln!("skipped: frameyard-heap is built with {tool}");
        return None;
    }
    Some("--workspace")
}

pub(crate) fn fmt() -> Outcome {
    run(&mut command("cargo fmt --all --check"))?;
    let others = ["ci/no-std-probe/Cargo.toml", "ci/no-std-probe/planted/Cargo.toml", "fuzz/Cargo.toml"];
    for manifest in TOOLS.map(|(manifest, _)| manifest).into_iter().chain(others) {
        run(&mut command(&format!("cargo fmt --check --manifest-path {manifest}")))?;
    }
    Ok(())
}

pub(crate) fn clippy() -> Outcome {
    run(command("cargo clippy").args(selection()).args(["--all-targets", "--", "-D", "warnings"]))?;
    for (manifest, target) in TOOLS {
        let options = format!("--quiet --manifest-path {manifest} --target-dir {target} --all-targets -- -D warnings");
        run(&mut command(&format!("cargo clippy {options}")))?;
    }
    Ok(())
}

/// The tool's own tests come first: they plant each kind of violation and require that the check finds it.
pub(crate) fn layering() -> Outcome {
    run(&mut command("cargo test --quiet --manifest-path xtask/Cargo.toml --target-dir target/xtask"))?;
    sources::check("layering", sources::layers::check)
}

/// The crate that writes the figures describes the comments that hold their definitions. Its tests come first.
pub(crate) fn tables(arguments: &[String]) -> Outcome {
    run(&mut command("cargo test --quiet --manifest-path ci/figures/Cargo.toml --target-dir target/ci"))?;
    let mut figures = command("cargo run --quiet --manifest-path ci/figures/Cargo.toml --target-dir target/ci --");
    run(figures.args(arguments))
}

pub(crate) fn doc() -> Outcome {
    let mut doc = command("cargo doc --no-deps");
    if let Some(all) = selection() {
        doc.args([all, "--features", "frameyard-heap/mimalloc"]);
    }
    run(doc.env("RUSTDOCFLAGS", "-D warnings"))
}

/// What a kernel builds, on the oldest compiler that the manifests of these crates promise: six releases before the one that the program needs.
pub(crate) fn oldest() -> Outcome {
    const RUST: &str = "1.89.0";
    let is_there =
        || command(&format!("rustup run {RUST} rustc --version")).output().is_ok_and(|run| run.status.success());
    if !is_there() {
        _ = command(&format!("rustup toolchain install {RUST} --profile minimal")).output();
    }
    if !is_there() {
        println!("skipped: Rust {RUST} is not installed");
        return Ok(());
    }
    let crates = "-p frameyard-units -p frameyard-memblock -p frameyard -p frameyard-vm -p frameyard-formats --features frameyard/counting";
    run(&mut command(&format!("rustup run {RUST} cargo check --quiet {crates} --target-dir target/oldest")))
}

/// The public interface of each library is the one recorded in `xtask/api`; with `--write`, it is recorded anew.
pub(crate) fn api(arguments: &[String]) -> Outcome {
    if !is_installed("cargo-public-api") || !command("cargo +nightly --version").output()?.status.success() {
        println!("skipped: public interfaces are listed with cargo-public-api and nightly Rust");
        return Ok(());
    }
    let mut differ = Vec::new();
    for name in ["frameyard-units", "frameyard-memblock", "frameyard", "frameyard-vm", "frameyard-host"] {
        let path = format!("xtask/api/{name}.txt");
        let found = output(&mut command(&format!("cargo +nightly public-api -sss -p {name} --target-dir target/api")))?;
        if arguments.iter().any(|argument| argument == "--write") {
            fs::write(&path, found)?;
        } else if fs::read_to_string(&path)? != found {
            let new = format!("target/api/{name}.txt");
            fs::write(&new, found)?;
            _ = command(&format!("diff -U0 {path} {new}")).status()?;
            differ.push(path);
        }
    }
    if differ.is_empty() {
        return Ok(());
    }
    failed(format!("api: {} differ: `cargo xtask api --write` records a change that is meant", differ.join(", ")))
}

/// `deny.toml` says what is allowed.
pub(crate) fn deny() -> Outcome {
    if !is_installed("cargo-deny") {
        println!("skipped: dependencies are checked with cargo-deny");
        return Ok(());
    }
    run(&mut command("cargo deny --workspace check bans licenses sources"))?;
    if !command("cargo deny fetch db").output()?.status.success() {
        println!("skipped: advisories on dependencies: their database cannot be fetched");
        return Ok(());
    }
    run(&mut command("cargo deny --workspace check advisories"))
}
