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
use std::sync::atomic::{AtomicU64, Ordering, fence};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use frameyard::GetMark;

use crate::sys::membarrier::ProcessBarrier;

/// The marks of this process, of which there are as many as threads got references at once. They are never given back to the system.
static MARKS: Mutex<Marks> = Mutex::new(Marks { all: Vec::new(), unused: Vec::new() });

/// How many threads are getting references that have no mark, as they are about to end.
static UNMARKED: AtomicU64 = AtomicU64::new(0);

struct Marks {
    all: Vec<&'static GetMark>,
    /// Those whose threads have ended.
    unused: Vec<&'static GetMark>,
}

thread_local! {
    /// The thread's mark, once it has one and need not fence.
    static MARK: Cell<Option<&'static GetMark>> = const { Cell::new(None) };
    static OWNED: Owned = Owned::new();
}

/// A mark that a thread has until it ends.
struct Owned(&'static GetMark);

impl Owned {
    fn new() -> Self {
        let mut marks = marks();
        let mark = marks.unused.pop();
        Self(mark.unwrap_or_else(|| {
            let mark: &'static GetMark = Box::leak(Box::default());
            marks.all.push(mark);
            mark
        }))
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        MARK.set(None);
        marks().unused.push(self.0);
    }
}

/// What is locked is whole even where somebody panicked.
fn marks() -> MutexGuard<'static, Marks> {
    MARKS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Takes the mark back, also where what was marked panics.
struct Marked<'a>(&'a GetMark);

impl Drop for Marked<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        self.0.end();
    }
}

/// Runs `get` with the mark of the thread set: two additions to a word of the thread's own.
#[inline(always)]
pub(crate) fn marked<T>(get: impl FnOnce() -> T) -> T {
    let Some(mark) = MARK.get() else { return marked_slowly(get) };
    mark.begin();
    let _marked = Marked(mark);
    get()
}

/// The first time in a thread, the last ones, and always where threads fence.
#[cold]
#[inline(never)]
fn marked_slowly<T>(get: impl FnOnce() -> T) -> T {
    let Ok(mark) = OWNED.try_with(|owned| owned.0) else { return unmarked(get) };
    if ProcessBarrier::registered().is_some() {
        MARK.set(Some(mark));
    }
    mark.begin_fenced();
    let _marked = Marked(mark);
    get()
}

/// In a thread that ends and has given its mark back.
fn unmarked<T>(get: impl FnOnce() -> T) -> T {
    struct Counted;
    impl Drop for Counted {
        fn drop(&mut self) {
            // Release: pairs with the Acquire in `wait_for_gets`.
            UNMARKED.fetch_sub(1, Ordering::Release);
        }
    }
    UNMARKED.fetch_add(1, Ordering::Relaxed);
    // As behind a mark.
    fence(Ordering::SeqCst);
    let _counted = Counted;
    get()
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
/// `TimedOut` where one did not end in that time: its thread was stopped. What the system says, where it makes no barrier though
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
    let timed_out = |problem| io::Error::new(io::ErrorKind::TimedOut, problem);
    all.iter().try_for_each(|mark| mark.wait(wait_round)).map_err(timed_out)?;
    let mut round = 0;
    // Acquire: pairs with the Release of `Counted`.
    while UNMARKED.load(Ordering::Acquire) > 0 {
        if !wait_round(round) {
            return Err(timed_out(frameyard::StillGetting));
        }
        round += 1;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
