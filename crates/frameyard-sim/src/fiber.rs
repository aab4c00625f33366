//! Coroutines with stacks of their own: what runs a virtual CPU.
//!
//! A fiber runs until it calls [`suspend`], wherever on its stack that is, and goes on there when it is resumed.

use std::cell::{Cell, RefCell};
use std::marker::PhantomData;
use std::ptr::NonNull;
use std::rc::Rc;

use corosensei::stack::DefaultStack;
use corosensei::{Coroutine, CoroutineResult, Yielder};

/// Bytes of stack that a fiber can use. The host gives memory only to what is touched.
pub(crate) const STACK_BYTES: usize = 256 << 10;

type Suspender = NonNull<Yielder<(), ()>>;

thread_local! {
    /// How the running fiber of this thread suspends itself.
    static RUNNING: Cell<Option<Suspender>> = const { Cell::new(None) };
    /// Fibers that the running one has spawned, and the CPUs they are for, until the schedule takes them.
    static SPAWNED: RefCell<Vec<(usize, Fiber<'static>)>> = const { RefCell::new(Vec::new()) };
}

/// What a fiber did when it was resumed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Progress {
    /// It suspended itself.
    Suspended,
    /// It has come to its end.
    Done,
}

/// A function that can be suspended and resumed. Whoever drops it before its end unwinds its stack.
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
    /// Where the host has no memory for its stack.
    pub(crate) fn new(body: impl FnOnce() + 'a) -> std::io::Result<Self> {
        let suspender = Rc::new(Cell::new(None));
        let own = Rc::clone(&suspender);
        let run = move |yielder: &Yielder<(), ()>, ()| {
            own.set(Some(NonNull::from(yielder)));
            RUNNING.set(own.get());
            body();
        };
        // SAFETY: what `body` borrows is valid for 'a, and the fiber cannot be used longer: it carries 'a. It is not
        // forgotten: its owner, `run` in the schedule, keeps it in a vector that it drops.
        let coroutine = unsafe { Coroutine::with_stack_unchecked(DefaultStack::new(STACK_BYTES)?, run) };
        Ok(Self { coroutine, suspender, _body: PhantomData })
    }

    /// Runs the fiber until it suspends itself or ends. Passes its panic on.
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
/// Where the host has no memory for its stack.
///
/// # Safety
///
/// What `body` borrows stays valid until it has returned, or been dropped: in a run that breaks off, before whoever spawned
/// it.
pub(crate) unsafe fn spawn<'a>(cpu: usize, body: impl FnOnce() + 'a) -> std::io::Result<()> {
    let fiber = Fiber::<'a>::new(body)?;
    // SAFETY: only the lifetime differs, and the caller's contract stands in for it.
    let fiber = unsafe { std::mem::transmute::<Fiber<'a>, Fiber<'static>>(fiber) };
    SPAWNED.with_borrow_mut(|spawned| spawned.push((cpu, fiber)));
    Ok(())
}

/// The fibers that were spawned since it was last asked.
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
    // SAFETY: `resume` sets this for as long as the fiber runs, and the yielder lives on the fiber's stack.
    unsafe { running.as_ref() }.suspend(());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fibers_go_on_where_they_suspended_themselves() {
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
    fn a_fiber_that_is_dropped_drops_what_is_on_its_stack() {
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
