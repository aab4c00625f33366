//! Models of concurrent protocols, and checks that count or predict. Each has a target folder of its own where its flags differ.

use std::env;
use std::fs::{self, File};
use std::io::Read;
use std::path::PathBuf;
use std::process::Command;

use crate::process::{Failed, Outcome, command, failed, is_installed, output, run, stream, succeeded};

/// Fewer models or tests than this is a failure: a filter that no longer matches must not look like success.
const MINIMUM_LOOM_MODELS: usize = 221;
const MINIMUM_SHUTTLE_TESTS: usize = 6;

/// Runs tests and returns how many passed.
fn tests_passed(tests: Command) -> Result<usize, Failed> {
    let mut passed = 0;
    let status = stream(tests, |line| {
        println!("{line}");
        let count = line.strip_prefix("test result: ok. ").and_then(|counts| counts.split(' ').next());
        passed += count.and_then(|count| count.parse::<usize>().ok()).unwrap_or(0);
    })?;
    succeeded(status)?;
    Ok(passed)
}

fn at_least(name: &str, found: &str, number: usize, minimum: usize) -> Outcome {
    println!("{name}: {number} {found}, at least {minimum} required");
    if number < minimum {
        return failed(format!(
            "{name}: too few: is the filter still right, and are they still built under cfg({name})?"
        ));
    }
    Ok(())
}

/// The unit tests of the core and of frameyard-vm with `loom` in their path. Those of frameyard-host do not need cfg(loom), so the
/// command `test` explores them.
pub(crate) fn loom() -> Outcome {
    let mut tests = command("cargo test -p frameyard -p frameyard-vm --profile models --lib loom");
    tests.env("CARGO_TARGET_DIR", "target/loom").env("RUSTFLAGS", "--cfg loom");
    at_least("loom", "models explored", tests_passed(tests)?, MINIMUM_LOOM_MODELS)
}

/// The unit tests of the core with `shuttle` in their path. Sound code runs under the seed in SHUTTLE_RANDOM_SEED, or else under a new
/// one, which is printed. The tests that must find a defect have seeds that find it.
pub(crate) fn shuttle() -> Outcome {
    let tests = |filter: &str| {
        let mut tests = command(&format!("cargo test -p frameyard --profile models --lib {filter}"));
        // Without backtraces, because many tests expect a panic.
        tests.env("CARGO_TARGET_DIR", "target/shuttle").env("RUSTFLAGS", "--cfg shuttle").env("RUST_BACKTRACE", "0");
        tests.env_remove("SHUTTLE_RANDOM_SEED");
        tests
    };
    let mut bytes = [0; 4];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    let seed = env::var("SHUTTLE_RANDOM_SEED").unwrap_or_else(|_| u32::from_ne_bytes(bytes).to_string());
    println!("shuttle: seed {seed}");
    let mut sound = tests("shuttle -- --skip ::finds_");
    sound.env("SHUTTLE_RANDOM_SEED", &seed);
    let passed = tests_passed(sound).map_err(|failure| Failed {
        says: format!("shuttle: failed; repeat with SHUTTLE_RANDOM_SEED={seed} cargo xtask shuttle"),
        ..failure
    })?;
    let passed = passed + tests_passed(tests("::finds_"))?;
    at_least("shuttle", &format!("tests run under seed {seed}"), passed, MINIMUM_SHUTTLE_TESTS)
}

/// The native tests of the allocator, its address spaces and its hosted form under AddressSanitizer, leak check included. Models are
/// left out: they check orderings, not memory, and their explorer leaks. So is a test of the stack's size, because the sanitizer makes
/// frames larger.
///
/// ThreadSanitizer is not used: the standard library of the toolchain is not built for it, so it would report every thread that `std`
/// starts or joins, and it does not know fences. Loom and shuttle check the orderings instead.
pub(crate) fn sanitize(arguments: &[String]) -> Outcome {
    if !command("cargo +nightly --version").output().is_ok_and(|output| output.status.success()) {
        println!("skipped: the tests under AddressSanitizer (no nightly toolchain)");
        return Ok(());
    }
    let mut tests = command("cargo +nightly test -p frameyard -p frameyard-vm -p frameyard-host --lib --tests");
    tests.env("RUSTFLAGS", "-Zsanitizer=address");
    tests.args(["--target", "x86_64-unknown-linux-gnu", "--target-dir", "target/sanitize"]).args(arguments);
    run(tests.args(["--", "--skip", "loom_models", "--skip", "8_kib_of_stack"]))
}

/// Counts an order-0 pair under callgrind: under the guard of a core, in restartable sequences, and under locks.
pub(crate) fn instructions() -> Outcome {
    if !is_installed("valgrind") || env::consts::ARCH != "x86_64" {
        println!("skipped: instructions are counted with valgrind on x86-64");
        return Ok(());
    }
    for example in ["-p frameyard --example guarded_pair", "-p frameyard-host --example repeat"] {
        let mut build = command(&format!("cargo build --quiet --release --target-dir target/counted {example}"));
        // Valgrind has no rseq: the example plays the kernel's part in such a build.
        run(build.env("RUSTFLAGS", "--cfg frameyard_counted"))?;
    }
    // The loop of `repeat` takes 25, that of `guarded_pair` 2. Compilers differ by a few instructions.
    pair("core with a guard", 95, "guarded_pair", "")?;
    pair("restartable sequences", 118, "repeat", "0 1 bits 1 none sections")?;
    pair("locks", 145, "repeat", "0 1 bits 1 none locked")
}

/// A pair of an example is the difference between two numbers of pairs. It fails above the bound.
fn pair(name: &str, bound: i64, example: &str, arguments: &str) -> Outcome {
    let count = |pairs: i64| {
        let example = format!("target/counted/release/examples/{example} {pairs} {arguments}");
        let mut valgrind = command(&format!("valgrind --tool=callgrind --callgrind-out-file=/dev/null {example}"));
        // It reports on its standard error.
        let text = String::from_utf8_lossy(&valgrind.output()?.stderr).into_owned();
        let count = text.lines().find_map(|line| line.split_once("Collected : ")?.1.trim().parse::<i64>().ok());
        count.ok_or_else(|| Failed::from(format!("instructions: valgrind has counted nothing:\n{text}")))
    };
    let tenths = (count(300_000)? - count(100_000)?) / 20_000;
    println!("instructions: {name}: {}.{} for a pair and its loop, at most {bound}", tenths / 10, tenths % 10);
    if tenths > 10 * bound { failed("") } else { Ok(()) }
}

/// Predicts the published tables with little work and compares the errors with those recorded. Repeats the fits that take seconds: each
/// must give the machine's file. With FRAMEYARD_LONG_RUNS, predicts and fits in full, which takes hours of processor time.
pub(crate) fn predictions() -> Outcome {
    let is_long = env::var("FRAMEYARD_LONG_RUNS").is_ok_and(|value| !value.is_empty());
    let (check, machines): (_, &[_]) = if is_long {
        ("--record runs/predictions/full.csv", &["haswell-2699v3", "sparc-m7", "broadwell-40", "skylake-112"])
    } else {
        ("--quick --record runs/predictions/quick.csv", &["haswell-2699v3", "sparc-m7"])
    };
    // The build of the tests: a prediction depends on no compiler option.
    run(&mut command("cargo build --bin frameyard"))?;
    let target = env::var_os("CARGO_TARGET_DIR").unwrap_or("target".into());
    let frameyard = PathBuf::from(target).join("debug/frameyard");
    run(Command::new(&frameyard).args(["sim", "check", "--all"]).args(check.split(' ')))?;

    let fitted = output(&mut command("mktemp"))?;
    let fitted = fitted.trim();
    let outcome = machines.iter().try_for_each(|machine| {
        let file = format!("crates/frameyard-machines/machines/{machine}.toml");
        let text = fs::read_to_string(&file)?;
        let table =
            text.lines().find_map(|line| line.strip_prefix("table = \"")?.strip_suffix('"')).unwrap_or_default();
        let options = ["sim", "calibrate", "--table", table, "--machine", machine, "--write", fitted];
        run(Command::new(&frameyard).args(options))?;
        run(command("diff").args([&file, fitted]))
    });
    fs::remove_file(fitted)?;
    outcome
}
