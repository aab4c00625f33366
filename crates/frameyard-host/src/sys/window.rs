//! A part of a memory map whose memory is replaced while the map is in use.

use std::io;
use std::mem::ManuallyDrop;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use super::host_page_size;
use super::mapping::{Advice, Mapping, Piece, Sharing, Source, alias_of};

/// Whole host pages of a [`Mapping`] that other code owns and unmaps.
///
/// Readers of these bytes use atomics and accept any value.
#[derive(Debug)]
pub(crate) struct MapWindow(ManuallyDrop<Mapping>);

impl MapWindow {
    /// A window on a piece of a mapping.
    ///
    /// # Safety
    ///
    /// The mapping outlives the result, and the only references to bytes of the piece are to atomics. The bytes may
    /// change at any time: no code derives memory safety from a value that it read there earlier.
    pub(crate) unsafe fn new(mapping: &Mapping, piece: Piece) -> Self {
        // SAFETY: the caller keeps the mapping alive. `ManuallyDrop` never drops the alias, so nothing is unmapped.
        Self(ManuallyDrop::new(unsafe { alias_of(mapping, piece) }))
    }

    /// The first byte.
    pub(crate) fn base(&self) -> NonNull<u8> {
        self.0.base()
    }

    pub(crate) fn whole(&self) -> Piece {
        self.0.whole()
    }

    /// The piece with these bytes, extended or cut to whole host pages as `rounding` says.
    ///
    /// `None` if it is empty, or if one of the bytes lies outside the window.
    pub(crate) fn piece(&self, address: NonNull<u8>, bytes: usize, rounding: Rounding) -> Option<Piece> {
        let page = host_page_size();
        let start = address.addr().get().checked_sub(self.base().addr().get())?;
        let end = start.checked_add(bytes)?;
        if end > self.0.len() {
            return None;
        }
        let (start, end) = match rounding {
            Rounding::Out => (start / page * page, end.next_multiple_of(page)),
            Rounding::In => (start.next_multiple_of(page), end / page * page),
        };
        (start < end).then(|| Piece { offset: start, len: end - start })
    }

    pub(crate) fn advise(&self, piece: Piece, advice: Advice) -> io::Result<()> {
        self.0.advise(piece, advice)
    }

    pub(crate) fn populate(&self, piece: Piece) -> io::Result<()> {
        self.0.populate(piece)
    }

    /// Returns memory to the host. The piece reads as zero.
    pub(crate) fn discard(&self, piece: Piece, sharing: Sharing) -> io::Result<()> {
        self.0.discard(piece, sharing)
    }

    /// Writes zeroes to a writable piece. Other threads may read it meanwhile.
    pub(crate) fn zero(&self, piece: Piece) {
        assert!(piece.end() <= self.0.len() && piece.len > 0, "inside the window");
        let first = self.0.address(piece.offset).cast::<AtomicU64>();
        // SAFETY: the piece lies inside the window, whose bytes are only reached as atomics. Any bits are valid
        // atomics.
        let words = unsafe { std::slice::from_raw_parts(first.as_ptr(), piece.len / size_of::<AtomicU64>()) };
        words.iter().for_each(|word| word.store(0, Ordering::Relaxed));
    }

    /// Replaces the memory behind a piece. The mapping no longer shows the previous contents.
    pub(crate) fn replace(&self, piece: Piece, source: Source<'_>) -> io::Result<()> {
        self.0.replace(piece, source)
    }
}

/// Whether a piece includes host pages that belong to it only in part.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Rounding {
    /// It includes them.
    Out,
    /// It excludes them.
    In,
}
