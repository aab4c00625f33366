//! A process that shares a yard and is killed or stopped while it works: this program, executed again with the memory file of a yard.

use std::process::{Child, Command, Stdio};
use std::sync::atomic::Ordering;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use frameyard_host::{SharedMemoryFile, SharedWords};

const READY: &str = "FRAMEYARD_TEST_READY";
const NAMES: &str = "FRAMEYARD_TEST_NAMES";
const SEED: &str = "FRAMEYARD_TEST_SEED";
/// How often sharing processes are killed; 5 times unless this is set.
const KILLS: &str = "FRAMEYARD_KILLS";

/// Longer than any wait for a process that has died, with much room for a busy host.
pub(crate) const NO_HANG: Duration = Duration::from_secs(120);

/// The next random number (xorshift).
pub(crate) fn next(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

/// A seed for each process that a test kills.
pub(crate) fn seeds() -> Vec<u64> {
    let kills = std::env::var(KILLS).map_or(5, |kills| kills.parse().unwrap());
    let mut state = u64::from(std::process::id()) << 20 | 1;
    (0..kills).map(|_| next(&mut state) >> 8).collect()
}

/// A process that shares the yard and works until it is killed.
pub(crate) struct SharingProcess {
    child: Child,
}

impl SharingProcess {
    /// Runs the ignored test `process_works_until_it_is_killed` of `module`. `names` tells it what it works on.
    pub(crate) fn start(module: &str, file: &SharedMemoryFile, names: &str, seed: u64) -> Self {
        let ready = SharedWords::create(1).unwrap();
        let mut command = Command::new(std::env::current_exe().unwrap());
        crate::own_process::run_test(&mut command, module, "process_works_until_it_is_killed");
        command.env(READY, ready.path()).env(SEED, seed.to_string()).env(NAMES, names);
        command.stdout(Stdio::null()).stderr(Stdio::null());
        let inherited = file.inherit().unwrap();
        inherited.announce(&mut command);
        let mut child = command.spawn().unwrap();
        // Acquire: pairs with the Release in `report_ready`.
        while ready.words()[0].load(Ordering::Acquire) == 0 {
            assert!(child.try_wait().unwrap().is_none(), "the sharing process failed");
            std::thread::yield_now();
        }
        Self { child }
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn stop(&self) {
        stop(&self.child);
    }

    pub(crate) fn go_on(&self) {
        go_on(&self.child);
    }

    /// Kills the process after a delay that `seed` chooses. Returns true after twice the delay.
    pub(crate) fn killed_meanwhile(self, seed: u64) -> impl FnMut() -> bool {
        let begin = Instant::now();
        let delay = Duration::from_micros(2_000 + seed % 20_000);
        let mut alive = Some(self);
        move || {
            alive.take_if(|_| begin.elapsed() > delay);
            begin.elapsed() > 2 * delay
        }
    }
}

impl Drop for SharingProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// In the sharing process: its seed, and what it works on.
pub(crate) fn own_task() -> (u64, String) {
    (std::env::var(SEED).unwrap().parse().unwrap(), std::env::var(NAMES).unwrap())
}

/// In the sharing process: the work begins.
pub(crate) fn report_ready() {
    let ready = SharedWords::open(std::env::var(READY).unwrap().as_ref()).unwrap();
    // Release: pairs with the Acquire in `SharingProcess::start`.
    ready.words()[0].store(1, Ordering::Release);
}

/// The result of `work`, which fails the test if it does not end.
pub(crate) fn without_hang<T: Send + 'static>(name: &str, work: impl FnOnce() -> T + Send + 'static) -> T {
    let (done, wait) = mpsc::channel();
    let worker = std::thread::spawn(move || done.send(work()).unwrap());
    match wait.recv_timeout(NO_HANG) {
        Err(mpsc::RecvTimeoutError::Timeout) => panic!("{name}: a call hangs"),
        ended => {
            worker.join().unwrap_or_else(|_| panic!("{name}"));
            ended.unwrap()
        }
    }
}

/// Stops a child process, and returns once it runs no more: the signal alone takes its time.
pub(crate) fn stop(child: &Child) {
    let (process, mut status) = (child.id() as i32, 0);
    // SAFETY: the calls write to `status` alone.
    unsafe {
        assert_eq!(libc::kill(process, libc::SIGSTOP), 0);
        assert_eq!(libc::waitpid(process, &mut status, libc::WUNTRACED), process);
    }
    assert!(libc::WIFSTOPPED(status));
}

/// Lets a stopped child process go on.
pub(crate) fn go_on(child: &Child) {
    // SAFETY: the call touches no memory.
    assert_eq!(unsafe { libc::kill(child.id() as i32, libc::SIGCONT) }, 0);
}
