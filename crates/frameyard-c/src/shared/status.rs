//! [`fy_status`]: what a call returns.

use core::ffi::{CStr, c_char};

/// What a call returns. `FY_OK` is 0. Later versions may add values.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
pub enum fy_status {
    /// The call did what it was asked to do.
    FY_OK = 0,
    /// A pointer is null that must not be.
    FY_NULL_POINTER = 1,
    /// The size in a structure is impossible, or a newer header than the library's has set a member that the library does not know.
    FY_BAD_SIZE = 2,
    /// The program was compiled with the header of an incompatible version.
    FY_BAD_VERSION = 3,
    /// An argument has a value that it cannot have.
    FY_BAD_ARGUMENT = 4,
    /// Flags that do not exist, or exclude each other.
    FY_BAD_FLAGS = 5,
    /// An order or a count above the maximum of the yard.
    FY_BAD_ORDER = 6,
    /// The yard has no such node.
    FY_NO_SUCH_NODE = 7,
    /// No policy has this name.
    FY_UNKNOWN_POLICY = 8,
    /// This kind of yard, or this build, cannot do it.
    FY_NOT_SUPPORTED = 9,
    /// No free block of the yard can serve the request.
    FY_OUT_OF_MEMORY = 10,
    /// The host has too little memory for the yard.
    FY_NO_HOST_MEMORY = 11,
    /// The frame has no bytes in this process, as in a phantom yard.
    FY_NO_FRAME_BYTES = 12,
    /// The yard has no such frame, or no block of that order begins there.
    FY_BAD_FRAME = 13,
    /// The block is free already.
    FY_ALREADY_FREE = 14,
    /// The block was allocated with another order.
    FY_WRONG_ORDER = 15,
    /// The frame is in a state in which it cannot be freed.
    FY_NOT_ALLOCATED = 16,
    /// A frame or an address of the requested range, or a device, is in use.
    FY_IN_USE = 17,
    /// A running process has a shared yard of this name.
    FY_NAME_IN_USE = 18,
    /// No running process has a shared yard of this name.
    FY_NO_SUCH_NAME = 19,
    /// The file is no yard of this version of the library.
    FY_BAD_FILE = 20,
    /// The operating system refused a call.
    FY_SYSTEM = 21,
    /// Another thread or process did not finish in time. The call can be repeated.
    FY_BUSY = 22,
    /// A process has died inside a call, or has damaged a shared yard. No further allocation succeeds.
    FY_DAMAGED = 23,
    /// A frame was written to while it was free.
    FY_WRITTEN_WHILE_FREE = 24,
    /// Validation found an equation that does not hold.
    FY_INVALID = 25,
    /// The library has failed inside a call. The yard cannot be used any more, except to destroy it.
    FY_PANICKED = 26,
    /// The yard has no such device.
    FY_NO_SUCH_DEVICE = 27,
    /// A page has fewer references, pins or entries of page tables than are released.
    FY_NOT_COUNTED = 28,
    /// Nothing is mapped at an address of an address space, or the mapping forbids the access.
    FY_BAD_ADDRESS = 29,
}

use fy_status::*;

impl fy_status {
    /// All values.
    pub const ALL: [Self; 30] = [
        FY_OK,
        FY_NULL_POINTER,
        FY_BAD_SIZE,
        FY_BAD_VERSION,
        FY_BAD_ARGUMENT,
        FY_BAD_FLAGS,
        FY_BAD_ORDER,
        FY_NO_SUCH_NODE,
        FY_UNKNOWN_POLICY,
        FY_NOT_SUPPORTED,
        FY_OUT_OF_MEMORY,
        FY_NO_HOST_MEMORY,
        FY_NO_FRAME_BYTES,
        FY_BAD_FRAME,
        FY_ALREADY_FREE,
        FY_WRONG_ORDER,
        FY_NOT_ALLOCATED,
        FY_IN_USE,
        FY_NAME_IN_USE,
        FY_NO_SUCH_NAME,
        FY_BAD_FILE,
        FY_SYSTEM,
        FY_BUSY,
        FY_DAMAGED,
        FY_WRITTEN_WHILE_FREE,
        FY_INVALID,
        FY_PANICKED,
        FY_NO_SUCH_DEVICE,
        FY_NOT_COUNTED,
        FY_BAD_ADDRESS,
    ];

    /// One line about the value.
    #[must_use]
    pub const fn text(self) -> &'static CStr {
        match self {
            FY_OK => c"no error",
            FY_NULL_POINTER => c"a pointer is null that must not be",
            FY_BAD_SIZE => c"a structure has an impossible size, or its header is newer than the library",
            FY_BAD_VERSION => c"the program was compiled with the header of an incompatible version",
            FY_BAD_ARGUMENT => c"an argument has a value that it cannot have",
            FY_BAD_FLAGS => c"the flags do not exist, or exclude each other",
            FY_BAD_ORDER => c"the order or the count is above the maximum",
            FY_NO_SUCH_NODE => c"the node does not exist",
            FY_UNKNOWN_POLICY => c"no policy has this name",
            FY_NOT_SUPPORTED => c"this yard or this build cannot do it",
            FY_OUT_OF_MEMORY => c"out of memory: no free block can serve the request",
            FY_NO_HOST_MEMORY => c"the host has too little memory for the yard",
            FY_NO_FRAME_BYTES => c"the frame has no bytes in this process",
            FY_BAD_FRAME => c"the yard has no such frame, or no block of that order begins there",
            FY_ALREADY_FREE => c"the block is free already",
            FY_WRONG_ORDER => c"the block was allocated with another order",
            FY_NOT_ALLOCATED => c"the frame is in a state in which it cannot be freed",
            FY_IN_USE => c"a frame or an address of the range, or the device, is in use",
            FY_NAME_IN_USE => c"a running process has a shared yard of this name",
            FY_NO_SUCH_NAME => c"no running process has a shared yard of this name",
            FY_BAD_FILE => c"the file is no yard of this version",
            FY_SYSTEM => c"the operating system refused a call",
            FY_BUSY => c"another thread or process did not finish in time",
            FY_DAMAGED => c"the yard is damaged: end all its processes",
            FY_WRITTEN_WHILE_FREE => c"a frame was written to while it was free",
            FY_INVALID => c"validation found a problem",
            FY_PANICKED => c"the library has failed inside a call: the yard cannot be used any more",
            FY_NO_SUCH_DEVICE => c"the device does not exist",
            FY_NOT_COUNTED => c"a page has fewer references, pins or entries than are released",
            FY_BAD_ADDRESS => c"nothing is mapped at the address, or the mapping forbids the access",
        }
    }
}

/// One line about a status, in English. Never null; a number that is no status has a line, too. The text lives as long as the program.
///
/// Thread safety: any thread, at any time. Cost: a table.
#[unsafe(no_mangle)]
pub extern "C" fn fy_strerror(status: i32) -> *const c_char {
    let found = fy_status::ALL.into_iter().find(|known| *known as i32 == status);
    found.map_or(c"this number is no status", fy_status::text).as_ptr()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses_have_their_numbers_and_lines_of_their_own() {
        for (number, status) in fy_status::ALL.into_iter().enumerate() {
            assert_eq!(status as usize, number);
            let others = fy_status::ALL.into_iter().filter(|other| *other != status);
            assert!(others.into_iter().all(|other| other.text() != status.text()));
        }
    }
}
