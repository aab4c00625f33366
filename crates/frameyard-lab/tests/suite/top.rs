//! `top` on a pseudo-terminal, and where there is none.

use std::path::Path;
use std::process::{Command, Stdio};

use frameyard::{ByteSize, Gfp, Order};
use frameyard_host::HostYard;
use rustix::process::{Pid, Signal, kill_process};

use crate::program::pty::Pty;
use crate::program::{assert_refused, command, frameyard, stderr, stdout};
use crate::trace::{RECORDING, SNAPSHOT};

/// Entering and leaving the screen.
const ENTER: &str = "\x1b[?1049h";
const LEAVE: &str = "\x1b[?25h\x1b[?1049l";

fn top(arguments: &[&str], size: (u16, u16)) -> Option<Pty> {
    let words = [&["top"], arguments].concat();
    Pty::start(Path::new(env!("CARGO_BIN_EXE_frameyard")), &words, &[], size)
}

fn create(test: &str) -> (String, HostYard) {
    let name = format!("frameyard-top-{test}-{}", std::process::id());
    let yard = HostYard::create_shared(&name, ByteSize::mib(32)).unwrap();
    (name, yard)
}

#[test]
fn each_key_that_quits_restores_the_terminal() {
    let (name, yard) = create("keys");
    let block = yard.frames(Order(9), Gfp::HIGHUSER_MOVABLE).unwrap();
    for key in [b"q", b"\x1b", b"\x03"] {
        let Some(mut pty) = top(&[&name, "--interval", "50ms"], (80, 24)) else { return };
        pty.until("per-CPU lists: ");
        assert!(!pty.is_as_before(), "no raw mode: {:?}", pty.text());
        pty.press(b"z");
        pty.until("node");
        pty.press(key);
        assert!(pty.wait().success(), "{key:?}: {}", pty.text());
        let text = pty.text();
        assert!(text.contains(ENTER) && text.trim_end().ends_with(LEAVE), "{text:?}");
        assert!(pty.is_as_before(), "{key:?}");
    }
    drop(block);
    yard.validate().unwrap();
}

#[test]
fn a_signal_restores_the_terminal() {
    let (name, _yard) = create("signal");
    let Some(mut pty) = top(&[&name], (80, 24)) else { return };
    pty.until("per-CPU lists: ");
    kill_process(Pid::from_raw(pty.id().cast_signed()).unwrap(), Signal::TERM).unwrap();
    assert!(pty.wait().success(), "{}", pty.text());
    assert!(pty.text().ends_with(LEAVE) && pty.is_as_before());
}

#[test]
fn a_workload_is_watched_until_its_last_process_ends() {
    let words = ["stress", "--mode", "processes", "--tasks", "2", "--ops", "100G", "--memory", "256M"];
    let mut workload = command(&words).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let process = workload.id().to_string();
    // Its yard comes after its start.
    let plain = loop {
        let output = frameyard(&["top", &process, "--frames", "1", "--interval", "300ms"]);
        if output.status.success() {
            break stdout(&output).to_owned();
        }
        assert!(stderr(&output).contains("has no shared yard"), "{}", stderr(&output));
        assert_eq!(workload.try_wait().unwrap(), None, "the workload runs");
    };
    let rates = plain.lines().find(|line| line.starts_with("pages/s: ")).unwrap_or_else(|| panic!("{plain}"));
    assert!(!rates.contains(": 0 allocated") && !rates.contains("- allocated"), "{plain}");
    let started = top(&[&process, "--interval", "100ms"], (80, 24));
    if let Some(mut pty) = started {
        pty.until("per-CPU lists: ");
        workload.kill().unwrap();
        workload.wait().unwrap();
        assert_eq!(pty.wait().code(), Some(1), "{}", pty.text());
        let text = pty.text();
        let (_, after) = text.rsplit_once(LEAVE).unwrap_or_else(|| panic!("{text:?}"));
        assert!(after.contains(&format!("{process}: the last process of the yard has ended")), "{after:?}");
        assert!(pty.is_as_before());
    } else {
        workload.kill().unwrap();
        workload.wait().unwrap();
    }
}

#[test]
fn a_replay_is_watched_by_its_process() {
    let policies = "vanilla,bits,cluster-bulk,skip-merge,big-pcp,cluster,lock-per-page";
    let words = ["trace", "replay", RECORDING, "--snapshot", SNAPSHOT, "--policy", policies];
    let mut replay = command(&words).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let process = replay.id().to_string();
    // Each policy has a yard of its own, so a watch may find none, or see one end.
    let plain = loop {
        let output = frameyard(&["top", &process, "--frames", "1", "--interval", "20ms"]);
        if output.status.success() {
            break stdout(&output).to_owned();
        }
        assert_eq!(replay.try_wait().unwrap(), None, "the replay ended unwatched: {}", stderr(&output));
    };
    replay.kill().unwrap();
    replay.wait().unwrap();
    // The zones of the snapshot have 2,546,227 frames.
    assert!(plain.contains(&format!("frameyard top: {process}")) && plain.contains("of 9.71 GiB"), "{plain}");
}

#[test]
fn plain_frames_need_no_terminal() {
    let (name, yard) = create("plain");
    let block = yard.frames(Order(3), Gfp::KERNEL).unwrap();
    let output = frameyard(&["top", &name, "--frames", "2", "--interval", "10ms"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let text = stdout(&output);
    assert_eq!(text.matches(&format!("frameyard top: {name}")).count(), 2, "{text}");
    assert!(text.contains("used of 32 MiB") && !text.contains('\x1b'), "{text}");
    drop(block);
}

#[test]
fn refusals_say_what_to_write_instead() {
    let (name, _yard) = create("refused");
    assert_refused(&["top", &name], 2, "--frames 1 for plain text");
    let missing = ["top", "no-such-yard", "--frames", "1"];
    assert_refused(&missing, 2, "no-such-yard: there is no shared yard of this name; there are ");
    assert_refused(&missing, 2, &name);
    assert_refused(&["top", "4294967295", "--frames", "1"], 2, "there is no such process");
    assert_refused(&["top", &name, "--interval", "0s"], 2, "--interval");
    let (second, _other) = create("second");
    let this = std::process::id().to_string();
    let output = frameyard(&["top", &this, "--frames", "1"]);
    let says = stderr(&output);
    assert!(says.contains("shared yards: name one of") && says.contains(&name) && says.contains(&second), "{says}");
    if let Some(mut pty) = top(&[&name], (40, 10)) {
        assert_eq!(pty.wait().code(), Some(2));
        assert!(pty.text().contains("at least 60x20: this one has 40x10"), "{}", pty.text());
        assert!(!pty.text().contains(ENTER));
    }
}

#[test]
fn a_process_without_a_yard_is_told_apart() {
    let mut process = Command::new("sleep").arg("600").stdin(Stdio::null()).spawn().unwrap();
    let words = ["top", &process.id().to_string(), "--frames", "1"];
    assert_refused(&words, 2, "has no shared yard");
    process.kill().unwrap();
    process.wait().unwrap();
}
