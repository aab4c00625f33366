//! The C functions for devices: `device_functions!` declares them, as `functions!` does
//! those for blocks. The tests of the headers read this file, too.

/// Declares the C functions for devices for a handle type, which implements [`Handle`](crate::shared::Handle).
macro_rules! device_functions {
    ($yard:ty, $export:meta) => {
        // functions: begin
        /// Gives frames of the device space page structures, and sets `*device` to the name of the device. `fy_device_unmap` undoes it.
        ///
        /// Other calls find its pages by frame from then on, and count their users: `fy_device_get`. The frames of a device are not allocated and
        /// need no bytes. (The kernel's `memremap_pages`.)
        ///
        /// Errors: `FY_BAD_FRAME` for frames outside the device space or with memory, `FY_BAD_ARGUMENT` for frames that are not aligned (the
        /// message names the nearest that are) and for unknown layouts, `FY_IN_USE` for frames of another device, `FY_BAD_ORDER`, `FY_NO_SUCH_NODE`,
        /// `FY_OUT_OF_MEMORY` if the yard has 64 devices, `FY_NO_HOST_MEMORY` if there is no memory for the page structures, `FY_NOT_SUPPORTED`,
        /// `FY_BAD_SIZE`, `FY_BUSY`, `FY_DAMAGED`, `FY_SYSTEM`, `FY_NULL_POINTER`, `FY_PANICKED`. `*device` is unchanged then.
        ///
        /// Thread safety: any thread. Cost: writes the page structures of the layout, with a worker for each CPU of the node where there are
        /// workers.
        ///
        /// # Safety
        ///
        /// See the crate's documentation, "Pointers".
        #[$export]
        pub unsafe extern "C" fn fy_device_map(
            yard: *const $yard,
            request: *const $crate::shared::fy_device_request,
            device: *mut u64,
            error: *mut $crate::shared::fy_error,
        ) -> $crate::shared::fy_status {
            // SAFETY: passed on to the caller.
            unsafe { $crate::shared::calls::device_map(yard, request, device, error) }
        }

        /// Removes the page structures of a device. `removal` is `FY_DEVICE_REFUSE` or `FY_DEVICE_WAIT`.
        ///
        /// Errors: `FY_IN_USE` if a page has references, and the error names the first, or if page tables map the device; `FY_NO_SUCH_DEVICE`,
        /// `FY_BUSY` if another CPU changes the device, `FY_DAMAGED`, `FY_BAD_ARGUMENT`, `FY_NULL_POINTER`, `FY_PANICKED`. The device stays then.
        ///
        /// Thread safety: any thread. Cost: an exchange for each page, and zeroes the page structures.
        ///
        /// # Safety
        ///
        /// See the crate's documentation, "Pointers".
        #[$export]
        pub unsafe extern "C" fn fy_device_unmap(
            yard: *const $yard,
            device: u64,
            removal: u32,
            error: *mut $crate::shared::fy_error,
        ) -> $crate::shared::fy_status {
            // SAFETY: passed on to the caller.
            unsafe { $crate::shared::calls::device_unmap(yard, device, removal, error) }
        }

        /// Sets `*count` to the number of devices, and writes the names of the first `capacity` into `devices`, which may be null if `capacity`
        /// is 0.
        ///
        /// Errors: `FY_NULL_POINTER`, `FY_PANICKED`. Thread safety: any thread. Cost: reads a table of 64 rows.
        ///
        /// # Safety
        ///
        /// See the crate's documentation, "Pointers".
        #[$export]
        pub unsafe extern "C" fn fy_device_list(
            yard: *const $yard,
            devices: *mut u64,
            capacity: usize,
            count: *mut usize,
            error: *mut $crate::shared::fy_error,
        ) -> $crate::shared::fy_status {
            // SAFETY: passed on to the caller.
            unsafe { $crate::shared::calls::device_list(yard, devices, capacity, count, error) }
        }

        /// Fills `*info`, whose `size` is set, with what the yard knows of a device.
        ///
        /// Errors: `FY_NO_SUCH_DEVICE`, `FY_BAD_SIZE`, `FY_NULL_POINTER`, `FY_PANICKED`. Thread safety: any thread. Cost: reads a table of 64 rows.
        ///
        /// # Safety
        ///
        /// See the crate's documentation, "Pointers".
        #[$export]
        pub unsafe extern "C" fn fy_device_info(
            yard: *const $yard,
            device: u64,
            info: *mut $crate::shared::fy_device,
            error: *mut $crate::shared::fy_error,
        ) -> $crate::shared::fy_status {
            // SAFETY: passed on to the caller.
            unsafe { $crate::shared::calls::device_info(yard, device, info, error) }
        }

        /// As `fy_device_info`, for the device that has a frame.
        ///
        /// Errors: `FY_BAD_FRAME` if there is none, `FY_BAD_SIZE`, `FY_NULL_POINTER`, `FY_PANICKED`. Thread safety: any thread. Cost: as
        /// `fy_device_info`.
        ///
        /// # Safety
        ///
        /// See the crate's documentation, "Pointers".
        #[$export]
        pub unsafe extern "C" fn fy_device_at(
            yard: *const $yard,
            frame: u64,
            info: *mut $crate::shared::fy_device,
            error: *mut $crate::shared::fy_error,
        ) -> $crate::shared::fy_status {
            // SAFETY: passed on to the caller.
            unsafe { $crate::shared::calls::device_at(yard, frame, info, error) }
        }

        /// Splits the compound page of a device that begins at `head` into single pages, which count their users alone.
        ///
        /// Errors: `FY_BAD_FRAME` if no compound page begins there, `FY_NOT_SUPPORTED` for single pages and for a layout without page structures
        /// for parts, `FY_BAD_ARGUMENT` if it is split, `FY_IN_USE`, `FY_BUSY`, `FY_NO_HOST_MEMORY`, `FY_DAMAGED`, `FY_NULL_POINTER`, `FY_PANICKED`.
        /// Nothing has changed then.
        ///
        /// Thread safety: any thread. Cost: writes a page structure for each frame of the page.
        ///
        /// # Safety
        ///
        /// See the crate's documentation, "Pointers".
        #[$export]
        pub unsafe extern "C" fn fy_device_split(
            yard: *const $yard,
            head: u64,
            error: *mut $crate::shared::fy_error,
        ) -> $crate::shared::fy_status {
            // SAFETY: passed on to the caller.
            unsafe { $crate::shared::calls::device_split(yard, head, error) }
        }

        /// Joins the single pages of a compound page that was split.
        ///
        /// Errors: as `fy_device_split`, and `FY_BAD_ARGUMENT` if it is not split. Nothing has changed then. Thread safety: any thread. Cost: as
        /// `fy_device_split`.
        ///
        /// # Safety
        ///
        /// See the crate's documentation, "Pointers".
        #[$export]
        pub unsafe extern "C" fn fy_device_join(
            yard: *const $yard,
            head: u64,
            error: *mut $crate::shared::fy_error,
        ) -> $crate::shared::fy_status {
            // SAFETY: passed on to the caller.
            unsafe { $crate::shared::calls::device_join(yard, head, error) }
        }

        /// Takes `count` references on the page of a device that has a frame. While there are any, the device is not unmapped, and the page is
        /// neither split nor joined. All frames of a compound page share its references.
        ///
        /// Errors: `FY_BAD_FRAME` if no device has the frame, `FY_BUSY` while another CPU changes the page (repeat the call), `FY_NULL_POINTER`,
        /// `FY_PANICKED`.
        ///
        /// Thread safety: any thread. Cost: one locked operation on the page structure.
        ///
        /// # Safety
        ///
        /// See the crate's documentation, "Pointers".
        #[$export]
        pub unsafe extern "C" fn fy_device_get(
            yard: *const $yard,
            frame: u64,
            count: u32,
            error: *mut $crate::shared::fy_error,
        ) -> $crate::shared::fy_status {
            // SAFETY: passed on to the caller.
            unsafe { $crate::shared::calls::device_get(yard, frame, count, error) }
        }

        /// Releases references that `fy_device_get` has taken on the page of this frame. Release only what you have taken: the
        /// count does not tell callers apart.
        ///
        /// Errors: `FY_NOT_COUNTED` if the page has fewer, `FY_BAD_FRAME`, `FY_NULL_POINTER`, `FY_PANICKED`. Nothing has changed then.
        ///
        /// Thread safety: any thread. Cost: as `fy_device_get`.
        ///
        /// # Safety
        ///
        /// See the crate's documentation, "Pointers".
        #[$export]
        pub unsafe extern "C" fn fy_device_put(
            yard: *const $yard,
            frame: u64,
            count: u32,
            error: *mut $crate::shared::fy_error,
        ) -> $crate::shared::fy_status {
            // SAFETY: passed on to the caller.
            unsafe { $crate::shared::calls::device_put(yard, frame, count, error) }
        }

        /// Counts an entry of page tables that maps a frame of a device, for code with page tables of its own. The device is not unmapped while
        /// there are any.
        ///
        /// Errors: `FY_BAD_FRAME` if no device has the frame, `FY_BUSY` while the device is being unmapped, `FY_NULL_POINTER`, `FY_PANICKED`. Thread
        /// safety: any thread. Cost: one locked operation.
        ///
        /// # Safety
        ///
        /// See the crate's documentation, "Pointers".
        #[$export]
        pub unsafe extern "C" fn fy_device_add_entry(
            yard: *const $yard,
            frame: u64,
            error: *mut $crate::shared::fy_error,
        ) -> $crate::shared::fy_status {
            // SAFETY: passed on to the caller.
            unsafe { $crate::shared::calls::device_add_entry(yard, frame, error) }
        }

        /// Takes back what `fy_device_add_entry` has counted.
        ///
        /// Errors: `FY_NOT_COUNTED` if no entry is counted, `FY_BAD_FRAME`, `FY_NULL_POINTER`, `FY_PANICKED`. Thread safety: any thread. Cost: one
        /// locked operation.
        ///
        /// # Safety
        ///
        /// See the crate's documentation, "Pointers".
        #[$export]
        pub unsafe extern "C" fn fy_device_remove_entry(
            yard: *const $yard,
            frame: u64,
            error: *mut $crate::shared::fy_error,
        ) -> $crate::shared::fy_status {
            // SAFETY: passed on to the caller.
            unsafe { $crate::shared::calls::device_remove_entry(yard, frame, error) }
        }
        // functions: end
    };
}

pub(crate) use device_functions;
