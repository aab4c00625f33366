//! Coroutines with their own stacks, one for each virtual CPU with a task.
//!
//! A fiber runs until it calls [`suspend`] at any depth of its stack. It continues there when it is resumed.

use std::cell::{Cell, RefCell};
use std::marker::PhantomData;
use std::ptr::NonNull;
use std::rc::Rc;

use corosensei::stack::DefaultStack;
use corosensei::{Coroutine, CoroutineResult, Yielder};

/// Bytes of a fiber's stack. The host backs only touched pages.
pub(crate) const STACK_BYTES: usize = 256 << 10;

type Suspender = NonNull<Yielder<(), ()>>;

thread_local! {
    /// The suspender of this thread's running fiber.
    static RUNNING: Cell<Option<Suspender>> = const { Cell::new(None) };
    /// Fibers that the running fiber has spawned, with their CPUs, until the schedule takes them.
    static SPAWNED: RefCell<Vec<(usize, Fiber<'static>)>> = const { RefCell::new(Vec::new()) };
}

/// The state of a fiber after it ran.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Progress {
    /// It suspended itself.
    Suspended,
    /// It has ended.
    Done,
}

/// A function that can be suspended and resumed. Dropping it before its end unwinds its stack.
pub(crate) struct Fiber<'a> {
    coroutine: Coroutine<(), (), (), DefaultStack>,
    suspender: Rc<Cell<Option<Suspender>>>,
    _body: PhantomData<&'a ()>,
}

impl<'a> Fiber<'a> {
    /// A fiber that will run `body`.
    ///
    /// # Errors
    ///
    /// The host has no memory for the stack.
    pub(crate) fn new(body: impl FnOnce() + 'a) -> std::io::Result<Self> {
        let suspender = Rc::new(Cell::new(None));
        let own = Rc::clone(&suspender);
        let run = move |yielder: &Yielder<(), ()>, ()| {
            own.set(Some(NonNull::from(yielder)));
            RUNNING.set(own.get());
            body();
        };
        // SAFETY: `body` borrows data that lives for 'a, and the fiber carries 'a, so it cannot run longer. It is not
        // forgotten: `SimYard::run` keeps it in a vector and drops it.
        let coroutine = unsafe { Coroutine::with_stack_unchecked(DefaultStack::new(STACK_BYTES)?, run) };
        Ok(Self { coroutine, suspender, _body: PhantomData })
    }

    /// Runs the fiber until it suspends itself or ends. Resumes the fiber's panic in the caller.
    pub(crate) fn resume(&mut self) -> Progress {
        let outer = RUNNING.replace(self.suspender.get());
        let result = self.coroutine.resume(());
        RUNNING.set(outer);
        match result {
            CoroutineResult::Yield(()) => Progress::Suspended,
            CoroutineResult::Return(()) => Progress::Done,
        }
    }
}

/// Gives the schedule another fiber, for a CPU.
///
/// # Errors
///
/// The host has no memory for the stack.
///
/// # Safety
///
/// The data that `body` borrows must stay valid until `body` has returned or been dropped. In an aborted run, that is
/// before its spawner is dropped.
pub(crate) unsafe fn spawn<'a>(cpu: usize, body: impl FnOnce() + 'a) -> std::io::Result<()> {
    let fiber = Fiber::<'a>::new(body)?;
    // SAFETY: only the lifetime differs; the caller's contract replaces it.
    let fiber = unsafe { std::mem::transmute::<Fiber<'a>, Fiber<'static>>(fiber) };
    SPAWNED.with_borrow_mut(|spawned| spawned.push((cpu, fiber)));
    Ok(())
}

/// Takes the fibers spawned since the last call.
pub(crate) fn take_spawned() -> Vec<(usize, Fiber<'static>)> {
    SPAWNED.with_borrow_mut(std::mem::take)
}

/// Suspends the running fiber of this thread until it is resumed.
///
/// # Panics
///
/// Outside of fibers.
#[inline]
pub(crate) fn suspend() {
    let running = RUNNING.get().expect("only a fiber can suspend itself");
    // SAFETY: `resume` sets the pointer while the fiber runs, and the yielder lives on the fiber's stack.
    unsafe { running.as_ref() }.suspend(());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fibers_resume_where_they_suspended() {
        let seen = std::cell::RefCell::new(Vec::new());
        let body = |name: u32| {
            let seen = &seen;
            move || {
                for step in 0..3 {
                    seen.borrow_mut().push((name, step));
                    suspend();
                }
            }
        };
        let mut fibers = [Fiber::new(body(0)).unwrap(), Fiber::new(body(1)).unwrap()];
        for _ in 0..3 {
            assert!(fibers.iter_mut().all(|fiber| fiber.resume() == Progress::Suspended));
        }
        assert!(fibers.iter_mut().all(|fiber| fiber.resume() == Progress::Done));
        assert_eq!(*seen.borrow(), [(0, 0), (1, 0), (0, 1), (1, 1), (0, 2), (1, 2)]);
    }

    #[test]
    fn dropping_a_fiber_unwinds_its_stack() {
        let dropped = Rc::new(());
        let inner = Rc::clone(&dropped);
        let mut fiber = Fiber::new(move || {
            let _kept = inner;
            suspend();
        })
        .unwrap();
        assert_eq!(fiber.resume(), Progress::Suspended);
        assert_eq!(Rc::strong_count(&dropped), 2);
        drop(fiber);
        assert_eq!(Rc::strong_count(&dropped), 1);
    }
}
