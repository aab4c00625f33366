//! A vector of at most `N` items, stored in place, for the items that one hold of a lock or one transfer works on.

use core::ops::{Deref, DerefMut};

/// At most `N` items.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FixedVec<T, const N: usize> {
    items: [T; N],
    len: usize,
}

impl<T: Copy + Default, const N: usize> FixedVec<T, N> {
    pub(crate) fn new() -> Self {
        Self { items: [T::default(); N], len: 0 }
    }

    /// # Panics
    ///
    /// If there are more than `N` items.
    pub(crate) fn of(items: &[T]) -> Self {
        let mut vec = Self::new();
        vec.extend(items.iter().copied());
        vec
    }

    /// # Panics
    ///
    /// If there is no room for all items.
    #[inline(always)]
    pub(crate) fn extend(&mut self, items: impl ExactSizeIterator<Item = T>) {
        let end = self.len + items.len();
        for (slot, item) in self.items[self.len..end].iter_mut().zip(items) {
            *slot = item;
        }
        self.len = end;
    }

    /// Adds the first `len` of `M` items. Faster than [`extend`](Self::extend): all are stored if there is room for them, in a loop
    /// without conditions.
    ///
    /// # Panics
    ///
    /// If there is no room for `len` items.
    #[inline(always)]
    pub(crate) fn extend_by<const M: usize>(&mut self, len: usize, item: impl Fn(usize) -> T) {
        match self.items[self.len..].first_chunk_mut::<M>() {
            Some(slots) => (0..M).for_each(|at| slots[at] = item(at)),
            None => (0..len).for_each(|at| self.items[self.len + at] = item(at)),
        }
        self.len += len;
    }

    /// # Panics
    ///
    /// If there are `N` items already.
    #[inline(always)]
    pub(crate) fn push(&mut self, item: T) {
        self.items[self.len] = item;
        self.len += 1;
    }

    #[inline(always)]
    pub(crate) fn pop(&mut self) -> Option<T> {
        self.len = self.len.checked_sub(1)?;
        Some(self.items[self.len])
    }

    #[inline(always)]
    pub(crate) fn clear(&mut self) {
        self.len = 0;
    }

    #[inline(always)]
    pub(crate) fn is_full(&self) -> bool {
        self.len == N
    }
}

impl<T, const N: usize> Deref for FixedVec<T, N> {
    type Target = [T];

    #[inline(always)]
    fn deref(&self) -> &[T] {
        &self.items[..self.len]
    }
}

impl<T, const N: usize> DerefMut for FixedVec<T, N> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut [T] {
        &mut self.items[..self.len]
    }
}
