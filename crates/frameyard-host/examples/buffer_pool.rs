//! A database's buffer pool on 2 MiB frames: pages are read on a miss, pinned while in use, evicted when memory is full.
use std::error::Error;

use frameyard::{AllocError, Frames, Gfp, MemoryTable, NodeId, Order, PageCount, Pfn, PfnRange, YardConfig};
use frameyard_host::{HostPlatform, HostTopology, HostYard};

/// A page of the database in memory. Its frames go back to the yard when it is dropped.
struct Buffer<'y> {
    page: usize,
    frames: Frames<'y, HostPlatform>,
    pins: usize,
    used: bool,
}

struct BufferPool<'y> {
    yard: &'y HostYard,
    /// What pages begin with while they are not in memory; a real pool would read and write a file.
    disk: Vec<[u8; 8]>,
    buffers: Vec<Buffer<'y>>,
    buffer_of: Vec<Option<usize>>,
    hand: usize,
}

impl<'y> BufferPool<'y> {
    /// The bytes of a page, which stays in memory until it is unpinned.
    fn pin(&mut self, page: usize) -> Result<&mut [u8], AllocError> {
        let at = self.buffer_of[page].map_or_else(|| self.read(page), Ok)?;
        let buffer = &mut self.buffers[at];
        (buffer.pins, buffer.used) = (buffer.pins + 1, true);
        Ok(buffer.frames.bytes_mut().expect("these frames have memory"))
    }

    fn unpin(&mut self, page: usize) {
        self.buffers[self.buffer_of[page].expect("a pinned page is in memory")].pins -= 1;
    }

    /// Reads a page into free frames, or else into those of a page that can go.
    fn read(&mut self, page: usize) -> Result<usize, AllocError> {
        let at = match self.yard.frames(Order(9), Gfp::HIGHUSER_MOVABLE | Gfp::NOWARN) {
            Ok(frames) => {
                self.buffers.push(Buffer { page, frames, pins: 0, used: false });
                self.buffers.len() - 1
            }
            Err(out_of_memory) => self.evict().ok_or(out_of_memory)?,
        };
        self.buffers[at].page = page;
        self.buffers[at].frames.bytes_mut().expect("these frames have memory")[..8].copy_from_slice(&self.disk[page]);
        self.buffer_of[page] = Some(at);
        Ok(at)
    }

    /// Writes back the first page that is neither pinned nor was used since the clock's hand last passed it.
    fn evict(&mut self) -> Option<usize> {
        let (count, hand, buffers) = (self.buffers.len(), self.hand, &mut self.buffers);
        let may_go = |at: &usize| buffers[*at].pins == 0 && !std::mem::take(&mut buffers[*at].used);
        self.hand = (1..=2 * count).map(|step| (hand + step) % count).find(may_go)?;
        let victim = &self.buffers[self.hand];
        self.disk[victim.page].copy_from_slice(&victim.frames.bytes()?[..8]);
        self.buffer_of[victim.page] = None;
        Some(self.hand)
    }
}

pub(crate) fn main() -> Result<(), Box<dyn Error>> {
    let memory = [(PfnRange::new(Pfn(0x10_0000), PageCount(0x8000)), NodeId(0))]; // 128 MiB
    let table = MemoryTable { memory: &memory, ..MemoryTable::default() };
    let yard = HostYard::builder().build(&table, &YardConfig::new(&[NodeId(0)]), &HostTopology::current()?)?;
    let mut pool =
        BufferPool { yard: &yard, disk: vec![[0; 8]; 200], buffers: vec![], buffer_of: vec![None; 200], hand: 0 };
    pool.pin(7)?; // stays, as the root of an index would
    for access in 0..5000 {
        let count = &mut pool.pin(access % 200)?[0];
        assert_eq!(usize::from(*count), access / 200, "how often the page was here before");
        *count += 1;
        pool.unpin(access % 200);
    }
    println!("{} of 200 pages in memory", pool.buffers.len());
    Ok(())
}
