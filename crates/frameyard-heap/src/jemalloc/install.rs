//! Making the yard and giving its hooks to jemalloc's arenas, once in a process.

use std::ffi::{CStr, CString, c_void};
use std::fmt;
use std::sync::atomic::{AtomicU8, Ordering};

use frameyard::NodeId;
use frameyard::validate::ValidateError;
use frameyard_host::{BudgetShare, ByteSize, HostYard, HostYardError, HugePages};

use crate::jemalloc::current::{extents, publish};
use crate::jemalloc::extents::Extents;
use crate::jemalloc::forking;
use crate::jemalloc::hooks::HOOKS;
use crate::jemalloc::mallctl::{read, write};
use crate::jemalloc::settings::Settings;
use crate::jemalloc::summary::HeapSummary;

static STATE: AtomicU8 = AtomicU8::new(UNTRIED);

const UNTRIED: u8 = 0;
const TRIED: u8 = 1;

/// What the yard needs for each arena: the block for its metadata, and as much to serve from.
const BYTES_PER_ARENA: u64 = 4 << 20;

/// The yard of the process's heap.
#[derive(Clone, Copy, Debug)]
pub struct HeapYard {
    extents: &'static Extents,
}

impl HeapYard {
    /// The yard. Frames that the caller allocates here are the caller's, not the heap's.
    ///
    /// # Safety
    ///
    /// Frames that the caller frees contain zeroes: the heap takes free frames for zeroed memory.
    #[must_use]
    pub unsafe fn yard(self) -> &'static HostYard {
        self.extents.yard()
    }

    #[cfg(test)]
    pub(crate) fn extents(self) -> &'static Extents {
        self.extents
    }

    /// Whether an address lies in the yard. Memory allocated before the yard was made lies outside.
    #[must_use]
    pub fn contains<T: ?Sized>(self, pointer: *const T) -> bool {
        self.extents.contains(pointer.addr())
    }

    /// Counts since the yard was made. Takes no lock.
    #[must_use]
    pub fn summary(self) -> HeapSummary {
        self.extents.summary()
    }

    /// The arena that takes its extents from the frames of one node alone, for jemalloc's flag `MALLOCX_ARENA`.
    ///
    /// Each node with memory in the yard has one; in a yard with one node it is arena 0, as each arena is the node's. `None` for other
    /// nodes, and after [`make_hooks`], which creates no arenas.
    #[must_use]
    pub fn arena_of(self, node: NodeId) -> Option<u32> {
        self.extents.nodes().arena_of(node)
    }

    /// Has the calling thread allocate from the frames of one node alone, until it is bound to another. Whether it does: a node without
    /// memory in the yard has no arena.
    ///
    /// An allocation fails when the node is full. What the thread's cache holds returns to its arenas first.
    #[must_use]
    pub fn bind_thread(self, node: NodeId) -> bool {
        self.extents.nodes().bind_thread(node)
    }

    /// Checks the yard, as [`Yard::validate`](frameyard::Yard::validate) does. No other thread allocates meanwhile.
    ///
    /// # Errors
    ///
    /// [`ValidateError`] names the first equation that does not hold.
    pub fn validate(self) -> Result<(), ValidateError> {
        self.extents.yard().validate()
    }
}

/// Why a heap has no yard.
#[derive(Debug)]
pub enum InstallError {
    /// An earlier call has installed a yard, has failed, or is still at work.
    Tried,
    /// The yard cannot be made.
    Yard(HostYardError),
    /// The yard is too small for the arenas: one for each CPU, or the one that [`make_hooks`] serves at least.
    TooSmall {
        /// The requested size.
        size: ByteSize,
        /// The smallest size that works.
        least: ByteSize,
    },
    /// jemalloc was built or started with other options than this crate's.
    Options(&'static str),
    /// jemalloc refused the hooks of an arena, which works on mappings of the host. Other arenas use the yard.
    Arena {
        /// Its number.
        arena: u32,
        /// The error number.
        error: i32,
    },
    /// The handlers for forks cannot be installed.
    ForkHandlers(std::io::Error),
}

impl fmt::Display for InstallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tried => write!(f, "the heap of this process is set up already"),
            Self::Yard(error) => write!(f, "no yard: {error}"),
            Self::TooSmall { size, least } => {
                write!(f, "a yard of {size} is too small for jemalloc's arenas on this machine, which need {least}")
            }
            Self::Options(option) => write!(f, "jemalloc runs without the option {option}"),
            Self::Arena { arena, error } => {
                let error = std::io::Error::from_raw_os_error(*error);
                write!(f, "jemalloc's arena {arena} cannot be set up on the yard: {error}")
            }
            Self::ForkHandlers(error) => write!(f, "no handlers for forks: {error}"),
        }
    }
}

impl std::error::Error for InstallError {}

/// The yard of the process's heap, if one is installed.
#[must_use]
pub fn installed() -> Option<HeapYard> {
    extents().map(|extents| HeapYard { extents })
}

/// Whether [`install`] has been called.
#[inline]
pub(crate) fn was_tried() -> bool {
    STATE.load(Ordering::Relaxed) != UNTRIED
}

/// Makes a yard and has all of jemalloc's arenas take their extents from it.
///
/// The first call in a process decides. Memory that is allocated before and during the call comes from mappings of the host, and stays
/// there until it is freed.
///
/// # Errors
///
/// [`InstallError`]. jemalloc then works on mappings of the host.
pub fn install(settings: &Settings) -> Result<HeapYard, InstallError> {
    install_in(settings, None)
}

/// As [`install`], with all extents charged to a budget.
///
/// A request that the budget refuses fails as one that the yard cannot serve. A forked child is charged for what it allocates itself, not for
/// the copy of its parent's memory.
///
/// # Errors
///
/// [`InstallError`].
pub fn install_in(settings: &Settings, share: Option<BudgetShare>) -> Result<HeapYard, InstallError> {
    if STATE.swap(TRIED, Ordering::Relaxed) != UNTRIED {
        return Err(InstallError::Tried);
    }
    if let Some(option) = foreign_option() {
        return Err(InstallError::Options(option));
    }
    let arenas: u32 = read(c"opt.narenas").ok_or(InstallError::Options("narenas"))?;
    let yard = make(settings, bytes_for(arenas))?;
    serve_arenas(yard, arenas, share)
}

/// Has all arenas take their extents from a yard, and gives each of its nodes an arena.
pub(crate) fn serve_arenas(yard: HostYard, arenas: u32, share: Option<BudgetShare>) -> Result<HeapYard, InstallError> {
    let extents = serve(yard, arenas, share)?;
    // Every arena gets the hooks, even if one refuses them: an arena that has them cannot be without them again.
    let refusals = (0..arenas).filter_map(|arena| Some((arena, set_hooks(arena).err()?)));
    let refused = refusals.reduce(|_, last| last);
    // SAFETY: the hooks are static, and have the layout of jemalloc's.
    let not_created = unsafe { extents.nodes().create((&raw const HOOKS).cast()) }.err();
    match refused.or(not_created) {
        Some((arena, error)) => Err(InstallError::Arena { arena, error }),
        None => Ok(HeapYard { extents }),
    }
}

fn bytes_for(arenas: u32) -> ByteSize {
    ByteSize(BYTES_PER_ARENA * u64::from(arenas))
}

/// Makes a yard for another jemalloc than this crate's, and returns the hooks for its arenas (`extent_hooks_t`).
///
/// The caller passes the pointer to `arenas.create` or `arena.<i>.extent_hooks`. A process calls either this or [`install`], once.
///
/// The other jemalloc must be of version 5. Its option `retain` should be `false`: otherwise what it frees never returns to the yard, and
/// its forks take a lock that is held while a hook runs. [`purge`](crate::jemalloc::purge()) does not reach its arenas.
///
/// # Errors
///
/// [`InstallError`].
pub fn make_hooks(settings: &Settings) -> Result<(HeapYard, *const c_void), InstallError> {
    if STATE.swap(TRIED, Ordering::Relaxed) != UNTRIED {
        return Err(InstallError::Tried);
    }
    let extents = serve(make(settings, bytes_for(1))?, 1, None)?;
    Ok((HeapYard { extents }, (&raw const HOOKS).cast()))
}

/// Makes a yard of at least `least`.
fn make(settings: &Settings, least: ByteSize) -> Result<HostYard, InstallError> {
    if settings.memory < least {
        return Err(InstallError::TooSmall { size: settings.memory, least });
    }
    // A process may use little of a yard. Small pages make little of the memory map resident.
    let builder = HostYard::builder().map_huge_pages(HugePages::Never).policy(settings.policy);
    builder.size(settings.memory).build().map_err(InstallError::Yard)
}

/// Has the hooks find a yard that is large enough for that number of arenas, and for those of its nodes.
fn serve(yard: HostYard, arenas: u32, share: Option<BudgetShare>) -> Result<&'static Extents, InstallError> {
    let size = yard.geometry().size_of(yard.stats().managed_pages());
    let Some(extents) = Extents::new(yard) else {
        return Err(InstallError::TooSmall { size, least: bytes_for(arenas) });
    };
    let least = bytes_for(arenas + extents.nodes().missing());
    if size < least {
        return Err(InstallError::TooSmall { size, least });
    }
    forking::install().map_err(InstallError::ForkHandlers)?;
    Ok(publish(extents.in_budget(share)))
}

/// The first option that has another value than in [`mallctl`](crate::jemalloc::mallctl).
fn foreign_option() -> Option<&'static str> {
    let is_off = |name: &CStr| read::<bool>(name) == Some(false);
    if !is_off(c"opt.retain") {
        return Some("retain:false");
    }
    if !is_off(c"opt.background_thread") {
        return Some("background_thread:false");
    }
    (read::<usize>(c"opt.oversize_threshold") != Some(0)).then_some("oversize_threshold:0")
}

/// Gives an arena the hooks. Creates the arena if it does not exist.
fn set_hooks(arena: u32) -> Result<(), i32> {
    let name = CString::new(format!("arena.{arena}.extent_hooks")).map_err(|_| libc::EINVAL)?;
    // SAFETY: the hooks live as long as the process, and have the layout of jemalloc's.
    unsafe { write(&name, &raw const HOOKS) }
}
