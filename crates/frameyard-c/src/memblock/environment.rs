//! What the library asks of the program, and where it reports failures.

use core::ffi::{CStr, c_char, c_longlong};
use core::fmt::{self, Write};
use core::ptr::{NonNull, with_exposed_provenance_mut};

use frameyard_memblock::{EarlyMemory, MovableNodes};
use frameyard_units::{ByteSize, PhysAddr};

/// What the library asks of the program. A program sets it before its first call; zeros are the default.
#[derive(Debug)]
#[repr(C)]
pub struct memblock_environment {
    /// The address of the byte at physical address `p` is `p + va_offset`. 0: they are equal.
    pub va_offset: c_longlong,
    /// Gets a line of text with a line feed at its end: failures, and what `memblock_dump_all` prints. Null: nothing is printed. It
    /// must return, and must not call the library or write its state.
    pub print: Option<unsafe extern "C" fn(line: *const c_char)>,
    /// Whether allocations avoid hotpluggable memory: the kernel's function of this name. Null: they do not. It must return, and
    /// must not call the library or write its state.
    pub movable_node_is_enabled: Option<unsafe extern "C" fn() -> bool>,
    /// Whether `memblock_mark_mirror` has an effect: the kernel's variable of this name.
    pub mirrored_kernelcore: bool,
    /// Whether a list that becomes empty keeps one region of no bytes, so that `cnt` is 1. Linux did that before version 6.10. The
    /// library takes an empty list in both forms.
    pub empty_list_has_region: bool,
}

/// The environment of the library.
#[unsafe(no_mangle)]
pub static mut frameyard_memblock: memblock_environment = memblock_environment {
    va_offset: 0,
    print: None,
    movable_node_is_enabled: None,
    mirrored_kernelcore: false,
    empty_list_has_region: false,
};

/// Memory at a fixed distance from its physical addresses.
#[derive(Debug)]
pub(crate) struct OffsetMemory {
    offset: u64,
}

impl OffsetMemory {
    /// # Safety
    ///
    /// One thread at a time uses the library. Memory that is added, not reserved and below the current limit is at the offset, and
    /// no other code accesses it.
    pub(crate) unsafe fn new() -> Self {
        // SAFETY: no other thread writes the variable now.
        let offset = unsafe { (&raw const frameyard_memblock.va_offset).read() };
        Self { offset: offset.cast_unsigned() }
    }

    /// The physical address of a pointer.
    pub(crate) fn address_of(&self, pointer: *const u8) -> PhysAddr {
        PhysAddr((pointer.expose_provenance() as u64).wrapping_sub(self.offset))
    }
}

// SAFETY: `new` requires what the contract does.
unsafe impl EarlyMemory for OffsetMemory {
    fn map(&self, start: PhysAddr, size: ByteSize) -> Option<NonNull<u8>> {
        let first = start.0.wrapping_add(self.offset);
        let last = first.checked_add(size.0.checked_sub(1)?)?;
        usize::try_from(last).ok()?;
        NonNull::new(with_exposed_provenance_mut(first as usize))
    }
}

/// Whether allocations avoid hotpluggable memory.
///
/// # Safety
///
/// One thread at a time uses the library.
pub(crate) unsafe fn movable_nodes() -> MovableNodes {
    // SAFETY: no other thread writes the variable now.
    let function = unsafe { (&raw const frameyard_memblock.movable_node_is_enabled).read() };
    // SAFETY: the program gave the function for this call.
    if function.is_some_and(|function| unsafe { function() }) { MovableNodes::Enabled } else { MovableNodes::Disabled }
}

/// Prints lines through the program's function, cut to the buffer.
#[derive(Debug)]
pub(crate) struct Lines {
    print: unsafe extern "C" fn(line: *const c_char),
    line: [u8; 192],
    len: usize,
}

impl Lines {
    /// `None` if the program wants no text.
    ///
    /// # Safety
    ///
    /// One thread at a time uses the library.
    pub(crate) unsafe fn new() -> Option<Self> {
        // SAFETY: no other thread writes the variable now.
        let print = unsafe { (&raw const frameyard_memblock.print).read() }?;
        Some(Self { print, line: [0; 192], len: 0 })
    }
}

impl Write for Lines {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for byte in text.bytes() {
            // Room for the line feed and the byte 0.
            if byte != 0 && byte != b'\n' && self.len < self.line.len() - 2 {
                self.line[self.len] = byte;
                self.len += 1;
            }
            if byte == b'\n' {
                self.line[self.len] = b'\n';
                self.line[self.len + 1] = 0;
                self.len = 0;
                let line = CStr::from_bytes_until_nul(&self.line).unwrap_or(c"");
                // SAFETY: the program gave the function for this call.
                unsafe { (self.print)(line.as_ptr()) };
            }
        }
        Ok(())
    }
}

/// Prints one line: a function's name and why it failed.
///
/// # Safety
///
/// One thread at a time uses the library.
#[cold]
pub(crate) unsafe fn report(function: &str, reason: &dyn fmt::Display) {
    // SAFETY: passed on.
    if let Some(mut lines) = unsafe { Lines::new() } {
        let _ = writeln!(lines, "{function}: {reason}");
    }
}
