//! Guards that disable interrupts. They nest.
//!
//! On bare x86-64 a guard saves the interrupt flag and clears it. In a process, where `cli` would fault, a variable takes
//! the place of the flag, so that tests run the same code.

/// A guard: interrupts are disabled until it is dropped.
#[derive(Debug)]
pub struct InterruptsOff {
    were_enabled: bool,
}

impl InterruptsOff {
    /// Disables interrupts.
    #[inline]
    pub fn enter() -> Self {
        Self { were_enabled: flag::disable() }
    }
}

impl Drop for InterruptsOff {
    #[inline]
    fn drop(&mut self) {
        if self.were_enabled {
            flag::enable();
        }
    }
}

/// Whether interrupts are enabled.
#[cfg(test)]
pub(crate) fn are_enabled() -> bool {
    flag::are_enabled()
}

#[cfg(all(target_arch = "x86_64", target_os = "none"))]
mod flag {
    use core::arch::asm;

    /// The interrupt flag in RFLAGS.
    const INTERRUPT_FLAG: u64 = 1 << 9;

    pub(super) fn disable() -> bool {
        let flags: u64;
        // SAFETY: reads the flags and masks interrupts; kernel code runs in ring 0. No `nomem`: the compiler must not move
        // memory accesses to before the creation of the guard.
        unsafe { asm!("pushfq", "pop {}", "cli", out(reg) flags) };
        flags & INTERRUPT_FLAG != 0
    }

    pub(super) fn enable() {
        // SAFETY: interrupts were enabled when the guard was created.
        unsafe { asm!("sti") };
    }
}

#[cfg(not(all(target_arch = "x86_64", target_os = "none")))]
mod flag {
    use core::sync::atomic::{AtomicBool, Ordering};

    static ENABLED: AtomicBool = AtomicBool::new(true);

    pub(super) fn disable() -> bool {
        ENABLED.swap(false, Ordering::Relaxed)
    }

    pub(super) fn enable() {
        ENABLED.store(true, Ordering::Relaxed);
    }

    #[cfg(test)]
    pub(super) fn are_enabled() -> bool {
        ENABLED.load(Ordering::Relaxed)
    }
}
