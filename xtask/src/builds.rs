//! Checks that build or format, and what they have in common.

use crate::process::{Outcome, command, is_installed, run};
use crate::sources;

/// The crates outside the workspace that have tests and lints of their own.
const TOOLS: [(&str, &str); 2] = [("xtask/Cargo.toml", "target/xtask"), ("ci/figures/Cargo.toml", "target/ci")];

/// The option with which cargo selects the crates that this machine can build: all of the workspace, or, where `make` or `cc` is missing,
/// none, which selects the default members. jemalloc's build needs both.
pub(crate) fn selection() -> Option<&'static str> {
    let missing = ["make", "cc"].into_iter().find(|tool| !is_installed(tool));
    if let Some(tool) = missing {
        eprintln!("skipped: frameyard-jemalloc, -mimalloc and -malloc are built with {tool}");
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
    run(command("cargo doc --no-deps").args(selection()).env("RUSTDOCFLAGS", "-D warnings"))
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
