//! jemalloc's extent hooks on a yard.
//!
//! | hook | what it does |
//! |---|---|
//! | `alloc` | allocates contiguous blocks, of its node for an arena of a node; at a given address only if all frames there are free |
//! | `dalloc`, `destroy` | return the memory to the host and the frames to the yard |
//! | `commit` | nothing: the memory of the yard is always mapped |
//! | `decommit`, `purge_forced` | return the memory to the host (`MADV_DONTNEED`); the frames stay allocated |
//! | `purge_lazy` | lets the host take the memory when it needs some (`MADV_FREE`) |
//! | `split` | divides the block on the boundary |
//! | `merge` | nothing: a range is freed block by block. Refuses extents of which one lies outside the yard |
//!
//! jemalloc's first extents, which it mapped before the hooks were installed, pass through the hooks as well. They lie outside the yard
//! and are unmapped.

use std::ffi::{c_int, c_uint, c_void};
use std::ptr;

use crate::jemalloc::current::extents;
use crate::jemalloc::extents::{Extents, discard};
use crate::jemalloc::forking;
use crate::jemalloc::thread_state::{self, IN_HOOK};

/// jemalloc's `extent_hooks_t`. Its flags are C's `bool`, which the bindings declare as `int` in some builds.
#[repr(C)]
pub(crate) struct ExtentHooks {
    alloc: unsafe extern "C" fn(*mut Self, *mut c_void, usize, usize, *mut bool, *mut bool, c_uint) -> *mut c_void,
    dalloc: unsafe extern "C" fn(*mut Self, *mut c_void, usize, bool, c_uint) -> bool,
    destroy: unsafe extern "C" fn(*mut Self, *mut c_void, usize, bool, c_uint),
    commit: PartHook,
    decommit: PartHook,
    purge_lazy: PartHook,
    purge_forced: PartHook,
    split: unsafe extern "C" fn(*mut Self, *mut c_void, usize, usize, usize, bool, c_uint) -> bool,
    merge: unsafe extern "C" fn(*mut Self, *mut c_void, usize, *mut c_void, usize, bool, c_uint) -> bool,
}

/// A hook for a part of an extent: its address and size, then offset and length of the part.
type PartHook = unsafe extern "C" fn(*mut ExtentHooks, *mut c_void, usize, usize, usize, c_uint) -> bool;

/// The hooks. jemalloc only reads them.
pub(crate) static HOOKS: ExtentHooks = ExtentHooks {
    alloc,
    dalloc,
    destroy,
    commit,
    decommit: discard_part,
    purge_lazy,
    purge_forced: discard_part,
    split,
    merge,
};

/// The smallest page of a machine. On a machine with larger ones, mappings are aligned better than they need be.
const PAGE: usize = 4096;

/// What a hook returns where jemalloc asks whether it failed.
const DONE: bool = false;
const FAILED: bool = true;

/// Whether the calling thread is in an extent hook, where it must not allocate.
#[must_use]
pub fn is_in_hook() -> bool {
    thread_state::is_set(IN_HOOK)
}

/// Marks the thread while it is in a hook, and keeps the error number of the program: `free` must not change it, and jemalloc does not
/// restore it.
struct InHook {
    error: c_int,
}

impl InHook {
    fn enter() -> Self {
        thread_state::set(IN_HOOK);
        // SAFETY: the calling thread's own number.
        Self { error: unsafe { *libc::__errno_location() } }
    }
}

impl Drop for InHook {
    fn drop(&mut self) {
        // SAFETY: the calling thread's own number.
        unsafe { *libc::__errno_location() = self.error };
        thread_state::clear(IN_HOOK);
    }
}

/// The yard of an extent.
fn owner(extent: *mut c_void) -> Option<&'static Extents> {
    extents().filter(|extents| extents.contains(extent.addr()))
}

unsafe extern "C" fn alloc(
    _hooks: *mut ExtentHooks,
    new_addr: *mut c_void,
    size: usize,
    alignment: usize,
    zero: *mut bool,
    commit: *mut bool,
    arena: c_uint,
) -> *mut c_void {
    let _mark = InHook::enter();
    let node = |extents: &Extents| extents.nodes().node_of(arena);
    let extent = match (extents(), new_addr.is_null()) {
        (_, true) if forking::is_forking() => map(size, alignment),
        (Some(extents), true) => extents.allocate(size, alignment, node(extents)).map(|extent| extent.as_ptr().cast()),
        (Some(extents), false) if extents.contains(new_addr.addr()) && !forking::is_forking() => {
            extents.allocate_at(new_addr.addr(), size, node(extents)).map(|extent| extent.as_ptr().cast())
        }
        _ => None,
    };
    let Some(extent) = extent else { return ptr::null_mut() };
    // SAFETY: jemalloc passes pointers to its own flags.
    unsafe {
        zero.write(true);
        commit.write(true);
    }
    extent
}

/// Memory of the host, for a thread that forks.
fn map(size: usize, alignment: usize) -> Option<*mut c_void> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // Mappings start on a page.
    let slack = if alignment > PAGE { alignment } else { 0 };
    let whole = size.checked_add(slack)?;
    // SAFETY: a new mapping.
    let memory = unsafe { libc::mmap(ptr::null_mut(), whole, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0) };
    if memory == libc::MAP_FAILED {
        return None;
    }
    let before = memory.addr().next_multiple_of(alignment) - memory.addr();
    let start = memory.wrapping_byte_add(before);
    for (part, len) in [(memory, before), (start.wrapping_byte_add(size), slack - before)] {
        if len > 0 {
            // SAFETY: a part of the mapping made above, outside the extent.
            unsafe { libc::munmap(part, len) };
        }
    }
    Some(start)
}

unsafe extern "C" fn dalloc(
    _hooks: *mut ExtentHooks,
    addr: *mut c_void,
    size: usize,
    _committed: bool,
    _arena: c_uint,
) -> bool {
    let _mark = InHook::enter();
    match owner(addr) {
        // jemalloc keeps the extent, and offers it again later.
        Some(_) if forking::is_forking() => FAILED,
        // SAFETY: jemalloc owns the extent and no longer uses it.
        Some(extents) => !unsafe { extents.free(addr.addr(), size) },
        // SAFETY: jemalloc owns the extent, which it or `map` has mapped, and no longer uses it.
        None => unsafe { libc::munmap(addr, size) != 0 },
    }
}

unsafe extern "C" fn destroy(hooks: *mut ExtentHooks, addr: *mut c_void, size: usize, committed: bool, arena: c_uint) {
    // SAFETY: as for `dalloc`. An extent that cannot be freed is lost with its arena.
    let _is_lost = unsafe { dalloc(hooks, addr, size, committed, arena) };
}

unsafe extern "C" fn commit(
    _hooks: *mut ExtentHooks,
    _addr: *mut c_void,
    _size: usize,
    _offset: usize,
    _length: usize,
    _arena: c_uint,
) -> bool {
    DONE
}

unsafe extern "C" fn discard_part(
    _hooks: *mut ExtentHooks,
    addr: *mut c_void,
    _size: usize,
    offset: usize,
    length: usize,
    _arena: c_uint,
) -> bool {
    let _mark = InHook::enter();
    // SAFETY: jemalloc owns the extent and no longer needs this part of its contents.
    !unsafe { discard(addr.addr() + offset, length, libc::MADV_DONTNEED) }
}

unsafe extern "C" fn purge_lazy(
    _hooks: *mut ExtentHooks,
    addr: *mut c_void,
    _size: usize,
    offset: usize,
    length: usize,
    _arena: c_uint,
) -> bool {
    let _mark = InHook::enter();
    // SAFETY: jemalloc owns the extent and no longer needs this part of its contents.
    !unsafe { discard(addr.addr() + offset, length, libc::MADV_FREE) }
}

unsafe extern "C" fn split(
    _hooks: *mut ExtentHooks,
    addr: *mut c_void,
    _size: usize,
    size_a: usize,
    _size_b: usize,
    _committed: bool,
    _arena: c_uint,
) -> bool {
    let _mark = InHook::enter();
    match owner(addr) {
        Some(extents) if !extents.split(addr.addr() + size_a) => FAILED,
        _ => DONE,
    }
}

unsafe extern "C" fn merge(
    _hooks: *mut ExtentHooks,
    addr_a: *mut c_void,
    _size_a: usize,
    addr_b: *mut c_void,
    _size_b: usize,
    _committed: bool,
    _arena: c_uint,
) -> bool {
    if owner(addr_a).is_some() == owner(addr_b).is_some() { DONE } else { FAILED }
}
