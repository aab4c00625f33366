//! The part of a memory map for devices: which of it has memory, and of what kind.
//!
//! In a private yard the part is one mapping of untouched memory without transparent huge pages, whatever its size.
//! Heads are written and take a host page each. Tails are only read and show the host's zero page. Parts that are
//! written densely (full, folded) get huge pages, all at once. In a shared yard a [`SharedView`] keeps the views of all
//! processes equal.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex};

use frameyard::platform::MapNotBacked;
use frameyard::{ByteSize, PageCount, Pfn, PfnRange};

use crate::device_part::{DevicePart, PAGE_STRUCTURE};
use crate::device_problem::DeviceMapProblem;
use crate::memory::{HUGE_ALIGN, HugePages};
use crate::shared::view::SharedView;
use crate::sys::descriptor;
use crate::sys::host_page_size;
use crate::sys::lock::lock;
use crate::sys::mapping::{Advice, Piece, Sharing, Source};
use crate::sys::window::{MapWindow, Rounding};

/// Whether memory is known to be zero.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fresh {
    Yes,
    No,
}

/// The part of a memory map for devices.
#[derive(Debug)]
pub(crate) struct DeviceMap {
    window: Arc<MapWindow>,
    /// The frame of the first page structure in the window.
    first: Pfn,
    kind: Kind,
    /// The reason of the last refusal.
    problem: Mutex<Option<DeviceMapProblem>>,
}

/// The memory behind the window.
#[derive(Debug)]
enum Kind {
    /// Private memory of this process.
    Private {
        /// Advice for dense parts.
        dense: HugePages,
        /// Pieces that are mapped from devices.
        placed: Mutex<Vec<Piece>>,
    },
    /// A memory file, of which every process has a view.
    Shared(SharedView),
}

impl DeviceMap {
    /// The part of a private yard. `contents` tells whether it is zero already.
    pub(crate) fn private(window: MapWindow, part: DevicePart, contents: Fresh, dense: HugePages) -> io::Result<Self> {
        if contents == Fresh::No {
            window.discard(window.whole(), Sharing::Private)?;
        }
        window.advise(window.whole(), Advice::NoHugePages)?;
        let kind = Kind::Private { dense, placed: Mutex::default() };
        Ok(Self { window: Arc::new(window), first: part.first, kind, problem: Mutex::default() })
    }

    /// The part of a shared yard.
    pub(crate) fn shared(window: Arc<MapWindow>, part: DevicePart, view: SharedView) -> Self {
        Self { window, first: part.first, kind: Kind::Shared(view), problem: Mutex::default() }
    }

    /// Whether parts of it may become tails, which must not be written.
    pub(crate) fn gets_tails(&self) -> bool {
        matches!(self.kind, Kind::Shared(_))
    }

    /// The reason of the last refusal, which it forgets.
    pub(crate) fn take_problem(&self) -> Option<DeviceMapProblem> {
        lock(&self.problem).take()
    }

    fn refuse(&self, problem: DeviceMapProblem) -> MapNotBacked {
        *lock(&self.problem) = Some(problem);
        MapNotBacked
    }

    /// The frames of these page structures; `None` if one of them is not for devices.
    pub(crate) fn frames(&self, address: NonNull<u8>, bytes: usize) -> Option<PfnRange> {
        self.window.piece(address, bytes, Rounding::Out)?;
        let offset = (address.addr().get() - self.window.base().addr().get()) as u64;
        let frame = |offset| self.first + PageCount(offset);
        let end = (offset + bytes as u64).div_ceil(PAGE_STRUCTURE);
        Some(PfnRange { start: frame(offset / PAGE_STRUCTURE), end: frame(end) })
    }

    /// Provides memory for `bytes` from `address`.
    ///
    /// A single host page gets its memory when it is written.
    pub(crate) fn back(&self, address: NonNull<u8>, bytes: usize) -> Result<(), MapNotBacked> {
        let Some(piece) = self.window.piece(address, bytes, Rounding::Out) else { return Ok(()) };
        if let Kind::Shared(view) = &self.kind {
            view.make_writable(piece).map_err(|problem| self.refuse(problem))?;
        }
        if piece.len <= host_page_size() {
            return Ok(());
        }
        if matches!(self.kind, Kind::Private { dense: HugePages::Advise | HugePages::Default, .. })
            && let Some(inner) = self.whole_huge_pages(piece)
        {
            // A kernel without huge pages uses base pages.
            let _ = self.window.advise(inner, Advice::HugePages);
        }
        let populated = match self.window.populate(piece) {
            // A kernel without the call: the first write allocates the memory.
            Err(error) if matches!(error.kind(), io::ErrorKind::InvalidInput | io::ErrorKind::Unsupported) => Ok(()),
            result => result,
        };
        let size = ByteSize(piece.len as u64);
        populated.map_err(|source| self.refuse(DeviceMapProblem::host("populate page structures", size, source)))
    }

    /// Makes the tails after each head read as zero without memory of their own. A head starts every `stride` bytes.
    pub(crate) fn share_tails(&self, address: NonNull<u8>, bytes: usize, stride: usize) -> Result<(), MapNotBacked> {
        let Some(piece) = self.window.piece(address, bytes, Rounding::In) else { return Ok(()) };
        if let Kind::Shared(view) = &self.kind {
            return view.share_tails(piece, stride).map_err(|problem| self.refuse(problem));
        }
        let size = ByteSize(piece.len as u64);
        let refused = |source| self.refuse(DeviceMapProblem::host("keep huge pages off page structures", size, source));
        self.window.advise(piece, Advice::NoHugePages).map_err(refused)
    }

    /// Frees the memory of a part that contains zeroes. It reads as zero afterwards and can be written.
    pub(crate) fn release(&self, address: NonNull<u8>, bytes: usize) {
        let Some(piece) = self.window.piece(address, bytes, Rounding::In) else { return };
        if let Kind::Shared(view) = &self.kind {
            view.release(piece);
            return;
        }
        let was_placed = self.take_from_devices(piece);
        // New memory merges with the neighbouring mappings again. Memory with advice for huge pages does not.
        let is_new =
            (was_placed || piece.len as u64 >= HUGE_ALIGN) && self.window.replace(piece, Source::Anonymous).is_ok();
        if !is_new && !was_placed {
            // If this fails, the part keeps its memory, which contains zeroes too.
            let _ = self.window.discard(piece, Sharing::Private);
        }
        let _ = self.window.advise(piece, Advice::NoHugePages);
    }

    /// Maps `bytes` of a device's file, from an offset on, as the memory of a part. Refused without a file.
    pub(crate) fn place(
        &self,
        file: Option<(&File, u64)>,
        address: NonNull<u8>,
        bytes: usize,
    ) -> Result<(), MapNotBacked> {
        let size = ByteSize(bytes as u64);
        let Kind::Private { placed, .. } = &self.kind else { return Err(self.refuse(DeviceMapProblem::SharedYard)) };
        let Some((file, offset)) = file else { return Err(self.refuse(DeviceMapProblem::NoDevice)) };
        let host = |source| self.refuse(DeviceMapProblem::host("map page structures in a device", size, source));
        // The rest of the last host page belongs to no other structure.
        let is_aligned = address.addr().get().is_multiple_of(host_page_size());
        let piece = self.window.piece(address, bytes, Rounding::Out).filter(|_| is_aligned);
        let Some(piece) = piece else { return Err(self.refuse(DeviceMapProblem::NotWholePages { size })) };
        // The earlier contents of the device are no page structures.
        let punched = descriptor::punch_hole(file, offset, piece.len as u64);
        let mut placed = lock(placed);
        let replaced = self.window.replace(piece, Source::Shared { file: file.as_fd(), offset });
        placed.extend(replaced.is_ok().then_some(piece));
        drop(placed);
        replaced.map_err(host)?;
        if punched.is_err() {
            self.window.zero(piece);
        }
        Ok(())
    }

    /// Forgets the pieces inside this one that are mapped from devices. Returns whether there were any.
    fn take_from_devices(&self, piece: Piece) -> bool {
        let Kind::Private { placed, .. } = &self.kind else { return false };
        let mut placed = lock(placed);
        let before = placed.len();
        placed.retain(|other| other.offset < piece.offset || other.end() > piece.end());
        placed.len() < before
    }

    /// The part of a piece that consists of whole huge pages.
    fn whole_huge_pages(&self, piece: Piece) -> Option<Piece> {
        let base = self.window.base().addr().get();
        let (start, end) = (base + piece.offset, base + piece.end());
        let huge = HUGE_ALIGN as usize;
        let (start, end) = (start.next_multiple_of(huge), end / huge * huge);
        (start < end).then(|| Piece { offset: start - base, len: end - start })
    }
}

impl Drop for DeviceMap {
    /// Replaces device memory by private memory, since the region of the map may live on.
    fn drop(&mut self) {
        if self.take_from_devices(self.window.whole()) {
            let _ = self.window.replace(self.window.whole(), Source::Anonymous);
        }
    }
}

#[cfg(test)]
mod tests;
