//! [`fy_platform_ops`]: what a yard needs from the kernel, and the core's `Platform` on top of it.

use core::ffi::{c_char, c_void};
use core::fmt::{self, Write};
use core::ptr::{NonNull, null_mut};
use core::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

use crate::shared::sized::SizedStruct;
use crate::shared::{FY_LOG_ERROR, FY_LOG_WARNING, FY_MESSAGE_BYTES, Failure, TextBuffer};
use frameyard::platform::{BadPage, LockError, LockId, MemoryBacking, Offload, OwnList, Popped, SequencesNotEnded};
use frameyard::{CpuId, Pfn, PfnRange, Platform};

/// All CPUs: what `end_sequences` gets as the CPU.
pub const FY_ALL_CPUS: u32 = 0xffff_ffff;

/// A guard: while it is held, no other code of the yard runs on its CPU. In one register.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct fy_guard {
    /// The number of the CPU that runs the caller.
    pub cpu: u32,
    /// What `leave` restores: whether interrupts were enabled, for example.
    pub state: u32,
}

/// The operations of the kernel. `fy_platform_ops_default()` sets `size`, and all other members to 0.
///
/// Each gets `context` first. None may call the yard, none may unwind or call `longjmp`. Any CPU may call them, several at once.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct fy_platform_ops {
    /// `sizeof(fy_platform_ops)`.
    pub size: usize,
    /// Passed to all operations but `panic`.
    pub context: *mut c_void,
    /// Takes a guard on the caller's CPU, and returns its number and what `leave` needs. It disables interrupts if interrupt handlers
    /// use the yard, and preemption otherwise. Guards nest. Required, except with hooks.
    pub enter: Option<unsafe extern "C" fn(context: *mut c_void) -> fy_guard>,
    /// Drops a guard of the caller's CPU, the latest one. Required, except with hooks.
    pub leave: Option<unsafe extern "C" fn(context: *mut c_void, guard: fy_guard)>,
    /// The number of the CPU that runs the caller, without a guard: it may be wrong when it is used. Required, except with hooks.
    pub current_cpu: Option<unsafe extern "C" fn(context: *mut c_void) -> u32>,
    /// Returns 1 when all sequences have ended that were in progress on a CPU (on all CPUs for `FY_ALL_CPUS`), and -1 if that is
    /// impossible. A sequence uses the CPU's own lists under a guard, without a lock. Sequences that begin later see all that the caller
    /// did before. A kernel interrupts the CPU and waits for its answer. The caller has no guard. If null, CPUs lock their lists: each
    /// call costs one locked operation more.
    pub end_sequences: Option<unsafe extern "C" fn(context: *mut c_void, cpu: u32) -> i32>,
    /// Pauses between two reads of a busy word, under a guard or in an interrupt handler: it must not sleep. `round` counts the calls of
    /// one wait from 0. If null, the library pauses the CPU, up to 32 times a round.
    pub spin: Option<unsafe extern "C" fn(context: *mut c_void, round: u32)>,
    /// Waits between two reads of a busy word, without a guard; may sleep, and should take about 1 us from round 8 on. If null, as
    /// `spin`.
    pub wait: Option<unsafe extern "C" fn(context: *mut c_void, round: u32)>,
    /// Where a frame's bytes are, or null if they are not mapped. Frames of one range of memory have consecutive addresses. If the
    /// operation is null, no frame has bytes: requests with `FY_GFP_ZERO` fail.
    pub frame_bytes: Option<unsafe extern "C" fn(context: *mut c_void, frame: u64) -> *mut c_void>,
    /// Zeroes `count` frames from `frame` on and returns 1, or returns 0 and leaves that to the library. May be null.
    pub zero: Option<unsafe extern "C" fn(context: *mut c_void, frame: u64, count: u64) -> i32>,
    /// Gets one line of text, without a line feed. `level` is one of `FY_LOG_*`. The caller may have a guard. May be null.
    pub log: Option<unsafe extern "C" fn(context: *mut c_void, level: u32, text: *const c_char)>,
    /// Gets the message of a failure inside the library and must not return. If it does, the CPU waits for ever. All later calls, on
    /// all yards and CPUs, return `FY_PANICKED`. The yard that was created last names the operation for all. Required.
    pub panic: Option<unsafe extern "C" fn(text: *const c_char)>,
}

// SAFETY: numbers and pointers, the size first; all of them may be zero.
unsafe impl SizedStruct for fy_platform_ops {
    const NAME: &'static str = "fy_platform_ops";
}

#[cfg(feature = "hooks")]
mod hooks {
    use super::fy_guard;

    // The kernel defines them. `frameyard_hooks.c` does, from a header of inline functions.
    unsafe extern "C" {
        pub(super) safe fn fy_hook_enter() -> fy_guard;
        pub(super) safe fn fy_hook_leave(guard: fy_guard);
        pub(super) safe fn fy_hook_current_cpu() -> u32;
    }
}

type Enter = unsafe extern "C" fn(*mut c_void) -> fy_guard;
type Leave = unsafe extern "C" fn(*mut c_void, fy_guard);
type CurrentCpu = unsafe extern "C" fn(*mut c_void) -> u32;

/// The operations that each call uses.
#[derive(Clone, Copy, Debug)]
#[cfg(not(feature = "hooks"))]
struct Usual {
    context: *mut c_void,
    enter: Enter,
    leave: Leave,
    current_cpu: CurrentCpu,
}

/// The operations that each call uses: hooks.
#[derive(Clone, Copy, Debug)]
#[cfg(feature = "hooks")]
struct Usual;

#[cfg(not(feature = "hooks"))]
impl Usual {
    fn of(ops: &fy_platform_ops) -> Result<Self, Failure> {
        let enter: Enter = ops.enter.ok_or(Failure::Null("ops->enter"))?;
        let leave: Leave = ops.leave.ok_or(Failure::Null("ops->leave"))?;
        let current_cpu: CurrentCpu = ops.current_cpu.ok_or(Failure::Null("ops->current_cpu"))?;
        Ok(Self { context: ops.context, enter, leave, current_cpu })
    }

    #[inline(always)]
    fn enter(&self) -> fy_guard {
        // SAFETY: the creator of the yard gives the operation for this context.
        unsafe { (self.enter)(self.context) }
    }

    #[inline(always)]
    fn leave(&self, guard: fy_guard) {
        // SAFETY: as above.
        unsafe { (self.leave)(self.context, guard) }
    }

    #[inline(always)]
    fn current_cpu(&self) -> u32 {
        // SAFETY: as above.
        unsafe { (self.current_cpu)(self.context) }
    }
}

#[cfg(feature = "hooks")]
impl Usual {
    fn of(_ops: &fy_platform_ops) -> Result<Self, Failure> {
        let _: (Option<Enter>, Option<Leave>, Option<CurrentCpu>) = (None, None, None);
        Ok(Self)
    }

    #[inline(always)]
    fn enter(&self) -> fy_guard {
        hooks::fy_hook_enter()
    }

    #[inline(always)]
    fn leave(&self, guard: fy_guard) {
        hooks::fy_hook_leave(guard);
    }

    #[inline(always)]
    fn current_cpu(&self) -> u32 {
        hooks::fy_hook_current_cpu()
    }
}

/// The core's platform: a kernel written in C.
#[derive(Debug)]
pub struct Kernel {
    usual: Usual,
    has_sequences: bool,
    ops: fy_platform_ops,
    /// The lock whose contents were found corrupt, in the form of `LockId::to_bits`, and [`IS_CORRUPT`].
    is_corrupt: AtomicBool,
}

// SAFETY: the operations suit any CPU, as the header demands; the pointer is only passed to them.
unsafe impl Send for Kernel {}
// SAFETY: as above.
unsafe impl Sync for Kernel {}

impl Kernel {
    /// The kernel with these operations.
    ///
    /// # Errors
    ///
    /// [`Failure::Null`] for a required operation that is missing.
    pub(crate) fn new(ops: &fy_platform_ops) -> Result<Self, Failure> {
        let usual = Usual::of(ops)?;
        if ops.panic.is_none() {
            return Err(Failure::Null("ops->panic"));
        }
        Ok(Self { usual, has_sequences: ops.end_sequences.is_some(), ops: *ops, is_corrupt: AtomicBool::new(false) })
    }

    /// From now on, failures inside the library go to this kernel's operation, for ever if the result is kept.
    pub(crate) fn receive_panics(&self) -> PanicReceiver {
        let own = self.ops.panic.map_or(null_mut(), |panic| panic as *mut c_void);
        PanicReceiver { own, before: PANIC.swap(own, Ordering::Relaxed) }
    }

    /// Writes one line of text. Longer ones are cut.
    pub(crate) fn log(&self, level: u32, text: fmt::Arguments<'_>) {
        let Some(log) = self.ops.log else { return };
        let mut bytes = [0; FY_MESSAGE_BYTES];
        write_line(&mut bytes, text);
        // SAFETY: the creator of the yard gives the operation for this context. The text ends with a byte 0.
        unsafe { log(self.ops.context, level, bytes.as_ptr()) }
    }
}

/// Failures go to the operation of a yard that is being made. If it is not made, they go to the earlier one again.
#[derive(Debug)]
#[must_use = "the operation is forgotten when this is dropped"]
pub(crate) struct PanicReceiver {
    own: *mut c_void,
    before: *mut c_void,
}

impl PanicReceiver {
    /// The yard is made.
    pub(crate) fn keep(self) {
        core::mem::forget(self);
    }
}

impl Drop for PanicReceiver {
    fn drop(&mut self) {
        // Another CPU that has made a yard meanwhile names the operation.
        let _ = PANIC.compare_exchange(self.own, self.before, Ordering::Relaxed, Ordering::Relaxed);
    }
}

/// A guard, until it is dropped.
#[derive(Debug)]
pub struct Guard {
    usual: Usual,
    guard: fy_guard,
}

impl Drop for Guard {
    #[inline(always)]
    fn drop(&mut self) {
        self.usual.leave(self.guard);
    }
}

impl Platform for Kernel {
    type Guard = Guard;

    #[inline(always)]
    fn backing(&self) -> &impl MemoryBacking {
        self
    }

    #[inline(always)]
    fn guard(&self) -> Guard {
        Guard { usual: self.usual, guard: self.usual.enter() }
    }

    #[inline(always)]
    fn current_cpu(&self) -> CpuId {
        CpuId(self.usual.current_cpu())
    }

    fn spin(&self, round: u32) {
        match self.ops.spin {
            // SAFETY: the creator of the yard gives the operation for this context.
            Some(spin) => unsafe { spin(self.ops.context, round) },
            None => (0..1 << round.min(5)).for_each(|_| core::hint::spin_loop()),
        }
    }

    fn wait(&self, round: u32) {
        match self.ops.wait {
            // SAFETY: as above.
            Some(wait) => unsafe { wait(self.ops.context, round) },
            None => self.spin(round),
        }
    }

    fn frame_bytes(&self, pfn: Pfn) -> Option<NonNull<u8>> {
        // SAFETY: as above.
        let bytes = unsafe { self.ops.frame_bytes?(self.ops.context, pfn.0) };
        NonNull::new(bytes.cast())
    }

    #[inline(always)]
    fn has_sequences(&self) -> bool {
        self.has_sequences
    }

    // The guard names its CPU: there is no second call for that.
    #[inline(always)]
    fn pop_in_sequence(&self, cpu: CpuId, list: OwnList<'_>) -> Popped {
        let guard = self.guard();
        if guard.guard.cpu == cpu.0 { list.pop(|| true) } else { Popped::NOTHING }
    }

    #[inline(always)]
    fn push_in_sequence(&self, cpu: CpuId, list: OwnList<'_>, entry: u32) -> bool {
        let guard = self.guard();
        guard.guard.cpu == cpu.0 && list.push(entry, || true)
    }

    fn end_sequences(&self, cpu: Option<CpuId>) -> Result<(), SequencesNotEnded> {
        let end = self.ops.end_sequences.ok_or(SequencesNotEnded)?;
        // SAFETY: as above.
        let ended = unsafe { end(self.ops.context, cpu.map_or(FY_ALL_CPUS, |cpu| cpu.0)) };
        if ended == 1 { Ok(()) } else { Err(SequencesNotEnded) }
    }

    fn note_corrupt(&self, lock: LockId) {
        if !self.is_corrupt.swap(true, Ordering::Relaxed) {
            self.log(FY_LOG_ERROR, format_args!("what the lock of {lock} guards is corrupt"));
        }
    }

    fn lock_error(&self) -> Option<LockError> {
        // Which lock it was stands in the log. The first zone's stands for it here.
        let lock = LockId::Zone(frameyard::ZoneId(0));
        self.is_corrupt.load(Ordering::Relaxed).then_some(LockError::Corrupt { lock })
    }

    fn note_bad_page(&self, bad: BadPage) {
        self.log(FY_LOG_WARNING, format_args!("{bad}"));
    }
}

impl MemoryBacking for Kernel {
    fn zero_frames(&self, frames: PfnRange) -> Offload {
        let Some(zero) = self.ops.zero else { return Offload::Declined };
        // SAFETY: the creator of the yard gives the operation for this context. The frames are the caller's.
        match unsafe { zero(self.ops.context, frames.start.0, frames.count().0) } {
            1 => Offload::Done,
            _ => Offload::Declined,
        }
    }
}

/// The operation that gets failures inside the library: a `fn(*const c_char)`, or null.
static PANIC: AtomicPtr<c_void> = AtomicPtr::new(null_mut());
/// Whether the library has failed.
static HAS_PANICKED: AtomicBool = AtomicBool::new(false);

/// Whether the library has failed.
#[inline(always)]
pub(crate) fn has_panicked() -> bool {
    HAS_PANICKED.load(Ordering::Relaxed)
}

/// Ends the use of all yards, and tells the kernel.
#[cfg_attr(not(feature = "freestanding"), expect(dead_code, reason = "called by the panic handler"))]
pub(crate) fn panicked(text: fmt::Arguments<'_>) {
    HAS_PANICKED.store(true, Ordering::Relaxed);
    let panic = PANIC.load(Ordering::Relaxed);
    if panic.is_null() {
        return;
    }
    let mut bytes = [0; FY_MESSAGE_BYTES];
    write_line(&mut bytes, text);
    // SAFETY: `receive_panics` stores a function of that type.
    unsafe { core::mem::transmute::<*mut c_void, unsafe extern "C" fn(*const c_char)>(panic)(bytes.as_ptr()) }
}

fn write_line(bytes: &mut [c_char], text: fmt::Arguments<'_>) {
    let mut buffer = TextBuffer::of(bytes);
    let _ = buffer.write_fmt(text);
    buffer.finish();
}

#[cfg(test)]
mod tests;
