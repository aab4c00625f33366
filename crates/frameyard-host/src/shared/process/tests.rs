use std::fs::File;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use super::*;
use crate::memory::{HugePages, in_memory};
use frameyard::ByteSize;

fn file() -> File {
    in_memory(1 << 16).unwrap()
}

fn take_place(file: &File) -> Attachment {
    Attachment::new(file, mapped(file)).unwrap().unwrap()
}

#[test]
fn a_process_is_alive_until_it_leaves_its_place() {
    let file = file();
    let [one, other] = [(); 2].map(|()| take_place(&file));
    assert_ne!(one.process(), other.process());
    assert_eq!(one.process().id(), std::process::id());
    for place in [&one, &other] {
        assert!(![&one, &other].iter().any(|process| place.has_ended(process.process())));
    }
    let left = one.process();
    drop(one);
    assert!(other.has_ended(left));
    let next = take_place(&file);
    assert!(next.process().0 as u32 == (left.0 as u32) + (1 << SLOT_BITS), "the next generation of the same slot");
    assert!(other.has_ended(left) && !other.has_ended(next.process()));
}

#[test]
fn a_generation_that_wraps_skips_zero() {
    let file = file();
    mapped(&file).atomics()[0].store(u64::from(u32::MAX << SLOT_BITS), Ordering::Relaxed);
    let place = take_place(&file);
    assert_eq!(place.process().0 as u32, 1 << SLOT_BITS);
}

#[test]
fn a_full_table_has_no_place() {
    let file = file();
    let places: Vec<_> = (0..SLOTS).map(|_| take_place(&file)).collect();
    assert!(Attachment::new(&file, mapped(&file)).unwrap().is_none());
    drop(places);
    take_place(&file);
}

#[test]
fn damage_stays() {
    let file = file();
    let [one, other] = [(); 2].map(|()| take_place(&file));
    assert_eq!(other.damage(), None);
    one.note_damage(LockId::Devices, Process(7 << 32 | 1));
    other.note_damage(LockId::File(1), Process(8 << 32 | 2));
    for place in [&one, &other, &take_place(&file)] {
        assert_eq!(place.damage(), Some(LockError::OwnerDied { lock: LockId::Devices, holder: 7 }));
    }
}

/// Tells the worker process of a test which file to attach.
const FILE: &str = "FRAMEYARD_TEST_FILE";
/// The word behind the table, in which the worker states its forked child.
const FORKED: usize = WORDS;

fn mapped(file: &File) -> Region {
    Region::in_file(file, 0, ByteSize(file.metadata().unwrap().len()), HugePages::Default).unwrap()
}

/// A worker process that is killed at the end of a test, with its forked child.
struct Worker {
    process: Child,
    forked: libc::pid_t,
}

impl Drop for Worker {
    fn drop(&mut self) {
        kill(self.forked, libc::SIGKILL);
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[expect(unsafe_code, reason = "`libc` declares the call unsafe")]
fn kill(process: libc::pid_t, signal: i32) -> bool {
    // SAFETY: the call touches no memory.
    unsafe { libc::kill(process, signal) == 0 }
}

#[test]
fn stopped_processes_are_alive_and_zombies_are_not_whatever_their_forked_children_do() {
    let file = file();
    let table = mapped(&file);
    let path = format!("/proc/{}/fd/{}", std::process::id(), std::os::fd::AsRawFd::as_raw_fd(&file));
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["shared::process::tests::worker_takes_a_place_and_forks", "--exact", "--ignored"]).env(FILE, path);
    let mut worker = Worker { process: command.spawn().unwrap(), forked: 0 };
    while worker.forked == 0 {
        assert!(worker.process.try_wait().unwrap().is_none(), "the worker failed");
        // Acquire: pairs with the Release in the forked child.
        worker.forked = table.atomics()[FORKED].load(Ordering::Acquire) as libc::pid_t;
    }
    let place = take_place(&file);
    let process = Process(table.atomics()[0].load(Ordering::Relaxed));
    assert_eq!(process.id(), worker.process.id());
    // The forked child has dropped its copy of the place.
    assert!(!place.has_ended(process));
    assert!(kill(worker.process.id() as i32, libc::SIGSTOP));
    assert!(!place.has_ended(process), "a stopped process is alive");
    worker.process.kill().unwrap();
    let begin = Instant::now();
    while !place.has_ended(process) {
        assert!(begin.elapsed() < Duration::from_secs(120), "a zombie is dead");
        std::thread::yield_now();
    }
    assert!(kill(worker.forked, 0), "the forked child outlives its parent");
}

#[test]
#[ignore = "a worker of another test"]
fn worker_takes_a_place_and_forks() {
    let file = File::options().read(true).write(true).open(std::env::var(FILE).unwrap()).unwrap();
    let table = mapped(&file);
    let place = take_place(&file);
    // SAFETY: the child unlocks no lock of another thread's, and calls nothing that needs one.
    #[expect(unsafe_code, reason = "`libc` declares the call unsafe")]
    if unsafe { libc::fork() } == 0 {
        assert!(!place.is_own() && !place.has_ended(Process(1 << SLOT_BITS)));
        drop(place);
        // Release: pairs with the Acquire in the test.
        table.atomics()[FORKED].store(u64::from(std::process::id()), Ordering::Release);
    }
    loop {
        std::thread::park();
    }
}
