//! The private yards of this process, which go on in forked children.
//!
//! The hook takes all locks of each yard ([`Yard::lock_all`]) before a fork. Both processes release them, so the child finds no lock held and
//! no list half changed. Blocks that other threads hold, or had just taken from a list, stay out of use in the child
//! ([`Platform::has_lost_threads`]).

use std::cell::Cell;
use std::io;
use std::ptr::NonNull;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use frameyard::boot::AttachError;
use frameyard::platform::SequencesNotEnded;
use frameyard::{CpuId, Pfn, Platform, RawRegion, Yard};

use super::fork::{self, Hook, OtherThreads};
use super::sequences::Sequences;

/// The private yards of this process.
static YARDS: Mutex<Vec<Registered>> = Mutex::new(Vec::new());

static HOOK: Hook = Hook { before: lock_yards, after: unlock_yards };

thread_local! {
    /// The registry, while this thread forks.
    static FORKING: Cell<Option<MutexGuard<'static, Vec<Registered>>>> = const { Cell::new(None) };
}

/// A yard, as the hook sees it.
struct Registered {
    /// The first byte of the control region.
    control: usize,
    view: Yard<LocksOnly>,
    /// Whether the thread that forks has its locks.
    is_locked: bool,
}

fn yards() -> MutexGuard<'static, Vec<Registered>> {
    YARDS.lock().unwrap_or_else(PoisonError::into_inner)
}

fn lock_yards() {
    let _ = FORKING.try_with(|forking| {
        let mut yards = yards();
        for yard in yards.iter_mut() {
            yard.is_locked = yard.view.lock_all().is_ok();
        }
        forking.set(Some(yards));
    });
}

fn unlock_yards(others: OtherThreads) {
    let Some(mut yards) = FORKING.try_with(Cell::take).ok().flatten() else { return };
    for yard in yards.iter_mut().filter(|yard| yard.is_locked) {
        yard.is_locked = false;
        // SAFETY: this thread, or the one that it is a copy of, has locked the yard in `lock_yards`. The regions of private yards are private
        // to their process.
        unsafe {
            match others {
                OtherThreads::GoOn => yard.view.unlock_all(),
                OtherThreads::AreGone => yard.view.unlock_all_of_copy(),
            }
        }
    }
}

/// Installs the hook, once.
pub(crate) fn install_hook() -> io::Result<()> {
    fork::add(&HOOK)
}

/// The hook knows a yard until this is dropped.
#[derive(Debug)]
pub(crate) struct ForkSafe {
    control: usize,
    process: u32,
}

impl ForkSafe {
    /// Makes a private yard known to the hook, which is installed.
    ///
    /// # Safety
    ///
    /// As for [`Yard::attach`]. The regions stay mapped until the result is dropped, and they are private to this process.
    pub(crate) unsafe fn new(
        map: RawRegion,
        control: RawRegion,
        sequences: Option<Sequences>,
    ) -> Result<Self, AttachError> {
        // SAFETY: passed on to the caller. The platform has no bytes of frames.
        let view = unsafe { Yard::attach(map, control, LocksOnly { sequences })? };
        let control = control.base.addr().get();
        yards().push(Registered { control, view, is_locked: false });
        Ok(Self { control, process: std::process::id() })
    }

    /// Whether this process has made the yard: it is not a forked child with a copy.
    pub(crate) fn is_of_this_process(&self) -> bool {
        self.process == std::process::id()
    }
}

impl Drop for ForkSafe {
    fn drop(&mut self) {
        yards().retain(|yard| yard.control != self.control);
    }
}

/// The platform of a view that only locks and unlocks. Its locks are those of a private yard's `HostPlatform`.
#[derive(Debug)]
struct LocksOnly {
    sequences: Option<Sequences>,
}

impl Platform for LocksOnly {
    type Guard = ();

    fn guard(&self) {}

    fn current_cpu(&self) -> CpuId {
        CpuId(0)
    }

    /// Pauses, then sleeps: the scheduler may have stopped the holder.
    fn spin(&self, round: u32) {
        match round {
            0..64 => thread::yield_now(),
            _ => thread::sleep(Duration::from_micros(50)),
        }
    }

    fn frame_bytes(&self, _pfn: Pfn) -> Option<NonNull<u8>> {
        None
    }

    fn has_sequences(&self) -> bool {
        self.sequences.is_some()
    }

    fn end_sequences(&self, cpu: Option<CpuId>) -> Result<(), SequencesNotEnded> {
        self.sequences.ok_or(SequencesNotEnded)?.end_on(cpu).map_err(|_| SequencesNotEnded)
    }
}
