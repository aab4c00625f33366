//! The C functions of a yard: `functions!` declares them for the handle type of an interface. `$export` gives them their names in C.
//!
//! The tests of the headers read this file: what stands between the two lines with "functions:" becomes a part of both headers, with
//! `fy_yard` for `$yard`.

/// Declares the C functions for a handle type, which implements [`Handle`](crate::shared::Handle).
macro_rules! functions {
    ($yard:ty, $export:meta) => {
        // functions: begin
        /// Allocates a block of 2^`order` frames and sets `*frame` to the first one. `fy_free` frees it.
        ///
        /// The block is of the node that the caller runs on, if possible. Its bytes have what the last owner wrote, unless `flags` has
        /// `FY_GFP_ZERO`.
        ///
        /// Errors: `FY_OUT_OF_MEMORY`, `FY_BAD_ORDER`, `FY_BAD_FLAGS`, `FY_NO_FRAME_BYTES` (zeroed frames of a phantom yard), `FY_BUSY`,
        /// `FY_DAMAGED`, `FY_NULL_POINTER`, `FY_PANICKED`. Nothing is allocated and `*frame` is unchanged then.
        ///
        /// Thread safety: any thread. Cost: usually no lock; at most one acquisition of the zone lock for each batch.
        ///
        /// # Safety
        ///
        /// See the crate's documentation, "Pointers".
        #[$export]
        pub unsafe extern "C" fn fy_alloc(
            yard: *const $yard,
            order: u32,
            flags: u32,
            frame: *mut u64,
            error: *mut $crate::shared::fy_error,
        ) -> $crate::shared::fy_status {
            // SAFETY: passed on to the caller.
            unsafe { $crate::shared::calls::alloc(yard, order, flags, frame, error) }
        }

        /// Frees a block of 2^`order` frames that begins at `frame`.
        ///
        /// Errors: `FY_ALREADY_FREE`, `FY_WRONG_ORDER`, `FY_NOT_ALLOCATED`, `FY_BAD_FRAME`, `FY_BUSY`, `FY_DAMAGED`, `FY_NULL_POINTER`,
        /// `FY_PANICKED`. A bad free changes nothing. A frame that another part of the program has allocated in the meantime is that part's: no
        /// check finds such a free.
        ///
        /// Thread safety: any thread, not only the one that allocated. Cost: as `fy_alloc`.
        ///
        /// # Safety
        ///
        /// See the crate's documentation, "Pointers".
        #[$export]
        pub unsafe extern "C" fn fy_free(
            yard: *const $yard,
            frame: u64,
            order: u32,
            error: *mut $crate::shared::fy_error,
        ) -> $crate::shared::fy_status {
            // SAFETY: passed on to the caller.
            unsafe { $crate::shared::calls::free(yard, frame, order, error) }
        }

        /// As `fy_alloc`, from a node if possible, or from that node only if `flags` has `FY_GFP_THISNODE`.
        ///
        /// Errors: as `fy_alloc`, and `FY_NO_SUCH_NODE`. Thread safety: any thread. Cost: takes a lock of the CPU's lists.
        ///
        /// # Safety
        ///
        /// See the crate's documentation, "Pointers".
        #[$export]
        pub unsafe extern "C" fn fy_alloc_on(
            yard: *const $yard,
            node: u32,
            order: u32,
            flags: u32,
            frame: *mut u64,
            error: *mut $crate::shared::fy_error,
        ) -> $crate::shared::fy_status {
            // SAFETY: passed on to the caller.
            unsafe { $crate::shared::calls::alloc_on(yard, node, order, flags, frame, error) }
        }

        /// Allocates exactly `count` consecutive frames and sets `*frame` to the first one. `fy_free_range` frees them, at once or in parts.
        ///
        /// `count` is at most that of the largest block; `fy_alloc_request` with an alignment has no such limit. After the kernel's
        /// `alloc_pages_exact`.
        ///
        /// Errors: as `fy_alloc`, and `FY_BAD_ARGUMENT` for no frame. Thread safety: any thread. Cost: a block's, and a free for the rest.
        ///
        /// # Safety
        ///
        /// See the crate's documentation, "Pointers".
        #[$export]
        pub unsafe extern "C" fn fy_alloc_exact(
            yard: *const $yard,
            count: u64,
            flags: u32,
            frame: *mut u64,
            error: *mut $crate::shared::fy_error,
        ) -> $crate::shared::fy_status {
            // SAFETY: passed on to the caller.
            unsafe { $crate::shared::calls::alloc_exact(yard, count, flags, frame, error) }
        }

        /// Frees the frames of a range: whole blocks and parts of blocks. A block that reaches beyond the range is divided, and its other
        /// frames stay allocated.
        ///
        /// Errors: as `fy_free`, and `FY_BAD_ARGUMENT` for an impossible range; nothing has changed then. Thread safety: any thread, while no
        /// other frees or divides these blocks. Cost: that of `fy_free` for each block, and of `fy_split_at` at each end inside a block.
        ///
        /// # Safety
        ///
        /// See the crate's documentation, "Pointers".
        #[$export]
        pub unsafe extern "C" fn fy_free_range(
            yard: *const $yard,
            start: u64,
            count: u64,
            error: *mut $crate::shared::fy_error,
        ) -> $crate::shared::fy_status {
            // SAFETY: passed on to the caller.
            unsafe { $crate::shared::calls::free_range(yard, start, count, error) }
        }

        /// Allocates up to `count` single frames into `frames` and sets `*allocated` to their number, which is less than `count` when memory
        /// runs out. `fy_free` or `fy_free_bulk` frees them.
        ///
        /// Errors: as `fy_alloc`, if not a single frame was allocated. `*allocated` is 0 then. `count` 0 is no error.
        ///
        /// Thread safety: any thread. Cost: one acquisition of the lock of the CPU's lists for each batch.
        ///
        /// # Safety
        ///
        /// See the crate's documentation, "Pointers".
        #[$export]
        pub unsafe extern "C" fn fy_alloc_bulk(
            yard: *const $yard,
            flags: u32,
            frames: *mut u64,
            count: usize,
            allocated: *mut usize,
            error: *mut $crate::shared::fy_error,
        ) -> $crate::shared::fy_status {
            // SAFETY: passed on to the caller.
            unsafe { $crate::shared::calls::alloc_bulk(yard, flags, frames, count, allocated, error) }
        }

        /// Frees single frames.
        ///
        /// Errors: as `fy_free`; the error names the first frame that was not freed. All other frames are freed.
        ///
        /// Thread safety: any thread; no other thread may write to `frames` meanwhile. Cost: as `fy_alloc_bulk`.
        ///
        /// # Safety
        ///
        /// See the crate's documentation, "Pointers".
        #[$export]
        pub unsafe extern "C" fn fy_free_bulk(
            yard: *const $yard,
            frames: *const u64,
            count: usize,
            error: *mut $crate::shared::fy_error,
        ) -> $crate::shared::fy_status {
            // SAFETY: passed on to the caller.
            unsafe { $crate::shared::calls::free_bulk(yard, frames, count, error) }
        }

        /// Splits an allocated block of 2^`order` frames into single frames, which are freed one by one (the kernel's `split_page`).
        ///
        /// Errors: as `fy_free`; nothing has changed then. Thread safety: any thread, while no other frees the block. Cost: writes to the page
        /// structure of each frame.
        ///
        /// # Safety
        ///
        /// See the crate's documentation, "Pointers".
        #[$export]
        pub unsafe extern "C" fn fy_split(
            yard: *const $yard,
            frame: u64,
            order: u32,
            error: *mut $crate::shared::fy_error,
        ) -> $crate::shared::fy_status {
            // SAFETY: passed on to the caller.
            unsafe { $crate::shared::calls::split(yard, frame, order, error) }
        }

        /// Divides the allocated block that covers `frame`, so that one block ends and another begins there. The parts are the largest aligned
        /// blocks, and each is freed on its own. Nothing changes if a block begins at `frame` already.
        ///
        /// Errors: as `fy_free`; nothing has changed then. Thread safety: any thread, while no other frees the block. Cost: writes to the page
        /// structure of each part's first frame.
        ///
        /// # Safety
        ///
        /// See the crate's documentation, "Pointers".
        #[$export]
        pub unsafe extern "C" fn fy_split_at(
            yard: *const $yard,
            frame: u64,
            error: *mut $crate::shared::fy_error,
        ) -> $crate::shared::fy_status {
            // SAFETY: passed on to the caller.
            unsafe { $crate::shared::calls::split_at(yard, frame, error) }
        }

        /// Makes one block of the allocated blocks that the 2^`order` frames from `frame` on consist of. Their bytes stay as they are. Blocks
        /// may be joined up to 1 GiB, and of the parts of several allocations. Nothing changes if they are one block already.
        ///
        /// Errors: as `fy_free`, `FY_BAD_ORDER` for a block of more than 1 GiB, and `FY_BAD_FRAME` where no block can begin, or if the frames
        /// are not memory of one zone; nothing has changed then. Thread safety: any thread, while no other frees the blocks. Cost: an atomic
        /// exchange and a write to the page structure for each part.
        ///
        /// # Safety
        ///
        /// See the crate's documentation, "Pointers".
        #[$export]
        pub unsafe extern "C" fn fy_join(
            yard: *const $yard,
            frame: u64,
            order: u32,
            error: *mut $crate::shared::fy_error,
        ) -> $crate::shared::fy_status {
            // SAFETY: passed on to the caller.
            unsafe { $crate::shared::calls::join(yard, frame, order, error) }
        }

        /// Carries a request out and sets `*range` to the frames. `fy_free_range` frees them; `fy_free` frees a block.
        ///
        /// Errors: as `fy_alloc`, and `FY_BAD_ARGUMENT` for parts that exclude each other, `FY_IN_USE` for certain frames that are in use,
        /// `FY_BAD_FRAME` for frames that are not memory of one zone, `FY_NO_SUCH_NODE`, `FY_BAD_SIZE`. Nothing is allocated then.
        ///
        /// Thread safety: any thread. Cost: a block costs as much as with `fy_alloc`; an alignment or certain frames take the zone lock, and may
        /// look at all of memory.
        ///
        /// # Safety
        ///
        /// See the crate's documentation, "Pointers".
        #[$export]
        pub unsafe extern "C" fn fy_alloc_request(
            yard: *const $yard,
            request: *const $crate::shared::fy_request,
            range: *mut $crate::shared::fy_range,
            error: *mut $crate::shared::fy_error,
        ) -> $crate::shared::fy_status {
            // SAFETY: passed on to the caller.
            unsafe { $crate::shared::calls::alloc_request(yard, request, range, error) }
        }

        /// Sets `*address` to the address of a frame's bytes. The frames of a block, and of memory without holes, have consecutive addresses.
        ///
        /// The address is valid until the yard is destroyed, or until the bytes of a device are removed. Only the owner of a frame may use its
        /// bytes. Processes of a shared yard have different addresses for one frame.
        ///
        /// Errors: `FY_BAD_FRAME`, `FY_NO_FRAME_BYTES` (a phantom yard), `FY_NULL_POINTER`, `FY_PANICKED`. `*address` is unchanged then.
        ///
        /// Thread safety: any thread. Cost: a binary search among the ranges of memory.
        ///
        /// # Safety
        ///
        /// See the crate's documentation, "Pointers".
        #[$export]
        pub unsafe extern "C" fn fy_address(
            yard: *const $yard,
            frame: u64,
            address: *mut *mut core::ffi::c_void,
            error: *mut $crate::shared::fy_error,
        ) -> $crate::shared::fy_status {
            // SAFETY: passed on to the caller.
            unsafe { $crate::shared::calls::address(yard, frame, address, error) }
        }

        /// Sets `*frame` to the frame that has the byte at `address`.
        ///
        /// Errors: `FY_BAD_FRAME` for an address that no frame has, `FY_NULL_POINTER`, `FY_PANICKED`. `*frame` is unchanged then.
        ///
        /// Thread safety: any thread. Cost: as `fy_address`.
        ///
        /// # Safety
        ///
        /// See the crate's documentation, "Pointers". `address` may have any value but null: nothing is read there.
        #[$export]
        pub unsafe extern "C" fn fy_frame_at(
            yard: *const $yard,
            address: *const core::ffi::c_void,
            frame: *mut u64,
            error: *mut $crate::shared::fy_error,
        ) -> $crate::shared::fy_status {
            // SAFETY: passed on to the caller.
            unsafe { $crate::shared::calls::frame_at(yard, address, frame, error) }
        }

        /// Fills `*info`, whose `size` is set, with what the yard knows of a frame. The values are recent, not exact.
        ///
        /// Errors: `FY_BAD_FRAME`, `FY_BAD_SIZE`, `FY_NULL_POINTER`, `FY_PANICKED`.
        ///
        /// Thread safety: any thread. Cost: reads up to one page structure for each order.
        ///
        /// # Safety
        ///
        /// See the crate's documentation, "Pointers".
        #[$export]
        pub unsafe extern "C" fn fy_frame_info(
            yard: *const $yard,
            frame: u64,
            info: *mut $crate::shared::fy_frame,
            error: *mut $crate::shared::fy_error,
        ) -> $crate::shared::fy_status {
            // SAFETY: passed on to the caller.
            unsafe { $crate::shared::calls::frame_info(yard, frame, info, error) }
        }

        /// Fills `*geometry`, whose `size` is set, with the sizes of the yard.
        ///
        /// Errors: `FY_BAD_SIZE`, `FY_NULL_POINTER`, `FY_PANICKED`. Thread safety: any thread. Cost: a few loads.
        ///
        /// # Safety
        ///
        /// See the crate's documentation, "Pointers".
        #[$export]
        pub unsafe extern "C" fn fy_yard_geometry(
            yard: *const $yard,
            geometry: *mut $crate::shared::fy_geometry,
            error: *mut $crate::shared::fy_error,
        ) -> $crate::shared::fy_status {
            // SAFETY: passed on to the caller.
            unsafe { $crate::shared::calls::yard_geometry(yard, geometry, error) }
        }

        /// Fills `*statistics`, whose `size` is set. Values that are read together need not agree while other threads allocate.
        ///
        /// Errors: `FY_BAD_SIZE`, `FY_NULL_POINTER`, `FY_PANICKED`.
        ///
        /// Thread safety: any thread. Cost: takes no lock; reads the counters of each CPU in each zone.
        ///
        /// # Safety
        ///
        /// See the crate's documentation, "Pointers".
        #[$export]
        pub unsafe extern "C" fn fy_yard_statistics(
            yard: *const $yard,
            statistics: *mut $crate::shared::fy_statistics,
            error: *mut $crate::shared::fy_error,
        ) -> $crate::shared::fy_status {
            // SAFETY: passed on to the caller.
            unsafe { $crate::shared::calls::yard_statistics(yard, statistics, error) }
        }

        /// Sets `*name` to the name of the policy in force. The text lives as long as the program.
        ///
        /// Errors: `FY_NULL_POINTER`, `FY_PANICKED`. Thread safety: any thread. Cost: a load.
        ///
        /// # Safety
        ///
        /// See the crate's documentation, "Pointers".
        #[$export]
        pub unsafe extern "C" fn fy_yard_policy(
            yard: *const $yard,
            name: *mut *const core::ffi::c_char,
            error: *mut $crate::shared::fy_error,
        ) -> $crate::shared::fy_status {
            // SAFETY: passed on to the caller.
            unsafe { $crate::shared::calls::yard_policy(yard, name, error) }
        }

        /// Changes the policy by which frames move between the lists of CPUs and zones, for all users of the yard.
        ///
        /// Errors: `FY_UNKNOWN_POLICY`, `FY_NOT_SUPPORTED` if the yard must be created with this policy, `FY_BUSY` (repeat the call),
        /// `FY_DAMAGED`, `FY_NULL_POINTER`, `FY_PANICKED`.
        ///
        /// Thread safety: any thread, while other threads allocate and free. Cost: takes the lock of every CPU's lists once, and empties them.
        ///
        /// # Safety
        ///
        /// See the crate's documentation, "Pointers".
        #[$export]
        pub unsafe extern "C" fn fy_yard_set_policy(
            yard: *const $yard,
            name: *const core::ffi::c_char,
            error: *mut $crate::shared::fy_error,
        ) -> $crate::shared::fy_status {
            // SAFETY: passed on to the caller.
            unsafe { $crate::shared::calls::yard_set_policy(yard, name, error) }
        }

        /// Returns the frames on the lists of all CPUs to their zones, where they merge.
        ///
        /// Errors: `FY_NULL_POINTER`, `FY_PANICKED`. Thread safety: any thread. Cost: takes the lock of each CPU's lists in each zone, and zone
        /// locks.
        ///
        /// # Safety
        ///
        /// See the crate's documentation, "Pointers".
        #[$export]
        pub unsafe extern "C" fn fy_yard_drain(
            yard: *const $yard,
            error: *mut $crate::shared::fy_error,
        ) -> $crate::shared::fy_status {
            // SAFETY: passed on to the caller.
            unsafe { $crate::shared::calls::yard_drain(yard, error) }
        }

        /// Returns the frames on the lists of one CPU to their zones. A CPU that the yard does not have is drained already.
        ///
        /// Errors: `FY_NULL_POINTER`, `FY_PANICKED`. Thread safety: any thread. Cost: takes the locks of one CPU's lists, and zone locks.
        ///
        /// # Safety
        ///
        /// See the crate's documentation, "Pointers".
        #[$export]
        pub unsafe extern "C" fn fy_yard_drain_cpu(
            yard: *const $yard,
            cpu: u32,
            error: *mut $crate::shared::fy_error,
        ) -> $crate::shared::fy_status {
            // SAFETY: passed on to the caller.
            unsafe { $crate::shared::calls::yard_drain_cpu(yard, cpu, error) }
        }

        /// Compacts the zones of a node, or of all nodes for `FY_NO_NODE`: merges what the policy keeps apart, and moves pages of address
        /// spaces. Allocated blocks stay in place.
        ///
        /// Errors: `FY_NO_SUCH_NODE`, `FY_NULL_POINTER`, `FY_PANICKED`. Thread safety: any thread. Cost: reads the page structure of each block.
        ///
        /// # Safety
        ///
        /// See the crate's documentation, "Pointers".
        #[$export]
        pub unsafe extern "C" fn fy_yard_compact(
            yard: *const $yard,
            node: u32,
            error: *mut $crate::shared::fy_error,
        ) -> $crate::shared::fy_status {
            // SAFETY: passed on to the caller.
            unsafe { $crate::shared::calls::yard_compact(yard, node, error) }
        }

        /// Checks every equation that must hold between the structures of the yard.
        ///
        /// Errors: `FY_INVALID` with a message that names the first one that does not hold, `FY_DAMAGED`, `FY_NULL_POINTER`, `FY_PANICKED`.
        ///
        /// Thread safety: no other thread may use the yard meanwhile, or the result means nothing. Cost: reads the whole memory map.
        ///
        /// # Safety
        ///
        /// See the crate's documentation, "Pointers".
        #[$export]
        pub unsafe extern "C" fn fy_yard_validate(
            yard: *const $yard,
            error: *mut $crate::shared::fy_error,
        ) -> $crate::shared::fy_status {
            // SAFETY: passed on to the caller.
            unsafe { $crate::shared::calls::yard_validate(yard, error) }
        }

        /// Writes a text about the yard into `buffer`, with a byte 0 at its end, and sets `*length` to the length of the whole text without that
        /// byte. A buffer that is too small gets the beginning of the text, as with `snprintf`: compare `*length` with `capacity`. `buffer` may be
        /// null if `capacity` is 0. The text may be longer in the next call.
        ///
        /// Errors: `FY_BAD_ARGUMENT` for a text that does not exist, `FY_NULL_POINTER`, `FY_PANICKED`.
        ///
        /// Thread safety: any thread; no other may use `buffer` meanwhile. Cost: takes no lock; reads the counters of each CPU in each zone.
        ///
        /// # Safety
        ///
        /// See the crate's documentation, "Pointers".
        #[$export]
        pub unsafe extern "C" fn fy_yard_text(
            yard: *const $yard,
            text: u32,
            buffer: *mut core::ffi::c_char,
            capacity: usize,
            length: *mut usize,
            error: *mut $crate::shared::fy_error,
        ) -> $crate::shared::fy_status {
            // SAFETY: passed on to the caller.
            unsafe { $crate::shared::calls::yard_text(yard, text, buffer, capacity, length, error) }
        }
        // functions: end
    };
}

pub(crate) use functions;
