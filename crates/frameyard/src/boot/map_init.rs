//! Options of map initialisation: when it happens, how it writes page structures, and how threads share the work.

use crate::boot::BootError;
use crate::memmap::Initialiser;
use crate::page::MapContent;
use crate::units::{Geometry, PageCount, named};

/// When the memory map is initialised. [`YardConfig::new`](crate::YardConfig::new) and [`MapInit::default`] choose
/// [`Eager`](Self::Eager).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[non_exhaustive]
pub enum InitMode {
    /// All of it at creation, before the first allocation.
    #[default]
    Eager,
    /// At creation only what early boot needs: the low zones, and in each node's highest zone one section's worth of
    /// frames, rounded up to a section boundary. [`YardInit::finish`](crate::views::YardInit::finish) initialises the
    /// rest in parallel. Until then, an allocation that would otherwise fail initialises one section at a time.
    Deferred,
    /// Nothing at creation. Allocations initialise sections as they need them. Deferred memory counts as free.
    Lazy,
}

/// How initialisation of the map is divided into jobs.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum JobGranularity {
    /// One job for each range of free memory, as the kernel does.
    Ranges,
    /// One job for all sections of a node. No two threads work on one section, unless
    /// [`alignment`](InitJobs::alignment) is less than a section.
    #[default]
    Sections,
}

/// Whether per-CPU lists are sized again when map initialisation finishes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum PcpReset {
    /// No: their sizes follow from the memory that was initialised at creation.
    Off,
    /// Yes: their sizes follow from all memory.
    #[default]
    On,
}

/// The options of map initialisation: when, how ([`Initialiser`]), and by how many threads ([`InitJobs`]).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct MapInit {
    /// When the map is initialised.
    pub mode: InitMode,
    /// The content of a fresh page structure.
    pub content: MapContent,
    /// How page structures are written.
    pub initialiser: Initialiser,
    /// How threads share the work.
    pub jobs: InitJobs,
    /// Whether per-CPU lists are sized again afterwards.
    pub pcp_reset: PcpReset,
}

/// How threads share map initialisation. Counts are in frames.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct InitJobs {
    /// The granularity of the jobs.
    pub granularity: JobGranularity,
    /// The maximum number of threads for a node, from 1 to the yard's number of CPUs. `None`: one for each CPU of the
    /// node in [`YardInit::finish`](crate::views::YardInit::finish), and one at creation. A node never gets more
    /// threads than it has CPUs; a node without CPUs gets one.
    pub threads: Option<usize>,
    /// Chunks of a job end at multiples of this. Must be a power of two and at least a maximum-order block. `None`: a
    /// maximum-order block for [`JobGranularity::Ranges`], a section for [`JobGranularity::Sections`].
    pub alignment: Option<PageCount>,
    /// The minimum size of a chunk. `None`: the alignment.
    pub min_chunk: Option<PageCount>,
}

impl MapInit {
    /// Mode, content and initialiser as a word of the header, for views that attach.
    pub(super) fn pack(self) -> u64 {
        self.mode as u64 | (self.content as u64) << 8 | (self.initialiser as u64) << 16
    }

    /// Decodes a word of the header. `None` if the word is invalid.
    pub(super) fn unpack(word: u64) -> Option<Self> {
        let byte = |at: u32| (word >> (8 * at)) as u8 as usize;
        let mode = *InitMode::ALL.get(byte(0))?;
        let content = *MapContent::ALL.get(byte(1))?;
        let initialiser = *Initialiser::ALL.get(byte(2))?;
        let init = Self { mode, content, initialiser, ..Self::default() };
        (init.pack() == word && initialiser.can_write(content)).then_some(init)
    }

    /// Checks the options for a yard with this geometry and number of CPUs.
    pub(super) fn check(&self, geometry: Geometry, cpus: usize) -> Result<(), BootError> {
        if !self.initialiser.can_write(self.content) {
            return Err(BootError::ContentNotWritten(self.content));
        }
        if let Some(threads) = self.jobs.threads.filter(|threads| *threads == 0 || *threads > cpus) {
            return Err(BootError::BadThreads { threads, cpus });
        }
        let block = geometry.max_order().pages();
        if let Some(alignment) = self.jobs.alignment.filter(|align| !align.0.is_power_of_two() || *align < block) {
            return Err(BootError::BadAlignment { alignment, least: block });
        }
        Ok(())
    }
}

named!(InitMode: Eager => "eager", Deferred => "deferred", Lazy => "lazy");
named!(JobGranularity: Ranges => "ranges", Sections => "sections");
named!(PcpReset: Off => "off", On => "on");
