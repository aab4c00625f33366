//! Speculative gets of references on pages of devices in shared yards, and waiting for them.
//!
//! A shared yard's memory map has pages that cannot be written: tails ([`SharedView`](crate::shared::SharedView)). A thread
//! that has read a count there before they became such must not try its exchange afterwards. So each thread marks itself while it
//! is at such a thing, and who is about to map tails in this process waits for all marks of this process. The protocol and
//! its proof are [`GetMark`]'s; here are the marks, and the barrier.
//!
//! Who waits, and what he has seen: a keeper has read the number of a change with Acquire. The change was published with
//! Release after the structures of what was there before were zeroed, whichever process did it. Then:
//!
//! 1. He takes the marks of all threads. A thread that gets its mark later takes the same lock after him, so it sees the
//!    zeroes too: it need not be waited for.
//! 2. He makes all threads pass a barrier. Each has then either set its mark, or reads zeroes from here on.
//! 3. He waits for each mark that is set to change, and maps the tails when that has happened.
//!
//! No other process is waited for: a thread writes through the mappings of its own.
//!
//! Where the kernel makes no barriers for a process, threads fence themselves, each time. They come by the slow path then,
//! so the fast one has nothing to ask.

use std::cell::Cell;
use std::io;
use std::sync::atomic::{Ordering, fence};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use frameyard::platform::GetMark;

use crate::sys::membarrier::ProcessBarrier;

/// The marks of this process: as many as threads had one at once. They are never given back to the system.
static MARKS: Mutex<Marks> = Mutex::new(Marks { all: Vec::new(), unused: Vec::new() });

struct Marks {
    all: Vec<&'static GetMark>,
    /// Those whose threads have ended.
    unused: Vec<&'static GetMark>,
}

thread_local! {
    /// The thread's mark, where it need not fence. None of the two is dropped before the thread is gone.
    static MARK: Cell<Option<&'static GetMark>> = const { Cell::new(None) };
    /// The thread's mark, once it has one.
    static OWN: Cell<Option<&'static GetMark>> = const { Cell::new(None) };
    static GIVER: Giver = const { Giver };
}

/// Gives the thread's mark back when it ends.
struct Giver;

impl Drop for Giver {
    fn drop(&mut self) {
        MARK.set(None);
        if let Some(mark) = OWN.take() {
            marks().unused.push(mark);
        }
    }
}

/// What is locked is whole even where somebody panicked.
fn marks() -> MutexGuard<'static, Marks> {
    MARKS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Sets the thread's mark, which the caller takes back: each an addition to a word of the thread's own.
#[inline(always)]
pub(crate) fn begin_get() -> &'static GetMark {
    let Some(mark) = MARK.get() else { return begin_slowly() };
    mark.begin();
    mark
}

/// The first time in a thread, and always where threads fence.
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
    // Of a thread so near its end that it gives nothing back any more, the mark is lost.
    let _ = GIVER.try_with(|_| ());
    let mut marks = marks();
    let mark = marks.unused.pop().unwrap_or_else(|| {
        let mark: &'static GetMark = Box::leak(Box::default());
        marks.all.push(mark);
        mark
    });
    OWN.set(Some(mark));
    mark
}

/// To be called before the first get that somebody may wait for: asking the kernel for barriers takes it milliseconds.
pub(crate) fn prepare() {
    ProcessBarrier::registered();
}

/// Waits until all gets of this process have ended that had begun before the call.
///
/// The caller has seen the page structures zeroed that matter to him.
///
/// # Errors
///
/// `ResourceBusy` where one did not end in that time: its thread was stopped. What the system says, where it makes no barrier though
/// it had promised to.
pub(crate) fn wait_for_gets(longest: Duration) -> io::Result<()> {
    let all = marks().all.clone();
    fence(Ordering::SeqCst);
    if let Some(barrier) = ProcessBarrier::registered() {
        barrier.pass()?;
    }
    let begin = Instant::now();
    let wait_round = |round| {
        match round {
            0..16 => thread::yield_now(),
            _ => thread::sleep(Duration::from_micros(50)),
        }
        begin.elapsed() < longest
    };
    // A number, for it may be told to another process.
    let busy = |_| io::Error::from_raw_os_error(libc::EBUSY);
    all.iter().try_for_each(|mark| mark.wait(wait_round)).map_err(busy)
}

#[cfg(test)]
mod tests;
