//! Lends `struct memblock` to a [`Memblock`] for one call.
//!
//! [`edit`] and [`read`] are the only ways from the struct to the algorithms. Both refuse fields that cannot be true: a null or
//! misaligned array, more regions than slots, two lists in one array. [`edit`] also refuses lists out of order, which costs a pass
//! over them, as the edit itself does. Afterwards it writes the fields back. A walk over a list out of order only gives wrong
//! answers.

use core::ffi::{c_int, c_ulong};
use core::mem::align_of;
use core::ptr::NonNull;
use core::slice;

use frameyard_memblock::{AllocDirection, LentList, LentState, Memblock, NodeFilter, Region, RegionList, RegionNode};
use frameyard_units::{ByteSize, Geometry, NodeId, PhysAddr};

use crate::memblock::environment::{OffsetMemory, frameyard_memblock, movable_nodes, report};
use crate::memblock::failure::Failure;
use crate::memblock::state::{HIDDEN, memblock, memblock_region, memblock_type};

/// The number of nodes that can exist, and the number of no node: the header's `MAX_NUMNODES`.
pub(crate) const MAX_NUMNODES: c_int = 1024;

/// The map of one call.
pub(crate) type Map = Memblock<OffsetMemory, 0>;

/// The node of a number; `None` for numbers that mean any node or none: the kernel's `numa_valid_node`.
pub(crate) fn valid_node(nid: c_int) -> Option<NodeId> {
    (0..MAX_NUMNODES).contains(&nid).then_some(NodeId(nid as u16))
}

/// The nodes that a number selects.
pub(crate) fn node_filter(nid: c_int) -> NodeFilter {
    valid_node(nid).map_or(NodeFilter::Any, NodeFilter::Only)
}

/// The list at a pointer.
pub(crate) fn list_at(list: *const memblock_type) -> Result<RegionList, Failure> {
    if core::ptr::eq(list, fields_of(RegionList::Memory)) {
        Ok(RegionList::Memory)
    } else if core::ptr::eq(list, fields_of(RegionList::Reserved)) {
        Ok(RegionList::Reserved)
    } else {
        Err(Failure::OtherList)
    }
}

/// The struct of a list.
pub(crate) fn fields_of(list: RegionList) -> *mut memblock_type {
    // SAFETY: takes an address and reads nothing.
    unsafe {
        match list {
            RegionList::Memory => &raw mut memblock.memory,
            RegionList::Reserved => &raw mut memblock.reserved,
        }
    }
}

/// The first slot, the number of regions and the number of slots, if they can be true. A list of one region of no bytes is empty.
///
/// # Safety
///
/// `list` can be read. Its array has `max` regions.
unsafe fn array_of(list: *const memblock_type) -> Result<(NonNull<Region>, usize, usize), &'static str> {
    // SAFETY: the caller's promise.
    let (regions, cnt, max) = unsafe { ((*list).regions, (*list).cnt as usize, (*list).max as usize) };
    let first = NonNull::new(regions.cast::<Region>()).ok_or("no array")?;
    if !first.as_ptr().addr().is_multiple_of(align_of::<Region>()) {
        return Err("a misaligned array");
    }
    if max > isize::MAX as usize / size_of::<Region>() {
        return Err("more slots than memory has room for");
    }
    // Twice no slots would be none.
    if max == 0 {
        return Err("no slots");
    }
    if cnt > max {
        return Err("more regions than slots");
    }
    // SAFETY: the array has at least one region.
    let empty = cnt == 0 || (cnt == 1 && unsafe { first.as_ref().size.0 == 0 });
    Ok((first, if empty { 0 } else { cnt }, max))
}

/// The regions of any list; none if its fields cannot be true.
///
/// # Safety
///
/// `list` is null or can be read, and its array has `max` regions. Nothing writes them while the result lives.
pub(crate) unsafe fn regions_of<'a>(list: *const memblock_type) -> &'a [Region] {
    if list.is_null() {
        return &[];
    }
    // SAFETY: the caller's promise.
    match unsafe { array_of(list) } {
        // SAFETY: `array_of` has checked the fields.
        Ok((first, len, _)) => unsafe { slice::from_raw_parts(first.as_ptr(), len) },
        Err(_) => &[],
    }
}

/// # Safety
///
/// Those of [`array_of`].
unsafe fn lend(list: RegionList, memory: &OffsetMemory) -> Result<LentList, Failure> {
    // SAFETY: the caller's promise.
    let array = unsafe { array_of(fields_of(list)) };
    let (regions, len, capacity) = array.map_err(|what| Failure::Broken(list, what))?;
    // SAFETY: one thread at a time.
    let grown = unsafe { (&raw const HIDDEN.grown).read() }[list as usize];
    let reserved_at = core::ptr::eq(grown.cast(), regions.as_ptr()).then(|| {
        let bytes = (capacity * size_of::<Region>()) as u64;
        let page = Geometry::X86_64.page_size().0;
        (memory.address_of(regions.as_ptr().cast()), ByteSize(bytes.next_multiple_of(page)))
    });
    Ok(LentList { regions, len, capacity, reserved_at })
}

fn share_memory(one: &LentList, other: &LentList) -> bool {
    let range = |list: &LentList| {
        let start = list.regions.as_ptr().addr();
        start..start.saturating_add(list.capacity * size_of::<Region>())
    };
    let (one, other) = (range(one), range(other));
    one.start < other.end && other.start < one.end
}

/// # Safety
///
/// Those of the crate.
unsafe fn lent_state(memory: &OffsetMemory) -> Result<LentState, Failure> {
    // SAFETY: the caller's promise.
    let (memory_list, reserved) = unsafe { (lend(RegionList::Memory, memory)?, lend(RegionList::Reserved, memory)?) };
    if share_memory(&memory_list, &reserved) {
        return Err(Failure::Broken(RegionList::Reserved, "slots of the memory list"));
    }
    // SAFETY: one thread at a time. A byte that C wrote to a `bool` is read as a number.
    let (bottom_up, limit, hidden) = unsafe {
        let bottom_up = (&raw const memblock.bottom_up).cast::<u8>().read() != 0;
        (bottom_up, (&raw const memblock.current_limit).read(), &raw const HIDDEN)
    };
    // SAFETY: one thread at a time.
    let (has_mirror, can_resize, movable_nodes) =
        unsafe { ((*hidden).has_mirror, (*hidden).can_resize, movable_nodes()) };
    Ok(LentState {
        memory: memory_list,
        reserved,
        current_limit: PhysAddr(limit),
        direction: if bottom_up { AllocDirection::BottomUp } else { AllocDirection::TopDown },
        movable_nodes,
        has_mirror,
        can_resize,
        no_node: RegionNode(MAX_NUMNODES),
    })
}

/// Writes the fields of a list back. A list that was empty and is empty keeps its form.
///
/// # Safety
///
/// Those of the crate.
unsafe fn write_back(list: RegionList, before: &LentList, after: &LentList) {
    let fields = fields_of(list);
    // SAFETY: the array of the ended loan; one thread at a time.
    let regions = unsafe { slice::from_raw_parts(after.regions.as_ptr(), after.len) };
    let total = regions.iter().fold(0u64, |sum, region| sum.wrapping_add(region.size.0));
    let array = after.regions.as_ptr().cast::<memblock_region>();
    // SAFETY: one thread at a time. The array has room for a region: a list that held one has a slot.
    unsafe {
        (*fields).regions = array;
        (*fields).max = after.capacity as c_ulong;
        (*fields).total_size = total;
        if before.regions != after.regions {
            (&raw mut HIDDEN.grown).cast::<*mut memblock_region>().add(list as usize).write(array);
        }
        if after.len > 0 {
            (*fields).cnt = after.len as c_ulong;
        } else if before.len > 0 {
            array.write(memblock_region { base: 0, size: 0, flags: 0, nid: MAX_NUMNODES });
            let keeps_one = (&raw const frameyard_memblock.empty_list_has_region).cast::<u8>().read() != 0;
            (*fields).cnt = c_ulong::from(keeps_one);
        }
    }
}

/// Runs an operation that may change the lists. Reports a failure.
///
/// # Safety
///
/// Those of the crate.
pub(crate) unsafe fn edit<T>(
    function: &str,
    operation: impl FnOnce(&mut Map) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let attempt = || {
        // SAFETY: the caller's promise.
        let memory = unsafe { OffsetMemory::new() };
        // SAFETY: the caller's promise.
        let before = unsafe { lent_state(&memory)? };
        // SAFETY: the fields are checked; the struct's users write nothing during a call.
        let mut map = unsafe { Map::lent(before, memory, Geometry::X86_64) };
        map.check_order()?;
        let result = operation(&mut map);
        let after = map.take_back();
        // SAFETY: the loan has ended.
        unsafe {
            write_back(RegionList::Memory, &before.memory, &after.memory);
            write_back(RegionList::Reserved, &before.reserved, &after.reserved);
            (&raw mut HIDDEN.has_mirror).write(after.has_mirror);
        }
        result
    };
    let result = guarded(attempt);
    if let Err(failure) = &result {
        // SAFETY: the caller's promise.
        unsafe { report(function, failure) };
    }
    result
}

/// Runs an operation that changes nothing; `None` if the state cannot be read, which it reports.
///
/// # Safety
///
/// Those of the crate.
pub(crate) unsafe fn read<T>(function: &str, operation: impl FnOnce(&Map) -> T) -> Option<T> {
    let attempt = || {
        // SAFETY: the caller's promise.
        let memory = unsafe { OffsetMemory::new() };
        // SAFETY: the caller's promise.
        let state = unsafe { lent_state(&memory)? };
        // SAFETY: as in `edit`.
        Ok(operation(&unsafe { Map::lent(state, memory, Geometry::X86_64) }))
    };
    let result = guarded(attempt);
    if let Err(failure) = &result {
        // SAFETY: the caller's promise.
        unsafe { report(function, failure) };
    }
    result.ok()
}

/// Turns a panic into a failure: nothing unwinds into C.
#[cfg(feature = "std")]
pub(crate) fn guarded<T>(attempt: impl FnOnce() -> Result<T, Failure>) -> Result<T, Failure> {
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(attempt)).unwrap_or(Err(Failure::Panicked))
}

/// Without `std` a panic stops the program.
#[cfg(not(feature = "std"))]
pub(crate) fn guarded<T>(attempt: impl FnOnce() -> Result<T, Failure>) -> Result<T, Failure> {
    attempt()
}

/// 0, or the number of a failure.
pub(crate) fn status(result: Result<(), Failure>) -> c_int {
    result.map_or_else(Failure::number, |()| 0)
}
