//! A part of a memory map behind which memory changes while it is in use.

use std::io;
use std::mem::ManuallyDrop;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use super::host_page_size;
use super::mapping::{Advice, Mapping, Piece, Sharing, Source, extent_of};

/// Whole pages of the host of somebody else's [`Mapping`], never unmapped by this one.
///
/// Who reads what lies there uses atomics, and takes any bytes for valid.
#[derive(Debug)]
pub(crate) struct MapWindow(ManuallyDrop<Mapping>);

impl MapWindow {
    /// A window on a piece of a mapping.
    ///
    /// # Safety
    ///
    /// The mapping lives longer than the result, and nobody has a reference to bytes of the piece other than to atomics.
    /// What lies there may turn into other bytes at any time: nobody concludes anything from them that memory safety
    /// rests on, without looking again.
    pub(crate) unsafe fn new(mapping: &Mapping, piece: Piece) -> Self {
        // SAFETY: passed on to the caller; it is never dropped, so nothing is unmapped.
        Self(ManuallyDrop::new(unsafe { extent_of(mapping, piece) }))
    }

    /// The first byte.
    pub(crate) fn base(&self) -> NonNull<u8> {
        self.0.base()
    }

    pub(crate) fn whole(&self) -> Piece {
        self.0.whole()
    }

    /// The piece that has these bytes; `None` where it is empty or one of them lies elsewhere. Pages of the host that are
    /// only in part among them are in it, or out of it, as asked.
    pub(crate) fn piece(&self, address: NonNull<u8>, bytes: usize, ends: Ends) -> Option<Piece> {
        let page = host_page_size();
        let start = address.addr().get().checked_sub(self.base().addr().get())?;
        let end = start.checked_add(bytes)?;
        if end > self.0.len() {
            return None;
        }
        let (start, end) = match ends {
            Ends::Out => (start / page * page, end.next_multiple_of(page)),
            Ends::In => (start.next_multiple_of(page), end / page * page),
        };
        (start < end).then(|| Piece { offset: start, len: end - start })
    }

    pub(crate) fn advise(&self, piece: Piece, advice: Advice) -> io::Result<()> {
        self.0.advise(piece, advice)
    }

    pub(crate) fn populate(&self, piece: Piece) -> io::Result<()> {
        self.0.populate(piece)
    }

    /// Gives private memory back: the piece reads as zeroes.
    pub(crate) fn discard(&self, piece: Piece) -> io::Result<()> {
        self.0.discard(piece, Sharing::Private)
    }

    /// Writes zeroes to a piece that can be written. Others may read it meanwhile.
    pub(crate) fn zero(&self, piece: Piece) {
        assert!(piece.end() <= self.0.len() && piece.len > 0, "inside the window");
        let first = self.0.address(piece.offset).cast::<AtomicU64>();
        // SAFETY: inside the window, whose bytes others reach as atomics alone; any bits are valid atomics.
        let words = unsafe { std::slice::from_raw_parts(first.as_ptr(), piece.len / size_of::<AtomicU64>()) };
        words.iter().for_each(|word| word.store(0, Ordering::Relaxed));
    }

    /// Puts something else behind a piece. What the piece held is seen no more.
    pub(crate) fn replace(&self, piece: Piece, source: Source<'_>) -> io::Result<()> {
        self.0.replace(piece, source)
    }
}

/// Whether pages at the ends that belong to a piece only in part are taken along.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Ends {
    /// They are.
    Out,
    /// They are not.
    In,
}
