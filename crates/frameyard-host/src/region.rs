//! Memory for a memory map or a control region.

use std::fs::File;
use std::num::NonZeroUsize;
use std::os::fd::AsFd;
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;

use frameyard::{ByteSize, NodeId};

use crate::cpu_list::CpuList;
use crate::memory::{HUGE_ALIGN, HugePages, MemoryError};
use crate::memory_use::MemoryUse;
use crate::prefault::{self, PrefaultProgress, Share};
use crate::sys;
use crate::sys::mapping::{Mapping, Piece, Source};

/// A range of readable and writable bytes, unmapped on drop.
///
/// A new region is zeroed and takes no memory until it is touched. It starts on a 2 MiB boundary. Its length is the
/// requested length, rounded up to whole host pages.
#[derive(Debug)]
pub struct Region {
    mapping: Mapping,
    contents: Contents,
}

/// What is known about the bytes of a [`Region`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Contents {
    /// All zero: no other process has the region, and nothing was written.
    Zeroed,
    /// Anything: something was written.
    Written,
    /// Anything, at any time: other processes may write.
    Shared,
}

impl Region {
    /// Zeroed private memory.
    ///
    /// A table that is written densely is faster with huge pages. One that is written sparsely, such as the map of
    /// phantom frames, takes less memory without them.
    ///
    /// # Errors
    ///
    /// [`MemoryError::Nothing`] for 0 bytes, [`MemoryError::AddressSpace`] if the process has no free range of
    /// addresses that is long enough, [`MemoryError::System`] if the kernel refuses.
    pub fn zeroed(size: ByteSize, huge_pages: HugePages) -> Result<Self, MemoryError> {
        Self::map(size, huge_pages, Source::Anonymous, Contents::Zeroed)
    }

    /// The bytes of a file from `offset` on, shared with all processes that map them.
    pub(crate) fn in_file(file: &File, offset: u64, size: ByteSize, advice: HugePages) -> Result<Self, MemoryError> {
        Self::map(size, advice, Source::Shared { file: file.as_fd(), offset }, Contents::Shared)
    }

    /// The bytes of a file from `offset` on, as its writers change them. What this process writes does not reach the file.
    pub(crate) fn observing(file: &File, offset: u64, size: ByteSize) -> Result<Self, MemoryError> {
        Self::map(size, HugePages::Default, Source::ReadOnly { file: file.as_fd(), offset }, Contents::Shared)
    }

    fn map(size: ByteSize, huge_pages: HugePages, source: Source<'_>, contents: Contents) -> Result<Self, MemoryError> {
        if size.0 == 0 {
            return Err(MemoryError::Nothing);
        }
        let no_addresses = || MemoryError::AddressSpace { span: size };
        let length =
            usize::try_from(size.0).ok().and_then(|bytes| bytes.checked_next_multiple_of(sys::host_page_size()));
        let length = length.ok_or_else(no_addresses)?;
        let mut mapping = Mapping::reserve(length, HUGE_ALIGN as usize, 0).map_err(|_| no_addresses())?;
        let refused = |source| MemoryError::System { action: "map memory", size, source };
        mapping.back(mapping.whole(), source).map_err(refused)?;
        huge_pages.apply(&mapping, mapping.whole())?;
        Ok(Self { mapping, contents })
    }

    /// The address of the first byte. Keep `self` alive while you read or write the region.
    #[inline]
    #[must_use]
    pub fn base(&self) -> NonNull<u8> {
        self.mapping.base()
    }

    pub(crate) fn mapping(&self) -> &Mapping {
        &self.mapping
    }

    /// The number of bytes.
    #[must_use]
    pub fn size(&self) -> ByteSize {
        ByteSize(self.mapping.len() as u64)
    }

    /// The region as atomic words, which other threads or processes may use at the same time.
    ///
    /// # Safety
    ///
    /// As long as the result lives, all other code that accesses the bytes uses atomics too. No yard lies in the
    /// region, unless the caller stores only values that the yard would have stored.
    #[must_use]
    #[expect(unsafe_code, reason = "the caller states what else uses the region")]
    pub unsafe fn words(&self) -> &[AtomicU64] {
        self.mapping.words()
    }

    /// The bytes of a private region; `None` if other processes may write to it.
    ///
    /// From then on the region counts as written, until it is [zeroed](Self::zero).
    pub fn bytes_mut(&mut self) -> Option<&mut [u8]> {
        if self.contents == Contents::Shared {
            return None;
        }
        self.contents = Contents::Written;
        Some(sys::bytes::bytes_mut(&mut self.mapping))
    }

    /// Writes zeroes to all of a private region, so that it can be a memory map whose initialiser writes nothing. A
    /// region that has not been written is left alone.
    ///
    /// # Panics
    ///
    /// If other processes may write to the region.
    pub fn zero(&mut self) {
        assert!(self.contents != Contents::Shared, "a private region");
        if self.contents == Contents::Written {
            sys::bytes::bytes_mut(&mut self.mapping).fill(0);
            self.contents = Contents::Zeroed;
        }
    }

    /// Whether every byte is known to be zero. This does not notice writes through [`base`](Self::base) or
    /// [`words`](Self::words).
    #[must_use]
    pub fn is_zeroed(&self) -> bool {
        self.contents == Contents::Zeroed
    }

    /// Whether no other process can write to it.
    pub(crate) fn is_private(&self) -> bool {
        self.contents != Contents::Shared
    }

    /// Records that the region was written through its address.
    pub(crate) fn mark_written(&mut self) {
        if self.contents == Contents::Zeroed {
            self.contents = Contents::Written;
        }
    }

    /// The region as words, for a user that shares it with no other kind of access.
    #[inline]
    pub(crate) fn atomics(&self) -> &[AtomicU64] {
        self.mapping.words()
    }

    /// Binds `size` bytes from `offset` on to one node of the host. A host page that is only partly in the range is not
    /// bound.
    ///
    /// # Errors
    ///
    /// [`MemoryError::System`] if the kernel refuses.
    ///
    /// # Panics
    ///
    /// If the range is not inside the region.
    pub fn bind(&self, offset: ByteSize, size: ByteSize, host_node: NodeId) -> Result<(), MemoryError> {
        assert!(offset.0.checked_add(size.0).is_some_and(|end| end <= self.size().0), "a part of the region");
        let page = sys::host_page_size();
        let start = (offset.0 as usize).next_multiple_of(page);
        let end = (offset.0 + size.0) as usize / page * page;
        if start >= end {
            return Ok(());
        }
        let piece = Piece { offset: start, len: end - start };
        let refused = |source| MemoryError::System { action: "bind memory to a node of the host", size, source };
        self.mapping.bind(piece, u32::from(host_node.0)).map_err(refused)
    }

    /// Makes the whole region resident, with about `threads` threads.
    ///
    /// # Errors
    ///
    /// [`MemoryError::System`] if the kernel fails or is older than 5.14 (`MADV_POPULATE_WRITE`).
    pub fn prefault(
        &self,
        threads: NonZeroUsize,
        progress: &mut dyn FnMut(PrefaultProgress),
    ) -> Result<(), MemoryError> {
        let shares = [Share { cpus: CpuList::default(), pieces: vec![self.mapping.whole()] }];
        let refused = |source| MemoryError::System { action: "pre-fault memory", size: self.size(), source };
        prefault::populate(&self.mapping, &shares, HUGE_ALIGN as usize, threads, progress).map_err(refused)
    }

    /// The number of bytes resident now. Cost: a walk over the host's page tables.
    ///
    /// # Errors
    ///
    /// [`MemoryError::System`] if the kernel does not report it.
    pub fn resident(&self) -> Result<ByteSize, MemoryError> {
        let refused =
            |source| MemoryError::System { action: "find the pages that are in memory", size: self.size(), source };
        self.mapping.resident(self.mapping.whole()).map(ByteSize).map_err(refused)
    }

    /// What `size` bytes from `offset` on cost the host: their proportional size and their mappings.
    ///
    /// Cost: the kernel walks all page tables of the process. During the call, the mappings of the range are split from
    /// their neighbours, so that the kernel reports them separately. That takes up to two more mappings.
    ///
    /// # Errors
    ///
    /// [`MemoryError::System`] if the range does not consist of whole host pages of the region, or if the kernel does
    /// not report it.
    pub fn memory_use(&self, offset: ByteSize, size: ByteSize) -> Result<MemoryUse, MemoryError> {
        let refused = |source| MemoryError::System { action: "find the memory in use", size, source };
        let page = sys::host_page_size() as u64;
        let is_inside = offset.0.checked_add(size.0).is_some_and(|end| end <= self.size().0);
        if size.0 == 0 || !is_inside || !offset.0.is_multiple_of(page) || !size.0.is_multiple_of(page) {
            let problem = "the part must be whole host pages of the region";
            return Err(refused(std::io::Error::new(std::io::ErrorKind::InvalidInput, problem)));
        }
        let piece = Piece { offset: offset.0 as usize, len: size.0 as usize };
        let start = self.mapping.address(piece.offset).as_ptr() as usize;
        let _apart = self.mapping.set_apart(piece).map_err(refused)?;
        MemoryUse::of_addresses(start..start + piece.len).map_err(refused)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use super::*;

    #[test]
    fn a_new_region_is_zero_aligned_and_not_resident() {
        let region = Region::zeroed(ByteSize(5 << 20 | 1), HugePages::Never).unwrap();
        assert_eq!(region.base().as_ptr() as u64 % HUGE_ALIGN, 0);
        assert_eq!(region.size().0, (5 << 20) + sys::host_page_size() as u64);
        assert_eq!(region.resident().unwrap(), ByteSize(0));
        region.atomics()[(3 << 20) / 8].store(1, Ordering::Relaxed);
        assert_eq!(region.resident().unwrap(), ByteSize(sys::host_page_size() as u64));
        assert_eq!(region.atomics().iter().map(|word| word.load(Ordering::Relaxed)).sum::<u64>(), 1);
    }

    #[test]
    fn a_private_region_can_be_written_as_bytes_and_zeroed_again() {
        let mut region = Region::zeroed(ByteSize::mib(2), HugePages::Never).unwrap();
        assert!(region.is_zeroed());
        let bytes = region.bytes_mut().unwrap();
        assert_eq!((bytes.len(), bytes[5]), (2 << 20, 0));
        bytes[5] = 7;
        assert!(!region.is_zeroed());
        assert_eq!(region.atomics()[0].load(Ordering::Relaxed).to_le_bytes()[5], 7);
        region.zero();
        assert!(region.is_zeroed());
        assert_eq!(region.bytes_mut().unwrap()[5], 0);
    }

    #[test]
    fn a_shared_region_has_no_bytes() {
        let file = crate::memory::in_memory(4 << 20).unwrap();
        let mut region = Region::in_file(&file, 0, ByteSize::mib(2), HugePages::Never).unwrap();
        assert!(region.bytes_mut().is_none());
        assert!(!region.is_zeroed() && !region.is_private());
    }

    #[test]
    fn a_region_larger_than_the_host_can_be_reserved() {
        let size = ByteSize(1 << 42);
        if crate::test_addresses::are_too_few(size) {
            return;
        }
        let region = Region::zeroed(size, HugePages::Never).unwrap();
        region.atomics()[(1 << 42) / 8 - 1].store(1, Ordering::Relaxed);
        assert_eq!(region.size(), size);
    }

    #[test]
    fn impossible_sizes_are_refused() {
        assert!(matches!(Region::zeroed(ByteSize(0), HugePages::Default), Err(MemoryError::Nothing)));
        for size in [1 << 60, u64::MAX] {
            let error = Region::zeroed(ByteSize(size), HugePages::Default).unwrap_err();
            assert!(matches!(error, MemoryError::AddressSpace { span } if span.0 == size), "{error}");
        }
    }

    #[test]
    fn a_prefaulted_region_is_resident() {
        let region = Region::zeroed(ByteSize::mib(4), HugePages::Never).unwrap();
        let mut last = None;
        region.prefault(NonZeroUsize::MIN, &mut |progress| last = Some(progress)).unwrap();
        assert_eq!(region.resident().unwrap(), region.size());
        assert_eq!(last, Some(PrefaultProgress { done: region.size(), total: region.size() }));
    }

    #[test]
    fn a_part_smaller_than_a_page_binds_nothing() {
        let region = Region::zeroed(ByteSize::mib(2), HugePages::Never).unwrap();
        // Node 60000 does not exist, so binding any page would fail.
        region.bind(ByteSize(1), ByteSize(100), NodeId(60000)).unwrap();
        assert!(region.bind(ByteSize(1), ByteSize::kib(512), NodeId(60000)).is_err());
    }
}
