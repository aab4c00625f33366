//! A database's buffer pool on frames of 2 MiB. It reads pages on a miss, keeps pinned pages, and evicts unused ones
//! when memory is full.

use std::collections::HashMap;
use std::error::Error;
use std::sync::Arc;

use frameyard_host::{AllocError, ByteSize, Gfp, HostYard, MappedFrames, Order};

type PageId = usize;

/// A page of the database in memory. Dropping it frees its frames.
struct Buffer {
    page: PageId,
    frames: MappedFrames<Arc<HostYard>>,
    pins: usize,
    used: bool,
}

struct BufferPool {
    yard: Arc<HostYard>,
    buffers: Vec<Buffer>,
    buffer_of: HashMap<PageId, usize>,
    clock_hand: usize,
    /// The first bytes of pages that are not in memory. A real pool would read and write a file.
    disk: HashMap<PageId, [u8; 8]>,
}

impl BufferPool {
    fn new(size: ByteSize) -> Result<Self, Box<dyn Error>> {
        let yard = Arc::new(HostYard::with_memory(size)?);
        Ok(Self { yard, buffers: vec![], buffer_of: HashMap::new(), clock_hand: 0, disk: HashMap::new() })
    }

    /// The bytes of a page, which stays in memory until `unpin`.
    fn pin(&mut self, page: PageId) -> Result<&mut [u8], AllocError> {
        let at = match self.buffer_of.get(&page) {
            Some(at) => *at,
            None => self.read(page)?,
        };
        let buffer = &mut self.buffers[at];
        buffer.pins += 1;
        buffer.used = true;
        Ok(buffer.frames.bytes_mut())
    }

    fn unpin(&mut self, page: PageId) {
        self.buffers[self.buffer_of[&page]].pins -= 1;
    }

    /// Reads a page into new frames, or into those of an evicted page when memory is full.
    fn read(&mut self, page: PageId) -> Result<usize, AllocError> {
        let at = match self.yard.frames_owned(Order(9), Gfp::HIGHUSER_MOVABLE | Gfp::NOWARN) {
            Ok(frames) => {
                self.buffers.push(Buffer { page, frames, pins: 0, used: false });
                self.buffers.len() - 1
            }
            Err(out_of_memory) => self.evict().ok_or(out_of_memory)?,
        };
        let buffer = &mut self.buffers[at];
        buffer.page = page;
        buffer.frames.bytes_mut()[..8].copy_from_slice(self.disk.entry(page).or_default());
        self.buffer_of.insert(page, at);
        Ok(at)
    }

    /// Writes back the first page that is not pinned and was not used since the clock hand last passed it.
    fn evict(&mut self) -> Option<usize> {
        for _ in 0..2 * self.buffers.len() {
            self.clock_hand = (self.clock_hand + 1) % self.buffers.len();
            let buffer = &mut self.buffers[self.clock_hand];
            if buffer.pins == 0 && !std::mem::take(&mut buffer.used) {
                self.disk.insert(buffer.page, *buffer.frames.bytes().first_chunk().expect("2 MiB"));
                self.buffer_of.remove(&buffer.page);
                return Some(self.clock_hand);
            }
        }
        None
    }
}

pub(crate) fn main() -> Result<(), Box<dyn Error>> {
    let mut pool = BufferPool::new(ByteSize::mib(128))?;
    pool.pin(7)?; // Stays in memory, as the root of an index would.
    for access in 0..5000 {
        let (page, round) = (access % 200, (access / 200) as u8);
        let visits = &mut pool.pin(page)?[0];
        assert_eq!(*visits, round, "earlier visits of page {page}");
        *visits += 1;
        pool.unpin(page);
    }
    println!("{} of 200 pages are in memory", pool.buffers.len());
    Ok(())
}
