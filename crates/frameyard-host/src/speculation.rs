//! Waiting for speculative gets on device pages of shared yards.
//!
//! The memory map of a shared yard has pages without memory: tails ([`SharedView`](crate::shared::view::SharedView)). A
//! thread that read a count there before they became tails must not try to exchange it afterwards. So each thread
//! marks itself during such a get, and the keeper of a view waits for all marks of its process before it maps tails.
//! [`GetMark`] has the protocol and its proof. This module has the marks and the barrier.
//!
//! The keeper has read the number of a change with Acquire. The changing process published it with Release after it had
//! zeroed the earlier structures. Then:
//!
//! 1. The keeper locks and copies the list of marks. A thread that gets its mark later takes the same lock after the keeper,
//!    so it sees the zeroes: the keeper need not wait for it.
//! 2. The keeper makes all threads pass a barrier. Each thread has then either set its mark, or reads zeroes from here on.
//! 3. The keeper waits until each mark that is set has changed, then maps the tails.
//!
//! No process waits for the threads of another: a thread writes through the mappings of its own process.
//!
//! If the kernel provides no barriers, threads fence themselves on every get. They take the slow path then, so the fast
//! path has no condition to check.

use std::cell::Cell;
use std::io;
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use frameyard::platform::{self, GetMark, StillGetting};

use crate::sys::lock::{Locked, lock};
use crate::sys::membarrier::ProcessBarrier;

/// The marks of this process: the largest number of threads that had one at the same time. They are never freed.
static MARKS: Mutex<Marks> = Mutex::new(Marks { all: Vec::new(), unused: Vec::new() });

struct Marks {
    all: Vec<&'static GetMark>,
    /// Marks whose threads have ended.
    unused: Vec<&'static GetMark>,
}

thread_local! {
    /// The thread's mark, if barriers replace its fences. Neither this nor the next is dropped before the thread is
    /// gone.
    static MARK: Cell<Option<&'static GetMark>> = const { Cell::new(None) };
    /// The thread's mark, as soon as it has one.
    static OWN: Cell<Option<&'static GetMark>> = const { Cell::new(None) };
    static RETURN_AT_EXIT: ReturnMark = const { ReturnMark };
}

/// Returns the thread's mark when the thread ends.
struct ReturnMark;

impl Drop for ReturnMark {
    fn drop(&mut self) {
        MARK.set(None);
        if let Some(mark) = OWN.take() {
            marks().unused.push(mark);
        }
    }
}

fn marks() -> Locked<'static, Marks> {
    lock(&MARKS)
}

/// Sets the thread's mark. The caller resets it. Each takes one addition to a word of the thread.
#[inline(always)]
pub(crate) fn begin_get() -> &'static GetMark {
    let Some(mark) = MARK.get() else { return begin_slowly() };
    mark.begin();
    mark
}

/// The first get of a thread, and every get of a thread that fences.
#[cold]
#[inline(never)]
fn begin_slowly() -> &'static GetMark {
    let mark = OWN.get().unwrap_or_else(own);
    if ProcessBarrier::registered().is_some() {
        MARK.set(Some(mark));
    }
    mark.begin_fenced();
    mark
}

/// Gives the thread a mark.
fn own() -> &'static GetMark {
    // A thread that is already ending never returns its mark.
    let _ = RETURN_AT_EXIT.try_with(|_| ());
    let mut marks = marks();
    let mark = marks.unused.pop().unwrap_or_else(|| {
        let mark: &'static GetMark = Box::leak(Box::default());
        marks.all.push(mark);
        mark
    });
    OWN.set(Some(mark));
    mark
}

/// Registers the process for barriers, which takes the kernel milliseconds. Called before the first get that a keeper may
/// wait for.
pub(crate) fn prepare() {
    ProcessBarrier::registered();
}

/// Waits until all gets of this process have ended that started before the call.
///
/// The caller has seen the page structures zeroed that it is going to replace.
///
/// # Errors
///
/// `ResourceBusy` if a get did not end within `longest`: its thread was stopped. The system's error if the barrier
/// fails although the process is registered for it.
pub(crate) fn wait_for_gets(longest: Duration) -> io::Result<()> {
    let begin = Instant::now();
    let wait_round = |round| {
        match round {
            0..16 => thread::yield_now(),
            _ => thread::sleep(Duration::from_micros(50)),
        }
        begin.elapsed() < longest
    };
    let impose = || match ProcessBarrier::registered() {
        Some(barrier) => barrier.pass().map_err(NotWaited::Barrier),
        None => Ok(()),
    };
    platform::wait_for_gets(|| marks().all.clone(), impose, wait_round).map_err(|problem| match problem {
        NotWaited::Barrier(error) => error,
        // An error number, since it may be passed to another process.
        NotWaited::StillGetting => io::Error::from_raw_os_error(rustix::io::Errno::BUSY.raw_os_error()),
    })
}

/// Why gets may still be in progress.
enum NotWaited {
    /// The kernel did not execute the barrier.
    Barrier(io::Error),
    StillGetting,
}

impl From<StillGetting> for NotWaited {
    fn from(_: StillGetting) -> Self {
        Self::StillGetting
    }
}

#[cfg(test)]
mod tests;
