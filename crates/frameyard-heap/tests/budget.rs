//! Several processes under the library with one budget.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use frameyard_heap::jemalloc::{Budget, BudgetShare, ByteSize};

mod preloaded;

use preloaded::{Folder, HEAPS, library, run, success_of, text};

/// A budget that this process has joined, and its name.
fn budget(test: &str, limit: ByteSize) -> (String, BudgetShare) {
    let name = format!("{test}-{}", std::process::id());
    let share = Budget::create(&name, limit).expect("a budget");
    (name, share)
}

/// A running `takes.c`.
struct Taker {
    process: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Taker {
    fn start(folder: &Folder, heap: &str, budget: &str) -> Self {
        let mut command = Command::new(folder.compile("takes.c", &[]));
        command.env("LD_PRELOAD", library()).env("FRAMEYARD_HEAP", heap);
        command.env("FRAMEYARD_MEMORY", "256M").env("FRAMEYARD_SHARED", budget);
        let mut process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("the program runs");
        let (input, output) = (process.stdin.take().expect("piped"), process.stdout.take().expect("piped"));
        Self { process, input, output: BufReader::new(output) }
    }

    /// The number of MiB that the program gets of those that it asks for.
    fn take(&mut self, wanted: u32) -> u32 {
        writeln!(self.input, "{wanted}").expect("the program reads");
        let mut line = String::new();
        self.output.read_line(&mut line).expect("the program writes");
        line.trim().parse().unwrap_or_else(|_| panic!("{line:?} is no number"))
    }
}

impl Drop for Taker {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[test]
fn processes_share_a_limit_and_a_killed_one_leaves_its_part_to_others() {
    let folder = Folder::new("budget");
    for heap in HEAPS {
        let (name, share) = budget(&format!("shares-{heap}"), ByteSize::mib(128));
        let (mut first, mut second) = (Taker::start(&folder, heap, &name), Taker::start(&folder, heap, &name));
        // Each has a few MiB of the heap's metadata as well.
        assert_eq!(first.take(60), 60);
        let rest = second.take(200);
        assert!((20..68).contains(&rest), "{rest} of 128 MiB");
        assert_eq!(first.take(10), 0);
        let processes = share.budget().processes();
        for taker in [&first, &second] {
            let found =
                processes.iter().find(|process| process.process == taker.process.id()).expect("both are listed");
            assert!(found.used >= ByteSize::mib(20) && found.peak >= found.used, "{found:?}");
        }
        assert!(share.budget().used() <= ByteSize::mib(128));
        first.process.kill().expect("it runs");
        first.process.wait().expect("it has been killed");
        let more = second.take(200);
        assert!(more >= 60, "{more} MiB");
        drop(second);
        assert_eq!(share.budget().processes().len(), 1, "this process");
        assert_eq!(share.budget().used(), ByteSize(0));
        drop(share);
        assert!(Budget::open(&name).is_err(), "the last process removes the budget");
    }
}

#[test]
fn a_program_that_forks_is_charged_for_each_process_until_it_ends() {
    let folder = Folder::new("budget-threads");
    for heap in HEAPS {
        let (name, share) = budget(&format!("forks-{heap}"), ByteSize::mib(512));
        let mut program = Command::new(folder.compile("threads.c", &[]));
        let variables = [("FRAMEYARD_HEAP", heap), ("FRAMEYARD_MEMORY", "128M"), ("FRAMEYARD_SHARED", name.as_str())];
        assert_eq!(success_of(program.arg("/bin/sh"), &variables), "done\n");
        assert_eq!(share.budget().processes().len(), 1, "this process");
        assert_eq!(share.budget().used(), ByteSize(0));
        drop(share);
    }
}

#[test]
fn a_wrong_budget_leads_to_one_line() {
    for (name, expected) in [("a/b", "is no name of a budget"), ("missing", "no budget in ")] {
        let variables = [("FRAMEYARD_MEMORY", "64M"), ("FRAMEYARD_SHARED", name)];
        let output = run(Command::new("sh").args(["-c", "echo works"]), &variables);
        let stderr = text(&output.stderr);
        assert_eq!(text(&output.stdout), "works\n");
        assert!(stderr.starts_with("frameyard: FRAMEYARD_SHARED: ") && stderr.contains(expected), "{stderr}");
        assert_eq!(stderr.lines().count(), 1, "{stderr}");
    }
}
