//! Initialisation of the memory map: when, how the pages are written, and how the work is spread.

use super::BootError;
use crate::memmap::Initialiser;
use crate::page::MapContent;
use crate::units::{Geometry, PageCount, named};

/// When the memory map is initialised.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum InitMode {
    /// All of it before the first allocation.
    #[default]
    Eager,
    /// First what early boot needs: the low zones, and of each node's highest zone one section's worth of frames,
    /// rounded up to a section. The rest in parallel by [`YardInit::finish`](crate::views::YardInit::finish), or
    /// section by section by allocations that would fail without it.
    Deferred,
    /// Nothing at creation: an allocation initialises sections when it needs them. Their memory counts as free from the
    /// start.
    Lazy,
}

/// The granularity of the jobs in which threads initialise the map.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum JobGranularity {
    /// One job for each range of free memory, as the kernel does.
    Ranges,
    /// Ranges of free memory, joined into jobs of whole sections, so that one thread touches a section.
    #[default]
    Sections,
}

/// Whether per-CPU lists are sized again when the last page of the map is initialised.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum PcpReset {
    /// No: the early memory determines their sizes.
    Off,
    /// Yes.
    #[default]
    On,
}

/// How a yard's memory map is initialised.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct MapInit {
    /// When.
    pub mode: InitMode,
    /// The content of its pages.
    pub content: MapContent,
    /// How the pages are written.
    pub initialiser: Initialiser,
    /// How the work is spread over threads.
    pub jobs: InitJobs,
    /// Whether per-CPU lists are sized again afterwards.
    pub pcp_reset: PcpReset,
}

/// How the initialisation of the map is spread over threads. Counts are in frames.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct InitJobs {
    /// The granularity of the jobs.
    pub granularity: JobGranularity,
    /// The maximum number of threads for a node, up to the yard's CPUs. `None`: one for each CPU of the node in
    /// [`YardInit::finish`](crate::views::YardInit::finish), one thread in all while the yard is created. A node never
    /// gets more threads than it has CPUs; a node without CPUs gets one.
    pub threads: Option<usize>,
    /// Chunks of a job end at multiples of this: a power of two, at least a maximum-order block. `None`: a
    /// maximum-order block where jobs are ranges, a section where they are sections.
    pub alignment: Option<PageCount>,
    /// The minimum chunk of a thread. `None`: the alignment.
    pub min_chunk: Option<PageCount>,
}

impl MapInit {
    /// Mode, content and initialiser as a word of the header, for views that attach.
    pub(super) fn pack(self) -> u64 {
        self.mode as u64 | (self.content as u64) << 8 | (self.initialiser as u64) << 16
    }

    /// What a word of the header says; `None` where it says nothing.
    pub(super) fn unpack(word: u64) -> Option<Self> {
        let byte = |at: u32| (word >> (8 * at)) as u8 as usize;
        let mode = *InitMode::ALL.get(byte(0))?;
        let content = *MapContent::ALL.get(byte(1))?;
        let initialiser = *Initialiser::ALL.get(byte(2))?;
        let init = Self { mode, content, initialiser, ..Self::default() };
        (init.pack() == word && initialiser.can_write(content)).then_some(init)
    }

    /// Checks the options for a yard of that geometry and number of CPUs.
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
