//! The part of a memory map that is for devices: which of it has memory, and what kind.
//!
//! In a private yard it is untouched memory without transparent huge pages, one mapping for any size: heads are written
//! and get a page of the host each, tails are only read and show the host's zero page. Parts that are written densely
//! (full, folded) get huge pages, all at once. In a shared yard a [`SharedView`] sees to it that all processes show the same.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use frameyard::platform::MapNotBacked;
use frameyard::{ByteSize, PageCount, Pfn, PfnRange};

use crate::device_problem::DeviceMapProblem;
use crate::memory::{HUGE_ALIGN, HugePages};
use crate::shared::SharedView;
use crate::sys::descriptor;
use crate::sys::host_page_size;
use crate::sys::mapping::{Advice, Piece, Source};
use crate::sys::window::{Ends, MapWindow};

/// The size of a page structure.
const PAGE_STRUCTURE: u64 = 64;

/// Where the page structures of the frames for devices lie in a memory map, in whole pages of the host.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct DevicePart {
    pub(crate) piece: Piece,
    /// The frame whose page structure it begins with.
    pub(crate) first: Pfn,
}

impl DevicePart {
    /// The part for `space` of a map of `frames`; `None` where that is no whole page of the host.
    pub(crate) fn of(frames: PfnRange, space: PfnRange) -> Option<Self> {
        let space = space.intersection(frames);
        if space.is_empty() {
            return None;
        }
        let page = host_page_size() as u64;
        let byte = |pfn: Pfn| (pfn - frames.start).0 * PAGE_STRUCTURE;
        let (start, end) = (byte(space.start).next_multiple_of(page), byte(space.end) / page * page);
        let piece = Piece { offset: start as usize, len: end.checked_sub(start)? as usize };
        (piece.len > 0).then_some(Self { piece, first: frames.start + PageCount(start / PAGE_STRUCTURE) })
    }
}

/// Whether memory is known to be zero.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fresh {
    Yes,
    No,
}

/// The part of a memory map that is for devices.
#[derive(Debug)]
pub(crate) struct DeviceMap {
    window: Arc<MapWindow>,
    /// The frame whose page structure the window begins with.
    first: Pfn,
    kind: Kind,
    /// Why the last thing that was asked for could not be had.
    problem: Mutex<Option<DeviceMapProblem>>,
}

/// Whose memory is behind the window.
#[derive(Debug)]
enum Kind {
    /// This process's.
    Private {
        /// Whether dense parts get huge pages.
        dense: HugePages,
        /// Pieces that lie in devices.
        placed: Mutex<Vec<Piece>>,
    },
    /// That of a file, of which every process has a view.
    Shared(SharedView),
}

impl DeviceMap {
    /// The part of a private yard. `contents` says whether it is zero already.
    pub(crate) fn private(window: MapWindow, part: DevicePart, contents: Fresh, dense: HugePages) -> io::Result<Self> {
        if contents == Fresh::No {
            window.discard(window.whole())?;
        }
        sparse(&window, window.whole())?;
        let kind = Kind::Private { dense, placed: Mutex::default() };
        Ok(Self { window: Arc::new(window), first: part.first, kind, problem: Mutex::default() })
    }

    /// The part of a shared yard.
    pub(crate) fn shared(window: Arc<MapWindow>, part: DevicePart, view: SharedView) -> Self {
        Self { window, first: part.first, kind: Kind::Shared(view), problem: Mutex::default() }
    }

    /// Whether parts of it may become such that they cannot be written.
    pub(crate) fn gets_read_only(&self) -> bool {
        matches!(self.kind, Kind::Shared(_))
    }

    /// Why the last thing that was asked for could not be had, if nobody asked before.
    pub(crate) fn take_problem(&self) -> Option<DeviceMapProblem> {
        locked(&self.problem).take()
    }

    fn refuse(&self, problem: DeviceMapProblem) -> MapNotBacked {
        *locked(&self.problem) = Some(problem);
        MapNotBacked
    }

    /// The frames whose page structures these bytes are; `None` where one of them is not for devices.
    pub(crate) fn frames(&self, address: NonNull<u8>, bytes: usize) -> Option<PfnRange> {
        self.window.piece(address, bytes, Ends::Out)?;
        let offset = (address.addr().get() - self.window.base().addr().get()) as u64;
        let frame = |offset| self.first + PageCount(offset);
        let end = (offset + bytes as u64).div_ceil(PAGE_STRUCTURE);
        Some(PfnRange { start: frame(offset / PAGE_STRUCTURE), end: frame(end) })
    }

    /// Provides memory for `bytes` from `address`.
    ///
    /// Of a single page of the host there is no better time than when it is written.
    pub(crate) fn back(&self, address: NonNull<u8>, bytes: usize) -> Result<(), MapNotBacked> {
        let Some(piece) = self.window.piece(address, bytes, Ends::Out) else { return Ok(()) };
        if let Kind::Shared(view) = &self.kind {
            view.make_real(piece).map_err(|problem| self.refuse(problem))?;
        }
        if piece.len <= host_page_size() {
            return Ok(());
        }
        if matches!(self.kind, Kind::Private { dense: HugePages::Advise | HugePages::Default, .. })
            && let Some(inner) = self.whole_huge_pages(piece)
        {
            // A kernel without them has base pages.
            let _ = self.window.advise(inner, Advice::HugePages);
        }
        let populated = match self.window.populate(piece) {
            // A kernel without the call: the first write does it.
            Err(error) if matches!(error.kind(), io::ErrorKind::InvalidInput | io::ErrorKind::Unsupported) => Ok(()),
            result => result,
        };
        let size = ByteSize(piece.len as u64);
        populated.map_err(|source| self.refuse(DeviceMapProblem::host("populate page structures", size, source)))
    }

    /// Makes the tails behind heads, each `stride` bytes behind the one before, read as zero without memory of their own.
    pub(crate) fn share_tails(&self, address: NonNull<u8>, bytes: usize, stride: usize) -> Result<(), MapNotBacked> {
        let Some(piece) = self.window.piece(address, bytes, Ends::In) else { return Ok(()) };
        if let Kind::Shared(view) = &self.kind {
            return view.share_tails(piece, stride).map_err(|problem| self.refuse(problem));
        }
        let size = ByteSize(piece.len as u64);
        let refused = |source| self.refuse(DeviceMapProblem::host("keep huge pages off page structures", size, source));
        sparse(&self.window, piece).map_err(refused)
    }

    /// Gives back the memory of a part that holds zeroes: it reads as zero and can be written.
    pub(crate) fn give_back(&self, address: NonNull<u8>, bytes: usize) {
        let Some(piece) = self.window.piece(address, bytes, Ends::In) else { return };
        if let Kind::Shared(view) = &self.kind {
            view.give_back(piece);
            return;
        }
        let was_placed = self.take_from_devices(piece);
        // New memory is one mapping with its neighbours again, which what huge pages were advised for is not.
        let is_new =
            (was_placed || piece.len as u64 >= HUGE_ALIGN) && self.window.replace(piece, Source::Anonymous).is_ok();
        if !is_new && !was_placed {
            // Where this fails the part keeps what it has, which holds zeroes too.
            let _ = self.window.discard(piece);
        }
        let _ = sparse(&self.window, piece);
    }

    /// Makes `bytes` of a file, from an offset on, the memory of a part; refuses where there is no file.
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
        // What lies behind the last structure in its page is nobody's.
        let is_aligned = address.addr().get().is_multiple_of(host_page_size());
        let piece = self.window.piece(address, bytes, Ends::Out).filter(|_| is_aligned);
        let Some(piece) = piece else { return Err(self.refuse(DeviceMapProblem::NotWholePages { size })) };
        // What the device held there before is no page structure.
        let punched = descriptor::punch_hole(file, offset, piece.len as u64);
        let mut placed = locked(placed);
        self.window.replace(piece, Source::Shared { file: file.as_fd(), offset }).map_err(host)?;
        placed.push(piece);
        drop(placed);
        if punched.is_err() {
            self.window.zero(piece);
        }
        Ok(())
    }

    /// Forgets the pieces inside this one that lie in devices, and says whether there were any.
    fn take_from_devices(&self, piece: Piece) -> bool {
        let Kind::Private { placed, .. } = &self.kind else { return false };
        let mut placed = locked(placed);
        let before = placed.len();
        placed.retain(|other| other.offset < piece.offset || other.end() > piece.end());
        placed.len() < before
    }

    /// The part of a piece that huge pages can map.
    fn whole_huge_pages(&self, piece: Piece) -> Option<Piece> {
        let base = self.window.base().addr().get();
        let (start, end) = (base + piece.offset, base + piece.end());
        let huge = HUGE_ALIGN as usize;
        let (start, end) = (start.next_multiple_of(huge), end / huge * huge);
        (start < end).then(|| Piece { offset: start - base, len: end - start })
    }
}

impl Drop for DeviceMap {
    /// Leaves ordinary memory behind, where the region of the map lives on.
    fn drop(&mut self) {
        if self.take_from_devices(self.window.whole()) {
            let _ = self.window.replace(self.window.whole(), Source::Anonymous);
        }
    }
}

/// Keeps transparent huge pages off a piece that is written at few places.
fn sparse(window: &MapWindow, piece: Piece) -> io::Result<()> {
    match window.advise(piece, Advice::NoHugePages) {
        // A kernel without huge pages does not know the advice; it is followed all the same.
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => Ok(()),
        result => result,
    }
}

/// What is locked is whole even where somebody panicked.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
