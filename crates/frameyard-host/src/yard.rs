//! [`HostYard`]: a yard on the memory of this host.

use std::fmt;
use std::ops::Deref;

use frameyard::{AttachError, BootError, Layout, MemorySource, NodeId, PfnRange, Yard, YardConfig};

use crate::memory::{Backing, HostMemory, HugePages, MemoryError, NodeBinding, NodeFrames};
use crate::platform::{CpuIdentity, HostPlatform, RseqUnavailable};
use crate::region::Region;
use crate::shared::{SharedFileError, SharedFrames, SharedLayout, SharedMemoryFile};
use crate::sys::yard::OwnedYard;
use crate::topology::HostTopology;

/// A yard and all the memory that it needs: frames, memory map and control region.
///
/// Dereferences to [`Yard`]. Dropping it unmaps everything; in a shared yard, this process's view of it.
#[derive(Debug)]
pub struct HostYard {
    yard: OwnedYard,
}

impl Deref for HostYard {
    type Target = Yard<HostPlatform>;

    #[inline(always)]
    fn deref(&self) -> &Yard<HostPlatform> {
        &self.yard
    }
}

/// How a [`HostYard`] is to be made.
#[derive(Clone, Debug)]
pub struct HostYardBuilder {
    backing: Backing,
    huge_pages: HugePages,
    binding: NodeBinding,
    identity: Option<CpuIdentity>,
}

impl Default for HostYardBuilder {
    fn default() -> Self {
        Self { backing: Backing::Anonymous, huge_pages: HugePages::Advise, binding: NodeBinding::Bind, identity: None }
    }
}

impl HostYardBuilder {
    /// What stands behind the frames; private memory by default.
    #[must_use]
    pub fn backing(mut self, backing: Backing) -> Self {
        self.backing = backing;
        self
    }

    /// Whether huge pages are advised, for frames and memory map; they are by default. The map of phantom frames
    /// never gets them: it is written at few places.
    #[must_use]
    pub fn huge_pages(mut self, huge_pages: HugePages) -> Self {
        self.huge_pages = huge_pages;
        self
    }

    /// Whether frames come from the host's nodes that stand for theirs; they do by default.
    #[must_use]
    pub fn node_binding(mut self, binding: NodeBinding) -> Self {
        self.binding = binding;
        self
    }

    /// How threads know their CPU; the fastest way there is by default.
    #[must_use]
    pub fn identity(mut self, identity: CpuIdentity) -> Self {
        self.identity = Some(identity);
        self
    }

    /// Makes a yard for this process alone. No frame is touched.
    ///
    /// # Errors
    ///
    /// [`HostYardError`] says which part cannot be had.
    pub fn build(
        self,
        memory: &dyn MemorySource,
        config: &YardConfig<'_>,
        host: &HostTopology,
    ) -> Result<HostYard, HostYardError> {
        let layout = Layout::plan(memory, config)?;
        let map_advice = if self.backing == Backing::Phantom { HugePages::Never } else { self.huge_pages };
        let regions = (
            Region::zeroed(layout.map_bytes(), map_advice)?,
            Region::zeroed(layout.control_bytes(), HugePages::Never)?,
        );
        let frames = HostMemory::builder(config.geometry, &node_frames(memory)).backing(self.backing.clone());
        let frames = match self.backing {
            Backing::Phantom => frames,
            _ => frames.huge_pages(self.huge_pages),
        };
        let platform = self.platform(frames.node_binding(self.binding).build(host)?, host)?;
        Ok(HostYard { yard: OwnedYard::create(memory, config, &layout, regions, platform)? })
    }

    /// Makes a yard in a memory file, for this process and those that inherit the file.
    ///
    /// Of the builder's settings the backing is not looked at: memory files have their own.
    ///
    /// # Errors
    ///
    /// [`HostYardError`] says which part cannot be had.
    pub fn build_shared(
        self,
        memory: &dyn MemorySource,
        config: &YardConfig<'_>,
        frames: SharedFrames,
        host: &HostTopology,
    ) -> Result<(HostYard, SharedMemoryFile), HostYardError> {
        let layout = Layout::plan(memory, config)?;
        let wanted = SharedLayout {
            geometry: config.geometry,
            ranges: &node_frames(memory),
            frames,
            memory_map: layout.map_bytes(),
            control: layout.control_bytes(),
        };
        let file = SharedMemoryFile::create(&wanted, host)?;
        let regions = (file.map_memory_map(HugePages::Default)?, file.map_control(HugePages::Default)?);
        let platform = self.platform(file.map_frames(HugePages::Default, host)?, host)?;
        let yard = HostYard { yard: OwnedYard::create(memory, config, &layout, regions, platform)? };
        Ok((yard, file))
    }

    /// A view of the yard that another process has made in a memory file.
    ///
    /// # Errors
    ///
    /// [`HostYardError`] where the file holds no finished yard, or it cannot be mapped.
    pub fn attach(self, file: &SharedMemoryFile, host: &HostTopology) -> Result<HostYard, HostYardError> {
        let regions = (file.map_memory_map(HugePages::Default)?, file.map_control(HugePages::Default)?);
        let platform = self.platform(file.map_frames(HugePages::Default, host)?, host)?;
        Ok(HostYard { yard: OwnedYard::attach(regions, platform)? })
    }

    fn platform(&self, frames: HostMemory, host: &HostTopology) -> Result<HostPlatform, RseqUnavailable> {
        let platform = HostPlatform::new(frames, host);
        match self.identity {
            Some(identity) => platform.with_identity(identity),
            None => Ok(platform),
        }
    }
}

fn node_frames(memory: &dyn MemorySource) -> Vec<NodeFrames> {
    let mut ranges = Vec::new();
    memory.for_each_memory(&mut |range: PfnRange, node: NodeId| ranges.push(NodeFrames { range, node }));
    ranges
}

impl HostYard {
    /// How to make one: private memory with huge pages advised, unless told otherwise.
    #[must_use]
    pub fn builder() -> HostYardBuilder {
        HostYardBuilder::default()
    }

    /// The memory behind the frames.
    #[must_use]
    pub fn memory(&self) -> &HostMemory {
        self.platform().memory()
    }

    /// The region of the memory map.
    #[must_use]
    pub fn map_region(&self) -> &Region {
        self.yard.map()
    }

    /// The control region.
    #[must_use]
    pub fn control_region(&self) -> &Region {
        self.yard.control()
    }
}

/// Why a yard cannot be made on this host.
#[derive(Debug)]
#[non_exhaustive]
pub enum HostYardError {
    /// Memory, CPUs or options make no yard.
    Boot(BootError),
    /// Memory cannot be had.
    Memory(MemoryError),
    /// The memory file cannot be made or used.
    File(SharedFileError),
    /// The file holds no finished yard.
    Attach(AttachError),
    /// `rseq` was asked for and is not there.
    Rseq(RseqUnavailable),
}

impl fmt::Display for HostYardError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Boot(error) => error.fmt(f),
            Self::Memory(error) => error.fmt(f),
            Self::File(error) => error.fmt(f),
            Self::Attach(error) => error.fmt(f),
            Self::Rseq(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for HostYardError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Boot(error) => Some(error),
            Self::Memory(error) => Some(error),
            Self::File(error) => Some(error),
            Self::Attach(error) => Some(error),
            Self::Rseq(error) => Some(error),
        }
    }
}

macro_rules! from_errors {
    ($($error:ident => $variant:ident),*) => {
        $(impl From<$error> for HostYardError {
            fn from(error: $error) -> Self {
                Self::$variant(error)
            }
        })*
    };
}

from_errors!(BootError => Boot, MemoryError => Memory, SharedFileError => File, AttachError => Attach, RseqUnavailable => Rseq);
