//! [`ArenaHeap`]: a heap of mimalloc's in contiguous frames of a yard.

use std::alloc::Layout;
use std::ffi::{c_int, c_void};
use std::fmt;
use std::ptr::{self, NonNull};

use frameyard::policy::ZonePolicy;
use frameyard::{AllocError, Gfp, Order, PageCount};
use frameyard_host::{BudgetShare, ByteSize, HostYard, HugePages};
use libmimalloc_sys as sys;

use crate::mimalloc::slices::{self, ArenaUsage, Contents, SLICE, Slices};

/// Never moved or given back, so unmovable. Nothing is reclaimed for it.
const FLAGS: Gfp = Gfp::HIGHMEM.union(Gfp::NOWARN);

/// `mi_heap_malloc_aligned_at` and `mi_heap_zalloc_aligned_at`: heap, size, alignment, offset.
type AllocateAt = unsafe extern "C" fn(*mut sys::mi_heap_t, usize, usize, usize) -> *mut c_void;

/// A heap in an arena of its own. All threads may use it.
///
/// The heap and its frames exist until the process ends: mimalloc gives no arena up. Cost of a call: mimalloc's, which takes no lock of the
/// yard.
#[derive(Debug)]
pub struct ArenaHeap {
    heap: NonNull<sys::mi_heap_t>,
    start: usize,
    end: usize,
    yard: &'static HostYard,
    slices: &'static Slices,
}

unsafe extern "C" {
    /// As `mi_manage_os_memory_ex`. mimalloc calls `commit` with `argument` for slices that it takes into use or returns.
    fn mi_manage_memory(
        start: *mut c_void,
        size: usize,
        is_committed: bool,
        is_pinned: bool,
        is_zero: bool,
        numa_node: c_int,
        is_exclusive: bool,
        commit: unsafe extern "C" fn(bool, *mut c_void, usize, *mut bool, *mut c_void) -> bool,
        argument: *mut c_void,
        arena: *mut sys::mi_arena_id_t,
    ) -> bool;
}

// SAFETY: heaps of mimalloc 3 serve any thread. Each thread has its own lists in them.
unsafe impl Send for ArenaHeap {}
// SAFETY: as above.
unsafe impl Sync for ArenaHeap {}

/// Why a yard has no arena.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ArenaError {
    /// mimalloc's arenas have a smallest size.
    TooSmall {
        /// The requested size.
        size: ByteSize,
        /// The smallest size that works.
        least: ByteSize,
    },
    /// The yard cannot be made, for this reason.
    NoYard(String),
    /// The frames of the yard have no bytes.
    NoBytes,
    /// The yard has no such contiguous memory.
    Yard(AllocError),
    /// mimalloc has refused the memory: a process has a limited number of arenas.
    Refused,
    /// mimalloc has made the arena, but has no memory for a heap. The arena keeps its frames.
    NoHeap,
}

impl fmt::Display for ArenaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooSmall { size, least } => {
                write!(f, "{size} is too small for an arena of mimalloc's, which needs {least}")
            }
            Self::NoYard(reason) => write!(f, "no yard: {reason}"),
            Self::NoBytes => f.write_str("the frames of the yard have no bytes"),
            Self::Yard(error) => write!(f, "no contiguous memory for an arena: {error}"),
            Self::Refused => f.write_str("mimalloc has refused the memory: too many arenas"),
            Self::NoHeap => f.write_str("mimalloc has no memory for the heap of an arena"),
        }
    }
}

impl std::error::Error for ArenaError {}

impl ArenaHeap {
    /// The smallest arena.
    #[must_use]
    pub fn least_size() -> ByteSize {
        // SAFETY: returns a constant.
        ByteSize(unsafe { sys::mi_arena_min_size() } as u64)
    }

    /// Makes a heap in `size` of contiguous memory of the yard, rounded down to a multiple of [`least_size`](Self::least_size).
    ///
    /// # Errors
    ///
    /// [`ArenaError`]. The yard is then as before, except after [`ArenaError::NoHeap`].
    pub fn new(yard: &'static HostYard, size: ByteSize) -> Result<Self, ArenaError> {
        Self::made(yard, size, Contents::Anything, None)
    }

    /// Makes a heap in a private yard of its own, which has `size` for the arena, rounded down as by [`new`](Self::new). What the heap uses
    /// is charged to a budget: an allocation that the budget refuses fails.
    ///
    /// # Errors
    ///
    /// As for [`new`](Self::new), and [`ArenaError::NoYard`].
    pub fn in_own_yard(size: ByteSize, policy: ZonePolicy, share: Option<BudgetShare>) -> Result<Self, ArenaError> {
        let least = Self::least_size();
        if size < least {
            return Err(ArenaError::TooSmall { size, least });
        }
        let size = size.0 / least.0 * least.0;
        // More than the arena, for what a yard keeps free. Small pages make little of the memory map resident.
        let whole = size.checked_add(size / 64 + least.0 / 4).map_or(ByteSize(u64::MAX), ByteSize);
        let builder = HostYard::builder().map_huge_pages(HugePages::Never).policy(policy);
        let yard = builder.size(whole).build().map_err(|error| ArenaError::NoYard(error.to_string()))?;
        Self::made(Box::leak(Box::new(yard)), ByteSize(size), Contents::Zeroes, share)
    }

    fn made(
        yard: &'static HostYard,
        size: ByteSize,
        contents: Contents,
        share: Option<BudgetShare>,
    ) -> Result<Self, ArenaError> {
        let least = Self::least_size();
        if size < least {
            return Err(ArenaError::TooSmall { size, least });
        }
        let page_size = yard.geometry().page_size().0;
        let size = ByteSize(size.0 / least.0 * least.0);
        let (count, align) = (PageCount(size.0 / page_size), Self::alignment(yard));
        let range = yard.request(count, FLAGS).aligned(align).range().map_err(ArenaError::Yard)?;
        let Some(start) = yard.memory().frame(range.start) else {
            // An allocated range can be freed.
            let _ = yard.free_range(range);
            return Err(ArenaError::NoBytes);
        };
        let slices = Box::new(Slices::new(start.addr().get(), size.0 as usize, contents, share));
        let slices = ptr::from_ref::<Slices>(Box::leak(slices));
        let Some(arena) = Self::manage(start.as_ptr().cast(), size.0 as usize, slices) else {
            // As above. mimalloc keeps no memory that it refuses.
            let _ = yard.free_range(range);
            // SAFETY: leaked above, and mimalloc has not kept it.
            drop(unsafe { Box::from_raw(slices.cast_mut()) });
            return Err(ArenaError::Refused);
        };
        // From here on mimalloc uses the frames, with or without a heap.
        // SAFETY: the arena exists. The slices were leaked above.
        let (heap, slices) = unsafe { (sys::mi_heap_new_in_arena(arena), &*slices) };
        let heap = NonNull::new(heap).ok_or(ArenaError::NoHeap)?;
        let start = start.addr().get();
        Ok(Self { heap, start, end: start + size.0 as usize, yard, slices })
    }

    /// Pageblocks: mimalloc's slices of 64 KiB are smaller.
    fn alignment(yard: &HostYard) -> Order {
        yard.geometry().pageblock_order()
    }

    /// Makes the arena; `None` if mimalloc refuses the memory.
    fn manage(start: *mut c_void, size: usize, slices: *const Slices) -> Option<sys::mi_arena_id_t> {
        let mut arena: sys::mi_arena_id_t = ptr::null_mut();
        let (is_committed, is_pinned, is_zero, is_exclusive) = (false, false, false, true);
        // The function below gets the address from mimalloc.
        let _ = start.expose_provenance();
        let argument = slices.cast_mut().cast();
        // SAFETY: the memory is mapped and allocated for the arena. Its frames may contain anything. It belongs to no node for mimalloc, and
        // no other heap uses it. The slices exist as long as the arena, and the function is for them.
        let is_managed = unsafe {
            mi_manage_memory(
                start,
                size,
                is_committed,
                is_pinned,
                is_zero,
                -1,
                is_exclusive,
                slices::commit,
                argument,
                &raw mut arena,
            )
        };
        is_managed.then_some(arena)
    }

    /// The yard of the arena.
    #[must_use]
    pub fn yard(&self) -> &'static HostYard {
        self.yard
    }

    /// Counts since the arena was made. Reads a word for each 2 MiB. Takes no lock.
    #[must_use]
    pub fn usage(&self) -> ArenaUsage {
        self.slices.usage()
    }

    /// The process's part of the budget, if there is one.
    #[must_use]
    pub fn share(&self) -> Option<&BudgetShare> {
        self.slices.share()
    }

    /// Whether an address lies in the arena.
    #[must_use]
    pub fn contains<T: ?Sized>(&self, pointer: *const T) -> bool {
        (self.start..self.end).contains(&pointer.addr())
    }

    /// The size of the arena, metadata of mimalloc's included.
    #[must_use]
    pub fn size(&self) -> ByteSize {
        ByteSize((self.end - self.start) as u64)
    }

    /// The largest alignment that an arena serves: 2 MiB.
    pub const MOST_ALIGN: usize = 2 << 20;

    /// Allocates a block; `None` if the arena has no room, or beyond [`MOST_ALIGN`](Self::MOST_ALIGN). A size of zero gives a small block.
    #[must_use]
    pub fn allocate(&self, layout: Layout) -> Option<NonNull<u8>> {
        let (size, align) = (layout.size(), layout.align());
        if align > SLICE {
            return self.allocate_in_longer(layout, sys::mi_heap_malloc_aligned_at);
        }
        // SAFETY: the heap exists. The alignment is a power of two.
        NonNull::new(unsafe { sys::mi_heap_malloc_aligned(self.heap.as_ptr(), size, align) }.cast())
    }

    /// Allocates a zeroed block; `None` if the arena has no room, or beyond [`MOST_ALIGN`](Self::MOST_ALIGN).
    #[must_use]
    pub fn allocate_zeroed(&self, layout: Layout) -> Option<NonNull<u8>> {
        let (size, align) = (layout.size(), layout.align());
        if align > SLICE {
            return self.allocate_in_longer(layout, sys::mi_heap_zalloc_aligned_at);
        }
        // SAFETY: as in `allocate`.
        NonNull::new(unsafe { sys::mi_heap_zalloc_aligned(self.heap.as_ptr(), size, align) }.cast())
    }

    /// Allocates a block for any type of C: aligned to 16 bytes, or to 8 if it is smaller. `None` if the arena has no room.
    #[inline]
    #[must_use]
    pub fn allocate_bytes(&self, size: usize) -> Option<NonNull<u8>> {
        // SAFETY: the heap exists.
        NonNull::new(unsafe { sys::mi_heap_malloc(self.heap.as_ptr(), size) }.cast())
    }

    /// As [`allocate_bytes`](Self::allocate_bytes), zeroed.
    #[must_use]
    pub fn allocate_zeroed_bytes(&self, size: usize) -> Option<NonNull<u8>> {
        // SAFETY: the heap exists.
        NonNull::new(unsafe { sys::mi_heap_zalloc(self.heap.as_ptr(), size) }.cast())
    }

    /// An aligned part of a longer block. mimalloc would take a block with an alignment of more than a slice from the host.
    ///
    /// mimalloc finds the start of a block from an address in its first 4 MiB, if a call has aligned an address inside of it. A call with an
    /// offset of 8 does so.
    fn allocate_in_longer(&self, layout: Layout, allocate: AllocateAt) -> Option<NonNull<u8>> {
        const INSIDE: usize = 8;
        let (size, align) = (layout.size().max(1), layout.align());
        if align > Self::MOST_ALIGN {
            return None;
        }
        let longer = size.checked_add(align)?;
        // SAFETY: the heap exists. The alignment is a power of two.
        let inside = NonNull::new(unsafe { allocate(self.heap.as_ptr(), longer, 2 * INSIDE, INSIDE) })?;
        let skipped = inside.addr().get().next_multiple_of(align) - inside.addr().get();
        // SAFETY: less than the alignment, by which the block is longer than its size.
        Some(unsafe { inside.cast::<u8>().add(skipped) })
    }

    /// Resizes a block; `None`, and the block is as before, if the arena has no room.
    ///
    /// # Safety
    ///
    /// The block was allocated by mimalloc with alignment `align`, and is in use.
    #[must_use]
    pub unsafe fn resize(&self, block: NonNull<u8>, size: usize, align: usize) -> Option<NonNull<u8>> {
        if align > SLICE {
            let moved = self.allocate(Layout::from_size_align(size, align).ok()?)?;
            // SAFETY: passed on to the caller. Two blocks do not overlap.
            unsafe {
                let kept = sys::mi_usable_size(block.as_ptr().cast()).min(size);
                moved.copy_from_nonoverlapping(block, kept);
                self.free(block);
            }
            return Some(moved);
        }
        // SAFETY: passed on to the caller.
        let moved = unsafe { sys::mi_heap_realloc_aligned(self.heap.as_ptr(), block.as_ptr().cast(), size, align) };
        NonNull::new(moved.cast())
    }

    /// As [`resize`](Self::resize), with the alignment of [`allocate_bytes`](Self::allocate_bytes).
    ///
    /// # Safety
    ///
    /// mimalloc has allocated the block, which is in use.
    #[must_use]
    pub unsafe fn resize_bytes(&self, block: NonNull<u8>, size: usize) -> Option<NonNull<u8>> {
        // SAFETY: passed on to the caller.
        NonNull::new(unsafe { sys::mi_heap_realloc(self.heap.as_ptr(), block.as_ptr().cast(), size) }.cast())
    }

    /// The size that a block has room for.
    ///
    /// # Safety
    ///
    /// mimalloc has allocated the block, which is in use.
    #[must_use]
    pub unsafe fn usable_size(&self, block: NonNull<u8>) -> usize {
        // SAFETY: passed on to the caller.
        unsafe { sys::mi_usable_size(block.as_ptr().cast()) }
    }

    /// Frees a block, in any thread.
    ///
    /// # Safety
    ///
    /// A heap of mimalloc has allocated the block, and no code uses it any more.
    pub unsafe fn free(&self, block: NonNull<u8>) {
        // SAFETY: passed on to the caller.
        unsafe { sys::mi_free(block.as_ptr().cast()) };
    }
}
