//! Flags of the calling thread, for code inside of `malloc`.
//!
//! The flags lie in the block of thread-local memory that exists from the start of a thread, at an offset that the dynamic linker knows
//! (initial-exec). `thread_local!` would call the dynamic linker from a shared library, which reallocates its table of a thread after each
//! `dlopen`. Inside a hook that would call the hook again.

/// The thread is in an extent hook.
pub(crate) const IN_HOOK: u8 = 1;
/// The thread is in a `fork`.
pub(crate) const FORKING: u8 = 2;
/// The thread has started to use another heap beside this one, if the program has one. This crate does not use it.
pub const OTHER_HEAP: u8 = 4;

/// Whether the calling thread has set a flag.
#[inline]
#[must_use]
pub fn is_set(flag: u8) -> bool {
    // SAFETY: the byte is the calling thread's own, and no reference to it exists.
    unsafe { state().read() & flag != 0 }
}

/// Sets a flag of the calling thread.
#[inline]
pub fn set(flag: u8) {
    // SAFETY: as in `is_set`.
    unsafe { state().write(state().read() | flag) }
}

/// Clears a flag of the calling thread.
#[inline]
pub fn clear(flag: u8) {
    // SAFETY: as in `is_set`.
    unsafe { state().write(state().read() & !flag) }
}

#[cfg(target_arch = "x86_64")]
std::arch::global_asm!(
    ".pushsection .tbss.frameyard_thread_state,\"awT\",@nobits",
    ".globl frameyard_thread_state",
    ".hidden frameyard_thread_state",
    ".type frameyard_thread_state, @object",
    ".size frameyard_thread_state, 1",
    "frameyard_thread_state:",
    ".zero 1",
    ".popsection",
);

/// The calling thread's byte.
#[cfg(target_arch = "x86_64")]
#[inline]
fn state() -> *mut u8 {
    let state;
    // SAFETY: reads the offset of the byte, which the linker or the dynamic linker has stored, and the thread pointer. Both are constant
    // for a thread.
    unsafe {
        std::arch::asm!(
            "mov {state}, qword ptr [rip + frameyard_thread_state@GOTTPOFF]",
            "add {state}, qword ptr fs:[0]",
            state = out(reg) state,
            options(pure, readonly, nostack),
        );
    }
    state
}

/// The calling thread's byte. Not lazy and without a destructor.
#[cfg(not(target_arch = "x86_64"))]
fn state() -> *mut u8 {
    thread_local! {
        static STATE: std::cell::Cell<u8> = const { std::cell::Cell::new(0) };
    }
    STATE.with(std::cell::Cell::as_ptr)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_are_of_one_thread_and_independent() {
        set(IN_HOOK);
        set(FORKING);
        clear(IN_HOOK);
        assert!(is_set(FORKING) && !is_set(IN_HOOK));
        std::thread::spawn(|| assert!(!is_set(FORKING) && !is_set(IN_HOOK))).join().unwrap();
        clear(FORKING);
        assert!(!is_set(FORKING));
    }
}
