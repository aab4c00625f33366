//! Memory behind the frames of a machine.
//!
//! [`HostMemory`] maps ranges of frame numbers to one span of addresses: the bytes of frame `n` lie `n - first` pages
//! after those of the first frame. The span includes the holes of the machine, but only the ranges have memory. Memory
//! is taken from the host when it is first used or [pre-faulted](HostMemory::prefault). If the host cannot meet a
//! request, it fails with a [`MemoryError`]; there is no fallback.

use std::fs::File;
use std::num::NonZeroUsize;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::ptr::NonNull;

use frameyard::platform::{FramesNotReturned, FreeFrames};
use frameyard::{ByteSize, Geometry, NodeId, PageCount, Pfn};

use crate::hugetlb::{self, HugetlbShortage, HugetlbSize};
use crate::prefault::{self, PrefaultProgress, Share};
use crate::sys;
use crate::sys::mapping::{Advice, Mapping, Piece, Sharing, Source};
use crate::topology::HostTopology;

mod error;
mod file;
mod layout;

pub use error::{FrameBytesError, MemoryError};
pub(crate) use file::{FileLock, check_space, in_memory, with_path as file_with_path};
pub use layout::NodeFrames;
pub(crate) use layout::{FrameLayout, HUGE_ALIGN};

/// The kind of memory behind frames.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub enum Backing {
    /// Private memory of this process.
    #[default]
    Anonymous,
    /// A memory file without a name.
    Memfd,
    /// Private huge pages from the host's pool, all reserved at once.
    ///
    /// Ranges are extended to whole huge pages at both ends.
    Hugetlb(HugetlbSize),
    /// A file, locked against other yards while the memory is mapped.
    ///
    /// Its bytes are those of the frames, so no other program may write to it or shorten it in that time.
    File {
        /// Its path.
        path: PathBuf,
        /// What happens if it is too small.
        growth: FileGrowth,
    },
    /// No memory: the frames can be allocated but not read or written.
    Phantom,
}

impl Backing {
    /// The name of the kind, as in `anonymous`.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Anonymous => "anonymous",
            Self::Memfd => "memfd",
            Self::Hugetlb(_) => "hugetlb",
            Self::File { .. } => "file",
            Self::Phantom => "phantom",
        }
    }
}

/// What to do with a file that is smaller than the frames.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum FileGrowth {
    /// The file is refused.
    #[default]
    Refuse,
    /// The file is created if it is missing, and extended if it is too short.
    Grow,
}

/// Advice to the host on transparent huge pages.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum HugePages {
    /// Use them (`MADV_HUGEPAGE`).
    Advise,
    /// Do not use them (`MADV_NOHUGEPAGE`).
    Never,
    /// No advice: the host decides.
    Default,
}

impl HugePages {
    /// Gives the advice for a piece.
    pub(crate) fn apply(self, mapping: &Mapping, piece: sys::mapping::Piece) -> Result<(), MemoryError> {
        let refused = |source| MemoryError::System {
            action: "have transparent huge pages (the kernel may be built without them)",
            size: ByteSize(piece.len as u64),
            source,
        };
        match self {
            Self::Advise => mapping.advise(piece, Advice::HugePages).map_err(refused),
            Self::Never => mapping.advise(piece, Advice::NoHugePages).map_err(refused),
            Self::Default => Ok(()),
        }
    }
}

/// Whether each node's frames come from the host node that stands for it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[non_exhaustive]
pub enum NodeBinding {
    /// The host's nodes with memory stand for the nodes of the yard in turn: if the host has two, the first stands for
    /// nodes 0 and 2 of the yard. Frames come from their host node only (`MPOL_BIND`). On a host with one node, this
    /// has no effect.
    #[default]
    Bind,
    /// The host decides.
    Leave,
}

/// The settings of a new [`HostMemory`].
#[derive(Clone, Debug)]
pub struct HostMemoryBuilder {
    geometry: Geometry,
    frames: Vec<NodeFrames>,
    backing: Backing,
    huge_pages: Option<HugePages>,
    binding: NodeBinding,
}

impl HostMemoryBuilder {
    /// The kind of memory; anonymous by default.
    #[must_use]
    pub fn backing(mut self, backing: Backing) -> Self {
        self.backing = backing;
        self
    }

    /// Whether to advise the host to use transparent huge pages. The default is yes for anonymous memory and memfd, and
    /// no advice for files.
    ///
    /// Has no effect on hugetlb and phantom frames. The host may ignore the advice: see
    /// [`HostTopology::huge_page_mode`] and [`HostTopology::shared_huge_page_mode`].
    #[must_use]
    pub fn huge_pages(mut self, huge_pages: HugePages) -> Self {
        self.huge_pages = Some(huge_pages);
        self
    }

    /// Whether frames are bound to the host's nodes; they are by default.
    #[must_use]
    pub fn node_binding(mut self, binding: NodeBinding) -> Self {
        self.binding = binding;
        self
    }

    /// Maps the memory without touching it. A file is created or extended if necessary, but not written.
    ///
    /// # Errors
    ///
    /// [`MemoryError`] says what is too large, missing or refused, and what would work.
    pub fn build(self, host: &HostTopology) -> Result<HostMemory, MemoryError> {
        let granule = match self.backing {
            Backing::Hugetlb(size) => size.size().0,
            Backing::Phantom => 1,
            _ => host.page_size().0,
        };
        let layout = FrameLayout::new(self.geometry, &self.frames, granule)?;
        if self.backing == Backing::Phantom {
            return Ok(HostMemory { layout, mapping: None, backing: Backing::Phantom, granule, file: None });
        }
        let binding = if host.nodes().len() > 1 { self.binding } else { NodeBinding::Leave };
        let file = self.check_and_open(&layout, binding, host)?;
        let source = match (&self.backing, &file) {
            (Backing::Hugetlb(size), _) => Source::Hugetlb { shift: size.shift() },
            (_, Some(file)) => Source::Shared { file: file.as_fd(), offset: 0 },
            (_, None) => Source::Anonymous,
        };
        let huge_pages = self.huge_pages.unwrap_or(match self.backing {
            Backing::Anonymous | Backing::Memfd => HugePages::Advise,
            _ => HugePages::Default,
        });
        let mapping = map(&layout, granule, source, huge_pages, binding, host).map_err(|error| match self.backing {
            // Another process may have taken the free huge pages since the check.
            Backing::Hugetlb(size) => check_hugetlb(&layout, size, binding, host).err().unwrap_or(error),
            _ => error,
        })?;
        Ok(HostMemory { layout, mapping: Some(mapping), backing: self.backing, granule, file })
    }

    /// Checks that the host can hold the frames, and opens the file that is to contain them, if any.
    fn check_and_open(
        &self,
        layout: &FrameLayout,
        binding: NodeBinding,
        host: &HostTopology,
    ) -> Result<Option<File>, MemoryError> {
        match &self.backing {
            Backing::Anonymous => check_host_memory(layout, binding, host).map(|()| None),
            Backing::Memfd => {
                check_host_memory(layout, binding, host)?;
                in_memory(layout.file_len()).map(Some)
            }
            Backing::Hugetlb(size) => check_hugetlb(layout, *size, binding, host).map(|()| None),
            Backing::File { path, growth } => {
                file_with_path(path, *growth, layout.file_len(), FileLock::Alone).map(Some)
            }
            Backing::Phantom => Ok(None),
        }
    }
}

/// The memory behind the frames of a machine, unmapped on drop.
#[derive(Debug)]
pub struct HostMemory {
    layout: FrameLayout,
    /// `None` for phantom frames.
    mapping: Option<Mapping>,
    backing: Backing,
    granule: u64,
    /// The mapped file, if it is one.
    file: Option<File>,
}

impl HostMemory {
    /// A builder for the frames of a machine: ranges in any order, without overlap.
    #[must_use]
    pub fn builder(geometry: Geometry, frames: &[NodeFrames]) -> HostMemoryBuilder {
        let (backing, binding) = (Backing::default(), NodeBinding::default());
        HostMemoryBuilder { geometry, frames: frames.to_vec(), backing, huge_pages: None, binding }
    }

    /// Maps frames that lie in an open file from `offset` on. The file is large enough.
    pub(crate) fn in_file(
        layout: FrameLayout,
        file: File,
        offset: u64,
        huge_pages: HugePages,
        host: &HostTopology,
    ) -> Result<Self, MemoryError> {
        let granule = host.page_size().0;
        let binding = if host.nodes().len() > 1 { NodeBinding::Bind } else { NodeBinding::Leave };
        let source = Source::Shared { file: file.as_fd(), offset };
        let mapping = map(&layout, granule, source, huge_pages, binding, host)?;
        Ok(Self { layout, mapping: Some(mapping), backing: Backing::Memfd, granule, file: Some(file) })
    }

    /// Frames without memory.
    pub(crate) fn phantom(layout: FrameLayout) -> Self {
        Self { layout, mapping: None, backing: Backing::Phantom, granule: 1, file: None }
    }

    pub(crate) fn page_shift(&self) -> u8 {
        self.layout.page_shift()
    }

    /// The ranges of frames, ascending.
    #[must_use]
    pub fn ranges(&self) -> &[NodeFrames] {
        self.layout.ranges()
    }

    /// The number of frames.
    #[must_use]
    pub fn frames(&self) -> PageCount {
        self.layout.frames()
    }

    /// The kind of memory.
    #[must_use]
    pub fn backing(&self) -> &Backing {
        &self.backing
    }

    /// The file that contains the frames, if there is one.
    #[must_use]
    pub fn file(&self) -> Option<&File> {
        self.file.as_ref()
    }

    /// The address of a frame's bytes; `None` in a hole, outside the machine, and for phantom frames.
    ///
    /// The bytes are readable and writable for as long as `self` lives. Consecutive frames of a range have consecutive
    /// addresses. Cost: a binary search among the ranges.
    #[inline]
    #[must_use]
    pub fn frame(&self, pfn: Pfn) -> Option<NonNull<u8>> {
        let mapping = self.mapping.as_ref()?;
        self.layout.present_from(pfn)?;
        Some(mapping.address(self.layout.offset_of(pfn)))
    }

    /// The frame that contains the byte at an address; `None` for an address outside the memory of the frames.
    ///
    /// Cost: a binary search among the ranges.
    #[must_use]
    pub fn frame_at(&self, address: usize) -> Option<Pfn> {
        let mapping = self.mapping.as_ref()?;
        let offset = address.checked_sub(mapping.base().addr().get()).filter(|offset| *offset < mapping.len())?;
        let pfn = Pfn((self.layout.span_start() + offset as u64) >> self.layout.page_shift());
        self.layout.present_from(pfn).map(|_| pfn)
    }

    /// The bytes of `count` frames from `first` on, which must all be present.
    ///
    /// Only the owner of the frames may read or write them, and must keep `self` alive while doing so.
    ///
    /// # Errors
    ///
    /// [`FrameBytesError`] names the first frame that is not present.
    pub fn bytes(&self, first: Pfn, count: PageCount) -> Result<NonNull<[u8]>, FrameBytesError> {
        let mapping = self.mapping.as_ref().ok_or(FrameBytesError::Phantom)?;
        let present = self.layout.present_from(first).unwrap_or_default();
        if present < count || present == PageCount(0) {
            return Err(FrameBytesError::NotPresent(first + present));
        }
        let start = mapping.address(self.layout.offset_of(first));
        Ok(NonNull::slice_from_raw_parts(start, (count.0 << self.layout.page_shift()) as usize))
    }

    /// Makes all frames resident, with about `threads` threads, without changing their contents.
    ///
    /// Calls `progress` on the calling thread: once at the start, then after every 32 MiB or huge page.
    ///
    /// # Errors
    ///
    /// [`MemoryError::NotAvailable`] if the host has less memory available than the frames still need. Hugetlb pages
    /// are already reserved, and pages of a file can be written back, so neither kind is checked.
    /// [`MemoryError::System`] if the kernel fails or is older than 5.14 (`MADV_POPULATE_WRITE`).
    pub fn prefault(
        &self,
        threads: NonZeroUsize,
        host: &HostTopology,
        progress: &mut dyn FnMut(PrefaultProgress),
    ) -> Result<(), MemoryError> {
        let Some(mapping) = &self.mapping else { return Ok(()) };
        if matches!(self.backing, Backing::Anonymous | Backing::Memfd) {
            let needed = ByteSize(self.layout.backed().0.saturating_sub(self.resident()?.0));
            let available = host.available_memory()?;
            if needed > available {
                return Err(MemoryError::NotAvailable { needed, available });
            }
        }
        let shares = self.shares(host);
        prefault::populate(mapping, &shares, self.granule as usize, threads, progress)
            .map_err(|source| MemoryError::System { action: "pre-fault frames", size: self.layout.backed(), source })
    }

    /// The number of bytes resident now. Cost: a walk over the host's page tables.
    ///
    /// # Errors
    ///
    /// [`MemoryError::System`] if the kernel does not report it.
    pub fn resident(&self) -> Result<ByteSize, MemoryError> {
        let Some(mapping) = &self.mapping else { return Ok(ByteSize(0)) };
        let pieces = self.layout.pieces().iter();
        let resident: std::io::Result<u64> = pieces.map(|piece| mapping.resident(piece.piece)).sum();
        resident.map(ByteSize).map_err(|source| MemoryError::System {
            action: "find the pages that are in memory",
            size: self.layout.backed(),
            source,
        })
    }

    /// Returns the memory of free frames to the host. The frames read as zero when they are used again.
    ///
    /// # Errors
    ///
    /// [`FramesNotReturned`]: [`NotPossible`](FramesNotReturned::NotPossible) for phantom frames, and for huge pages of
    /// the host's pool, which would lose their reservation and might not come back;
    /// [`Granule`](FramesNotReturned::Granule) for less than whole host pages; [`Refused`](FramesNotReturned::Refused)
    /// if the system refuses, as for files on file systems without holes.
    pub(crate) fn release(&self, frames: &FreeFrames) -> Result<(), FramesNotReturned> {
        let sharing = match self.backing {
            Backing::Anonymous => Sharing::Private,
            Backing::Memfd | Backing::File { .. } => Sharing::Shared,
            Backing::Hugetlb(_) | Backing::Phantom => return Err(FramesNotReturned::NotPossible),
        };
        let range = frames.range();
        let is_there = self.layout.present_from(range.start).is_some_and(|present| present >= range.count());
        let Some(mapping) = self.mapping.as_ref().filter(|_| is_there) else {
            return Err(FramesNotReturned::NotPossible);
        };
        let offset = self.layout.offset_of(range.start);
        let piece = Piece { offset, len: (range.count().0 << self.layout.page_shift()) as usize };
        let granule = self.granule as usize;
        if !piece.offset.is_multiple_of(granule) || !piece.len.is_multiple_of(granule) {
            return Err(FramesNotReturned::Granule(ByteSize(self.granule)));
        }
        let refused = |error: std::io::Error| FramesNotReturned::Refused(error.raw_os_error().unwrap_or(0));
        mapping.discard(piece, sharing).map_err(refused)
    }

    /// The pieces by node of the host.
    fn shares(&self, host: &HostTopology) -> Vec<Share> {
        let of_node = |node: &crate::topology::HostNode| {
            let pieces = self.layout.pieces().iter().filter(|piece| host.node_for(piece.node).id == node.id);
            let cpus = if host.nodes().len() > 1 { node.cpus.intersection(host.allowed()) } else { Default::default() };
            Share { cpus, pieces: pieces.map(|piece| piece.piece).collect() }
        };
        host.nodes().iter().map(of_node).filter(|share| !share.pieces.is_empty()).collect()
    }
}

/// Frames lie in memory as their numbers say, modulo this: the largest block that any processor maps at once.
const LARGEST_ALIGN: u64 = 1 << 30;

/// Reserves the span and maps memory to its pieces.
fn map(
    layout: &FrameLayout,
    granule: u64,
    source: Source<'_>,
    huge_pages: HugePages,
    binding: NodeBinding,
    host: &HostTopology,
) -> Result<Mapping, MemoryError> {
    let span = layout.span_len();
    let no_addresses = || MemoryError::AddressSpace { span };
    let least = granule.max(HUGE_ALIGN).max(1 << layout.page_shift());
    let length = usize::try_from(span.0).map_err(|_| no_addresses())?;
    let reserve = |align: u64| Mapping::reserve(length, align as usize, (layout.span_start() & (align - 1)) as usize);
    // Blocks of up to 1 GiB are aligned to their size, if there are as many addresses.
    let best = reserve(least.max((1 << span.0.max(1).ilog2()).min(LARGEST_ALIGN)));
    let mut mapping = best.or_else(|_| reserve(least)).map_err(|_| no_addresses())?;
    for piece in layout.pieces() {
        let size = ByteSize(piece.piece.len as u64);
        let (action, source, huge_pages) = match source {
            Source::Anonymous => ("map anonymous memory", source, huge_pages),
            Source::Hugetlb { .. } => ("map huge pages", source, HugePages::Default),
            Source::Shared { file, offset } => {
                ("map a file", Source::Shared { file, offset: offset + piece.file_offset }, huge_pages)
            }
            Source::ReadOnly { file, offset } => {
                ("map a file", Source::ReadOnly { file, offset: offset + piece.file_offset }, huge_pages)
            }
        };
        mapping.back(piece.piece, source).map_err(|source| MemoryError::System { action, size, source })?;
        huge_pages.apply(&mapping, piece.piece)?;
        if binding == NodeBinding::Bind {
            let host_node = u32::from(host.node_for(piece.node).id.0);
            let refused = |source| MemoryError::System { action: "bind frames to a node of the host", size, source };
            mapping.bind(piece.piece, host_node).map_err(refused)?;
        }
    }
    Ok(mapping)
}

/// The sizes of the pieces bound to each node of the host; empty if they are not bound.
fn needs_by_host_node(layout: &FrameLayout, binding: NodeBinding, host: &HostTopology) -> Vec<(NodeId, ByteSize)> {
    let need = |id: NodeId| {
        let pieces = layout.pieces().iter().filter(|piece| host.node_for(piece.node).id == id);
        (id, ByteSize(pieces.map(|piece| piece.piece.len as u64).sum()))
    };
    let bound = host.nodes().iter().filter(|_| binding == NodeBinding::Bind);
    bound.map(|node| need(node.id)).collect()
}

pub(crate) fn check_host_memory(
    layout: &FrameLayout,
    binding: NodeBinding,
    host: &HostTopology,
) -> Result<(), MemoryError> {
    let (needed, usable) = (layout.backed(), host.usable_memory());
    if needed > usable {
        return Err(MemoryError::LargerThanHost { needed, usable });
    }
    for (host_node, needed) in needs_by_host_node(layout, binding, host) {
        let memory = host.nodes().iter().find(|node| node.id == host_node).map_or(ByteSize(0), |node| node.memory);
        if needed > memory {
            return Err(MemoryError::LargerThanHostNode { host_node, needed, memory });
        }
    }
    Ok(())
}

fn check_hugetlb(
    layout: &FrameLayout,
    size: HugetlbSize,
    binding: NodeBinding,
    host: &HostTopology,
) -> Result<(), MemoryError> {
    let pages = |bytes: ByteSize| bytes.0 >> size.shift();
    let short: fn(HugetlbShortage) -> MemoryError = MemoryError::Hugetlb;
    hugetlb::check_host(host, size, pages(layout.backed())).map_err(short)?;
    for (host_node, needed) in needs_by_host_node(layout, binding, host) {
        hugetlb::check_node(host, host_node, size, pages(needed)).map_err(short)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
