//! Creating and destroying yards.

use core::ffi::{c_char, c_void};
use core::ptr::{NonNull, null_mut};

use crate::shared::calls::policy_of;
use crate::shared::fy_status::{FY_BAD_ARGUMENT, FY_OK, FY_PANICKED};
use crate::shared::sized::{self, SizedStruct};
use crate::shared::{
    FY_LOG_INFO, Failure, Handle, check_version, fy_error, fy_range, fy_status, place as not_null, report,
};
use frameyard::boot::{BootError, ZoneLimits};
use frameyard::units::PhysAddr;
use frameyard::{ByteSize, Geometry, NodeId, Order, PageCount, PfnRange, RawRegion, Yard, YardConfig};

use crate::kernel::handle::fy_yard;
use crate::kernel::place::{self, Tables};
use crate::kernel::platform::{Kernel, fy_platform_ops, has_panicked};
use crate::kernel::source::{self, Source, fy_memory};

/// The memory and the settings of a new yard. `fy_core_config_default()` sets `size` and `version`, `cpus` to 1, and all other members
/// to 0, the default. The arrays are read during the call alone.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct fy_core_config {
    /// `sizeof(fy_core_config)`.
    pub size: usize,
    /// `FY_VERSION`.
    pub version: u32,
    /// The number of CPUs with lists of their own, 1 to 65536. With `end_sequences`, a CPU with a higher number takes slow paths; else CPUs
    /// share these lists.
    pub cpus: u32,
    /// The ranges of memory, in ascending order, without overlap.
    pub memory: *const fy_memory,
    /// The number of these ranges.
    pub memory_ranges: usize,
    /// Ranges that the allocator must not use, in ascending order of their starts. May be null.
    pub reserved: *const fy_range,
    /// The number of these ranges.
    pub reserved_ranges: usize,
    /// The node of each CPU. Null: all are of node 0, and there are at most 1024.
    pub cpu_nodes: *const u16,
    /// The size of a frame in bytes, a power of two from 4096 to 2^30. 0: 4096.
    pub frame_size: u64,
    /// The unit of the memory map in bytes, a power of two: the map has page structures for whole units. 0: the largest block; 128 MiB
    /// from 4 GiB of memory on.
    pub section_size: u64,
    /// The order of the largest block. 0: 10.
    pub max_order: u32,
    /// The order of a pageblock, the unit of migration types. 0: 9.
    pub pageblock_order: u32,
    /// Where the DMA zone ends, in bytes of address. 0: there is none.
    pub dma_end: u64,
    /// Where the DMA32 zone ends. 0: there is none.
    pub dma32_end: u64,
    /// The first frame of the device space, where devices can be mapped. Frames of memory in it stay memory.
    pub device_start: u64,
    /// The number of frames of the device space. 0: there are no devices. Their page structures are part of the tables.
    pub device_count: u64,
    /// The name of a policy, or null for the default.
    pub policy: *const c_char,
    /// Memory for the tables of the yard, aligned to 128 bytes, used by nothing else while the yard lives. Null: they take the first
    /// frames of the memory that have room for them and are not reserved; `frame_bytes` must map these frames one behind the other.
    pub tables: *mut c_void,
    /// The size of that memory in bytes: at least what `fy_core_tables` says.
    pub tables_size: usize,
}

// SAFETY: numbers and pointers, the size first; all of them may be zero.
unsafe impl SizedStruct for fy_core_config {
    const NAME: &'static str = "fy_core_config";
}

/// The nodes of CPUs if the caller names none.
static NODE_0: [NodeId; 1024] = [NodeId(0); 1024];

/// The checked settings.
struct Settings<'a> {
    source: Source<'a>,
    config: YardConfig<'a>,
    tables: Option<(NonNull<u8>, u64)>,
}

/// Creates a yard in memory of the caller. `fy_yard_destroy` destroys it.
///
/// The tables of the yard take 64 bytes for each frame of the memory map, and about 8 KiB for each CPU in each zone. The call takes less
/// than 16 KiB of stack.
///
/// Errors: `FY_NULL_POINTER` for a null pointer or a required operation that is missing, `FY_BAD_SIZE`, `FY_BAD_VERSION`,
/// `FY_BAD_ARGUMENT` for ranges that overlap, are empty or in the wrong order, for sizes that do not fit together, for tables that are
/// too small, not aligned or in frames that are not reserved, `FY_NO_SUCH_NODE`, `FY_UNKNOWN_POLICY`, `FY_OUT_OF_MEMORY` if no range has
/// room for the tables. `*yard` is null then.
///
/// Thread safety: any CPU, not with the same memory. Cost: zeroes the tables, writes a page structure for each largest block.
///
/// # Safety
///
/// See the crate's documentation, "Pointers".
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fy_core_create(
    ops: *const fy_platform_ops,
    config: *const fy_core_config,
    yard: *mut *mut fy_yard,
    error: *mut fy_error,
) -> fy_status {
    let work = || {
        let result = not_null(yard, "yard")?;
        // SAFETY: writable, as the caller says.
        unsafe { result.write(null_mut()) };
        // SAFETY: passed on to the caller.
        let made = unsafe {
            let ops = not_null(ops.cast_mut(), "ops").and_then(|_| Ok(sized::read(ops)?))?;
            create(Kernel::new(&ops)?, &settings(config)?)?
        };
        // SAFETY: as above.
        unsafe { result.write(made.as_ptr()) };
        Ok(())
    };
    // SAFETY: passed on to the caller.
    unsafe { call_without_yard(error, work) }
}

/// Sets `*bytes` to the size of the tables of a yard, for a caller that gives memory for them.
///
/// Errors: as `fy_core_create`. `*bytes` is unchanged then. Thread safety: any CPU. Cost: reads the ranges a few times.
///
/// # Safety
///
/// See the crate's documentation, "Pointers".
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fy_core_tables(
    config: *const fy_core_config,
    bytes: *mut usize,
    error: *mut fy_error,
) -> fy_status {
    let work = || {
        let result = not_null(bytes, "bytes")?;
        // SAFETY: passed on to the caller.
        let settings = unsafe { settings(config)? };
        let tables = Tables::plan(&settings.source, &settings.config)?;
        // SAFETY: writable, as the caller says.
        unsafe { result.write(tables.bytes as usize) };
        Ok(())
    };
    // SAFETY: passed on to the caller.
    unsafe { call_without_yard(error, work) }
}

/// Destroys a yard. Its memory and the memory of its tables are the caller's again. Does nothing with null.
///
/// The handle must not be used again: a second destruction is undefined behaviour.
///
/// Thread safety: no other CPU may use the yard during the call or later. Cost: none.
///
/// # Safety
///
/// See the crate's documentation, "Pointers".
#[cfg_attr(not(feature = "hosted"), unsafe(no_mangle))]
pub unsafe extern "C" fn fy_yard_destroy(yard: *mut fy_yard) {
    if !yard.is_null() {
        // SAFETY: the caller passes a handle of `fy_core_create`, and does not use it again.
        unsafe { yard.drop_in_place() };
    }
}

/// Carries out a call without a yard.
///
/// # Safety
///
/// As for [`report`].
unsafe fn call_without_yard(error: *mut fy_error, work: impl FnOnce() -> Result<(), Failure>) -> fy_status {
    let done = if has_panicked() {
        Err(Failure::Other(FY_PANICKED, "an earlier call failed inside the library"))
    } else {
        work()
    };
    match done {
        Ok(()) => FY_OK,
        // SAFETY: passed on to the caller.
        Err(failure) => unsafe { report(error, &failure) },
    }
}

/// Makes a yard and its handle.
///
/// # Safety
///
/// The memory is the caller's: frames that are not reserved and the tables, if given, are used by nothing else.
unsafe fn create(kernel: Kernel, settings: &Settings<'_>) -> Result<NonNull<fy_yard>, Failure> {
    let mut source = settings.source;
    let (plan, base) = find_place(&kernel, settings, &mut source)?;
    // SAFETY: as large as planned, aligned (a frame is), and used by nothing else: apart from all memory that is not reserved (checked
    // where the kernel maps it), or reserved just now.
    let (handle, control, map) = unsafe { plan.clear_at(base) };
    let receiver = kernel.receive_panics();
    // SAFETY: the handle's place is in the tables, aligned, and large enough. Both regions are zeroed and the yard's alone.
    unsafe { create_at(handle, (&source, &settings.config), &plan, (map, control), kernel)? };
    receiver.keep();
    // SAFETY: just written.
    let made = unsafe { handle.as_ref() };
    let frames = made.yard().stats().managed_pages();
    let policy = made.yard().policy();
    let frame_size = settings.config.geometry.page_size();
    made.log(FY_LOG_INFO, format_args!("yard of {} frames of {frame_size} with policy {policy}", frames.0));
    Ok(handle)
}

/// Plans the tables, and finds their place: the one that the settings give, or frames that are then reserved in `source`.
// A kernel's stack is small: inlined, two plans would lie in the frame below which the yard is created.
#[inline(never)]
fn find_place(
    kernel: &Kernel,
    settings: &Settings<'_>,
    source: &mut Source<'_>,
) -> Result<(Tables, NonNull<u8>), Failure> {
    let config = &settings.config;
    let frame_size = config.geometry.page_size();
    if settings.tables.is_none() {
        // The tables' frames are one more reserved range. Its place does not matter for the size.
        source.tables =
            source.memory().next().map_or(PfnRange::default(), |range| PfnRange::new(range.start, PageCount(1)));
    }
    let plan = Tables::plan(source, config)?;
    place::check_bytes(source, kernel, frame_size)?;
    let Some((base, given)) = settings.tables else {
        let (frames, base) = place::find(source, kernel, plan.bytes, frame_size)?;
        source.tables = frames;
        return Ok((Tables::plan(source, config)?, base));
    };
    place::check_aligned(base)?;
    if given < plan.bytes {
        let (needed, given) = (ByteSize(plan.bytes), ByteSize(given));
        return Err(BootError::RegionTooSmall { needed, given }.into());
    }
    place::check_apart(source, kernel, (base, plan.bytes), frame_size)?;
    Ok((plan, base))
}

/// Creates the yard, and writes its handle.
///
/// # Safety
///
/// The handle can be written. Map and control region are zeroed, and used by nothing else.
#[inline(never)]
unsafe fn create_at(
    handle: NonNull<fy_yard>,
    (source, config): (&Source<'_>, &YardConfig<'_>),
    plan: &Tables,
    (map, control): (RawRegion, RawRegion),
    kernel: Kernel,
) -> Result<(), Failure> {
    // SAFETY: passed on to the caller. `frame_bytes` says where frames are mapped, as the header demands.
    let yard = unsafe { Yard::create(source, config, &plan.layout, map, control, kernel)? };
    // SAFETY: passed on to the caller.
    unsafe { handle.write(fy_yard::new(yard)) };
    Ok(())
}

/// Reads and checks the settings.
///
/// # Safety
///
/// `config` is null or points to as many readable bytes as the size there says. Its arrays are as long as it says, and live as long as
/// the result.
unsafe fn settings<'a>(config: *const fy_core_config) -> Result<Settings<'a>, Failure> {
    not_null(config.cast_mut(), "config")?;
    // SAFETY: passed on to the caller.
    let config = unsafe { sized::read(config)? };
    check_version(config.version)?;
    // SAFETY: passed on to the caller.
    let (memory, reserved, cpus) = unsafe {
        let cpus = match config.cpu_nodes.is_null() {
            true => NODE_0
                .get(..config.cpus as usize)
                .ok_or(Failure::Other(FY_BAD_ARGUMENT, "more than 1024 CPUs: name their nodes"))?,
            // `NodeId` is transparent.
            false => array(config.cpu_nodes.cast::<NodeId>(), config.cpus as usize, "config->cpu_nodes")?,
        };
        let memory = array(config.memory, config.memory_ranges, "config->memory")?;
        (memory, array(config.reserved, config.reserved_ranges, "config->reserved")?, cpus)
    };
    let geometry = geometry_of(&config, memory)?;
    let source = Source::new(memory, reserved, geometry.page_size().0)?;
    let zone_limits = ZoneLimits { dma: PhysAddr(config.dma_end), dma32: PhysAddr(config.dma32_end) };
    let device_space = (config.device_count > 0)
        .then(|| source::range_of(config.device_start, config.device_count, geometry.page_size().0))
        .transpose()?;
    let mut yard = YardConfig { device_space, geometry, zone_limits, ..YardConfig::new(cpus) };
    if !config.policy.is_null() {
        // SAFETY: passed on to the caller.
        yard.policy = unsafe { policy_of(config.policy)? };
    }
    let tables = NonNull::new(config.tables.cast()).map(|base| (base, config.tables_size as u64));
    Ok(Settings { source, config: yard, tables })
}

fn geometry_of(config: &fy_core_config, memory: &[fy_memory]) -> Result<Geometry, Failure> {
    let order = |given: u32, usual: u8| match given {
        0 => Order(usual),
        given => Order(u8::try_from(given).unwrap_or(u8::MAX)),
    };
    let (pageblock, largest) = (order(config.pageblock_order, 9), order(config.max_order, 10));
    let frame_size = if config.frame_size == 0 { 4096 } else { config.frame_size };
    let section_size = match config.section_size {
        0 => {
            let block = frame_size.checked_shl(largest.0.into()).unwrap_or(0);
            let frames = memory.iter().fold(0_u64, |sum, range| sum.saturating_add(range.count));
            if frames.saturating_mul(frame_size) >= 4 << 30 { block.max(128 << 20) } else { block }
        }
        given => given,
    };
    Ok(Geometry::new(ByteSize(frame_size), ByteSize(section_size), pageblock, largest)?)
}

/// The caller's array.
///
/// # Errors
///
/// [`Failure::Null`], and `FY_BAD_ARGUMENT` for an array that is too long or not aligned.
///
/// # Safety
///
/// `at` is null or points to `count` readable values that live as long as the result.
unsafe fn array<'a, T>(at: *const T, count: usize, name: &'static str) -> Result<&'a [T], Failure> {
    if count == 0 {
        return Ok(&[]);
    }
    let at = not_null(at.cast_mut(), name)?;
    if !at.is_aligned() || count > isize::MAX as usize / size_of::<T>() {
        return Err(Failure::Other(FY_BAD_ARGUMENT, "an array of the settings is too long or not aligned"));
    }
    // SAFETY: not null, aligned and not too long (checked), readable (caller).
    Ok(unsafe { core::slice::from_raw_parts(at.as_ptr(), count) })
}
