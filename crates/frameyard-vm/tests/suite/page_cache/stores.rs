//! Stores for tests.

use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use frameyard::ByteSize;
use frameyard_vm::{BackingStore, StoreError};

use crate::page_cache::PAGE;

/// A store that keeps written pages. Unwritten pages are zero.
#[derive(Default)]
pub(crate) struct MemoryStore {
    pages: Mutex<HashMap<(u64, u64), Vec<u8>>>,
    fills: AtomicU64,
    /// The number of fills that succeed before one fails; `u64::MAX` for all.
    failing_fill: AtomicU64,
    failing_write: AtomicU64,
}

impl MemoryStore {
    /// The number of fills.
    pub(crate) fn fills(&self) -> u64 {
        self.fills.load(Ordering::Relaxed)
    }

    /// Fails the n-th fill from now.
    pub(crate) fn fail_fill(&self, n: u64) {
        self.failing_fill.store(n + 1, Ordering::Relaxed);
    }

    /// Fails the n-th write-back from now.
    pub(crate) fn fail_write(&self, n: u64) {
        self.failing_write.store(n + 1, Ordering::Relaxed);
    }

    /// A page as written back; shorter if the file ended in it.
    pub(crate) fn page(&self, key: u64, page: u64) -> Option<Vec<u8>> {
        self.pages.lock().unwrap().get(&(key, page)).cloned()
    }

    fn fails(counter: &AtomicU64) -> bool {
        let less = |left: u64| left.checked_sub(1);
        counter.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less) == Ok(1)
    }
}

impl BackingStore for MemoryStore {
    fn fill(&self, key: u64, page: u64, offset: usize, bytes: &mut [u8]) -> Result<(), StoreError> {
        if Self::fails(&self.failing_fill) {
            bytes.fill(0xee);
            return Err(StoreError::Failed { key, page });
        }
        self.fills.fetch_add(1, Ordering::Relaxed);
        let pages = self.pages.lock().unwrap();
        let known = pages.get(&(key, page)).map_or(&[][..], |known| &known[offset.min(known.len())..]);
        for (at, byte) in bytes.iter_mut().enumerate() {
            *byte = known.get(at).copied().unwrap_or(0);
        }
        Ok(())
    }

    fn write_back(&self, key: u64, page: u64, bytes: &[u8]) -> Result<(), StoreError> {
        if Self::fails(&self.failing_write) {
            return Err(StoreError::Failed { key, page });
        }
        self.pages.lock().unwrap().insert((key, page), bytes.to_vec());
        Ok(())
    }

    fn truncate(&self, key: u64, size: ByteSize) -> Result<(), StoreError> {
        let mut pages = self.pages.lock().unwrap();
        pages.retain(|(of, page), _| *of != key || page * PAGE < size.0);
        if let Some(last) = pages.get_mut(&(key, size.0 / PAGE)) {
            last.truncate((size.0 % PAGE) as usize);
        }
        Ok(())
    }
}
