//! Creating, opening and destroying yards.

use std::ffi::{CStr, OsStr, c_char, c_void};
use std::num::NonZeroU32;
use std::os::unix::ffi::OsStrExt;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::shared::calls::policy_of;
use crate::shared::fy_status::{FY_BAD_ARGUMENT, FY_NOT_SUPPORTED};
use crate::shared::sized::{self, SizedStruct};
use crate::shared::{FY_LOG_INFO, FY_LOG_WARNING, Failure, check_version, fy_error, fy_status, place};
use frameyard_host::{Backing, ByteSize, HostYard, HostYardBuilder, HugePages, HugetlbSize};

use crate::hosted::failure::HostFailure;
use crate::hosted::handle::{call_without_yard, fy_yard};
use crate::hosted::log::{Log, fy_log_fn};

/// Private memory of this process.
pub const FY_BACKING_ANONYMOUS: u32 = 0;
/// No memory: frames are numbers, and have no address.
pub const FY_BACKING_PHANTOM: u32 = 1;
/// A memory file, which a forked child shares.
pub const FY_BACKING_MEMFD: u32 = 2;
/// Huge pages of 2 MiB from the host's pool.
pub const FY_BACKING_HUGETLB_2M: u32 = 3;
/// Huge pages of 1 GiB from the host's pool.
pub const FY_BACKING_HUGETLB_1G: u32 = 4;

/// The library decides: advice to use huge pages where the host has them.
pub const FY_HUGE_PAGES_DEFAULT: u32 = 0;
/// The host is advised to use huge pages.
pub const FY_HUGE_PAGES_ADVISE: u32 = 1;
/// The host is asked to use none.
pub const FY_HUGE_PAGES_NEVER: u32 = 2;

/// The settings of a new yard. `fy_config_default()` sets `size` and `version`, and all other members to 0, the default.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct fy_config {
    /// `sizeof(fy_config)`.
    pub size: usize,
    /// `FY_VERSION`.
    pub version: u32,
    /// The number of CPUs with lists of their own. 0: all CPUs of the host. Further CPUs share these lists.
    pub cpus: u32,
    /// The size of the memory in bytes, at least 4 MiB and one frame. It is rounded up. Not used by `fy_yard_open_shared`.
    pub memory: u64,
    /// The size of a frame in bytes, a power of two from 4096 to 2^30. 0: 4096. Not used by `fy_yard_open_shared`.
    pub frame_size: u64,
    /// Room for devices in bytes, behind the memory. It is rounded up. 0: there are no devices. Not used by `fy_yard_open_shared`.
    pub device_space: u64,
    /// One of `FY_BACKING_*`. Shared yards have memory files of their own: leave it 0.
    pub backing: u32,
    /// One of `FY_HUGE_PAGES_*`.
    pub huge_pages: u32,
    /// The name of a policy, or null for the default. Not used by `fy_yard_open_shared`.
    pub policy: *const c_char,
    /// Gets the messages of the yard. May be null.
    pub log: fy_log_fn,
    /// Passed to `log`.
    pub log_context: *mut c_void,
}

// SAFETY: numbers and pointers, the size first; all of them may be zero.
unsafe impl SizedStruct for fy_config {
    const NAME: &'static str = "fy_config";
}

/// The checked settings.
struct Settings {
    builder: HostYardBuilder<'static>,
    /// One of `FY_BACKING_*`.
    backing: u32,
    memory: ByteSize,
    log: Log,
}

/// A yard, and where its messages go.
type Made = (HostYard, Log);

/// Creates a yard of this process alone. `fy_yard_destroy` destroys it.
///
/// Frames take no memory of the host until they are touched. A child of `fork` has a copy of the yard.
///
/// Errors: `FY_NULL_POINTER` for a null `config` or `yard`, `FY_BAD_SIZE`, `FY_BAD_VERSION`, `FY_BAD_ARGUMENT`, `FY_UNKNOWN_POLICY`,
/// `FY_NO_HOST_MEMORY`, `FY_SYSTEM`. `*yard` is null then.
///
/// Thread safety: any thread. Cost: reads the topology of the host, and maps memory; a few milliseconds.
///
/// # Safety
///
/// See the crate's documentation, "Pointers".
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fy_yard_create(
    config: *const fy_config,
    yard: *mut *mut fy_yard,
    error: *mut fy_error,
) -> fy_status {
    // SAFETY: passed on to the caller.
    unsafe {
        create(yard, error, || {
            let settings = settings(config)?;
            let made = settings.builder.size(settings.memory).build()?;
            Ok((made, settings.log))
        })
    }
}

/// Creates a yard that other processes open by name. `fy_yard_destroy` gives it up; the last process that does so removes the name.
///
/// A name without a leading slash is that of a file in `/dev/shm`; any other is a path. Processes of the same user can open it.
///
/// Errors: as `fy_yard_create`, and `FY_NAME_IN_USE` if a running process has a yard of this name, `FY_NOT_SUPPORTED` if
/// `config->backing` or `config->huge_pages` is not 0: a shared yard has a memory file of its own, whose pages the host chooses.
///
/// Thread safety and cost: as `fy_yard_create`.
///
/// # Safety
///
/// See the crate's documentation, "Pointers".
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fy_yard_create_shared(
    name: *const c_char,
    config: *const fy_config,
    yard: *mut *mut fy_yard,
    error: *mut fy_error,
) -> fy_status {
    // SAFETY: passed on to the caller.
    unsafe {
        create(yard, error, || {
            let (name, settings) = (path(name)?, settings(config)?);
            if settings.backing != FY_BACKING_ANONYMOUS {
                return Err(HostFailure::other(
                    FY_NOT_SUPPORTED,
                    format_args!("a shared yard has a memory file of its own: leave backing 0"),
                ));
            }
            let made = settings.builder.size(settings.memory).shared_as(name).build()?;
            Ok((made, settings.log))
        })
    }
}

/// Opens a yard that a running process has created with `fy_yard_create_shared`.
///
/// Open only yards of processes that you trust: they can write to all frames. `config` may be null; only `log`, `log_context` and
/// `version` of it are used.
///
/// Errors: `FY_NULL_POINTER`, `FY_BAD_SIZE`, `FY_BAD_VERSION`, `FY_NO_SUCH_NAME`, `FY_BAD_FILE`, `FY_DAMAGED`, `FY_SYSTEM`. `*yard` is null
/// then.
///
/// Thread safety and cost: as `fy_yard_create`.
///
/// # Safety
///
/// See the crate's documentation, "Pointers".
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fy_yard_open_shared(
    name: *const c_char,
    config: *const fy_config,
    yard: *mut *mut fy_yard,
    error: *mut fy_error,
) -> fy_status {
    // SAFETY: passed on to the caller.
    unsafe {
        create(yard, error, || {
            let name = path(name)?;
            let log = if config.is_null() { Log::NONE } else { versioned(config)?.1 };
            Ok((HostYard::open_shared(name)?, log))
        })
    }
}

/// Destroys a yard of this process, or gives a shared yard up. Does nothing with null.
///
/// Addresses of its frames are invalid afterwards. Frames that this process has allocated in a shared yard stay allocated while other
/// processes have it.
///
/// The handle must not be used again: a second destruction is undefined behaviour, as a second `free` is.
///
/// Thread safety: no other thread may use the yard during the call or later. Cost: unmaps the memory.
///
/// # Safety
///
/// See the crate's documentation, "Pointers".
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fy_yard_destroy(yard: *mut fy_yard) {
    if yard.is_null() {
        return;
    }
    // SAFETY: the caller passes a handle of `create`, which is a box, and does not use it again.
    let yard = unsafe { Box::from_raw(yard) };
    let log = yard.messages();
    match catch_unwind(AssertUnwindSafe(|| drop(yard))) {
        Ok(()) => log.write(FY_LOG_INFO, format_args!("yard destroyed")),
        Err(payload) => {
            std::mem::forget(payload);
            log.write(FY_LOG_WARNING, format_args!("a yard could not be destroyed: its memory stays mapped"));
        }
    }
}

/// Makes a yard and its handle.
///
/// # Safety
///
/// `yard` is null or writable. `error` is null or points to as many writable bytes as the size there says.
unsafe fn create(
    yard: *mut *mut fy_yard,
    error: *mut fy_error,
    make: impl FnOnce() -> Result<Made, HostFailure>,
) -> fy_status {
    let work = || {
        let place = place(yard, "yard")?;
        // SAFETY: writable, as the caller says.
        unsafe { place.write(std::ptr::null_mut()) };
        let (yard, log) = make()?;
        let made = Box::new(fy_yard::new(yard, log));
        log.write(FY_LOG_INFO, format_args!("{}", describe(&made)));
        // SAFETY: as above.
        unsafe { place.write(Box::into_raw(made)) };
        Ok(())
    };
    // SAFETY: passed on to the caller.
    unsafe { call_without_yard(error, work) }
}

fn describe(yard: &HostYard) -> String {
    let frames = yard.stats().managed_pages();
    format!("yard of {} frames of {} with policy {}", frames.0, yard.geometry().page_size(), yard.core().policy())
}

/// Reads settings of which only the version is checked.
///
/// # Safety
///
/// `config` is null or points to as many readable bytes as the size there says.
unsafe fn versioned(config: *const fy_config) -> Result<(fy_config, Log), HostFailure> {
    // SAFETY: passed on to the caller.
    let config = unsafe { sized::read(config).map_err(Failure::from)? };
    check_version(config.version)?;
    // SAFETY: the header says what the function must allow.
    let log = unsafe { Log::to(config.log, config.log_context) };
    Ok((config, log))
}

/// Reads and checks all settings.
///
/// # Safety
///
/// As for [`versioned`]; and `policy` is null or a string.
unsafe fn settings(config: *const fy_config) -> Result<Settings, HostFailure> {
    // SAFETY: passed on to the caller.
    let (config, log) = unsafe { versioned(config)? };
    let backing = match config.backing {
        FY_BACKING_ANONYMOUS => Backing::Anonymous,
        FY_BACKING_PHANTOM => Backing::Phantom,
        FY_BACKING_MEMFD => Backing::Memfd,
        FY_BACKING_HUGETLB_2M => Backing::Hugetlb(HugetlbSize::TwoMib),
        FY_BACKING_HUGETLB_1G => Backing::Hugetlb(HugetlbSize::OneGib),
        other => {
            return Err(HostFailure::other(
                FY_BAD_ARGUMENT,
                format_args!("backing {other} does not exist: use one of FY_BACKING_*"),
            ));
        }
    };
    let mut builder = HostYard::builder();
    if backing != Backing::Anonymous {
        builder = builder.backing(backing);
    }
    match config.huge_pages {
        FY_HUGE_PAGES_DEFAULT => {}
        FY_HUGE_PAGES_ADVISE => builder = builder.huge_pages(HugePages::Advise),
        FY_HUGE_PAGES_NEVER => builder = builder.huge_pages(HugePages::Never),
        other => {
            return Err(HostFailure::other(
                FY_BAD_ARGUMENT,
                format_args!("huge_pages {other} does not exist: use one of FY_HUGE_PAGES_*"),
            ));
        }
    }
    if config.frame_size != 0 {
        builder = builder.frame_size(ByteSize(config.frame_size));
    }
    if config.device_space != 0 {
        builder = builder.device_space(ByteSize(config.device_space));
    }
    if let Some(cpus) = NonZeroU32::new(config.cpus) {
        builder = builder.cpus(cpus);
    }
    if !config.policy.is_null() {
        // SAFETY: passed on to the caller.
        builder = builder.policy(unsafe { policy_of(config.policy)? });
    }
    Ok(Settings { builder, backing: config.backing, memory: ByteSize(config.memory), log })
}

/// The path of a name.
///
/// # Safety
///
/// `name` is null or a string that lives as long as the result is used.
unsafe fn path<'a>(name: *const c_char) -> Result<&'a OsStr, HostFailure> {
    place(name.cast_mut(), "name")?;
    // SAFETY: passed on to the caller.
    let name = unsafe { CStr::from_ptr(name) };
    if name.is_empty() {
        return Err(HostFailure::other(FY_BAD_ARGUMENT, format_args!("the name is empty")));
    }
    Ok(OsStr::from_bytes(name.to_bytes()))
}
