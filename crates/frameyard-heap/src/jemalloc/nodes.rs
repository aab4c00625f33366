//! The arenas of nodes. Each takes its extents from the frames of one node alone.
//!
//! An arena of jemalloc's own choice serves threads of all nodes: its extents come from the node of the CPU that asks for them first, and
//! are used again on any node.

use std::ffi::{c_uint, c_void};
use std::ptr;
use std::sync::atomic::{AtomicU32, Ordering};

use frameyard::NodeId;
use frameyard_host::HostYard;
use tikv_jemalloc_sys as sys;

use crate::jemalloc::mallctl::{create_arena, read, write};

/// The number of an arena that does not exist.
const NONE: u32 = u32::MAX;

/// The nodes of a yard, and their arenas.
#[derive(Debug)]
pub(crate) struct NodeArenas {
    arenas: Box<[(NodeId, AtomicU32)]>,
}

impl NodeArenas {
    /// The nodes with memory, without arenas.
    pub(crate) fn of(yard: &HostYard) -> Self {
        let mut nodes: Vec<NodeId> = yard.memory().ranges().iter().map(|part| part.node).collect();
        nodes.sort_unstable();
        nodes.dedup();
        Self { arenas: nodes.into_iter().map(|node| (node, AtomicU32::new(NONE))).collect() }
    }

    /// The arenas that [`create`](Self::create) creates.
    pub(crate) fn missing(&self) -> u32 {
        if self.has_one_node() { 0 } else { self.arenas.len() as u32 }
    }

    /// Gives each node an arena with hooks. In a yard with one node each arena is the node's, and none is created.
    ///
    /// # Safety
    ///
    /// The hooks live as long as the process, and have the layout of jemalloc's.
    pub(crate) unsafe fn create(&self, hooks: *const c_void) -> Result<(), (u32, i32)> {
        if let [(_, arena)] = &*self.arenas {
            arena.store(0, Ordering::Relaxed);
            return Ok(());
        }
        for (_, arena) in &self.arenas {
            // The hook serves the arena's metadata before jemalloc returns the number.
            let expected = read(c"arenas.narenas").unwrap_or(NONE);
            arena.store(expected, Ordering::Relaxed);
            // SAFETY: passed on to the caller.
            arena.store(unsafe { create_arena(hooks) }.map_err(|error| (expected, error))?, Ordering::Relaxed);
        }
        Ok(())
    }

    pub(crate) fn arena_of(&self, node: NodeId) -> Option<u32> {
        let (_, arena) = self.arenas.iter().find(|(other, _)| *other == node)?;
        Some(arena.load(Ordering::Relaxed)).filter(|arena| *arena != NONE)
    }

    /// The node whose frames an arena takes; `None` for an arena that takes those of any node.
    #[inline]
    pub(crate) fn node_of(&self, arena: c_uint) -> Option<NodeId> {
        if self.has_one_node() {
            return None;
        }
        let is_of = |other: &AtomicU32| other.load(Ordering::Relaxed) == arena;
        self.arenas.iter().find(|(_, other)| is_of(other)).map(|(node, _)| *node)
    }

    fn has_one_node(&self) -> bool {
        self.arenas.len() <= 1
    }

    /// Has the calling thread allocate from the node's arena. In a yard with one node it does.
    pub(crate) fn bind_thread(&self, node: NodeId) -> bool {
        let Some(arena) = self.arena_of(node) else { return false };
        self.has_one_node() || {
            // What the thread's cache holds is of other arenas.
            // SAFETY: the action has no value.
            unsafe {
                sys::mallctl(c"thread.tcache.flush".as_ptr(), ptr::null_mut(), ptr::null_mut(), ptr::null_mut(), 0)
            };
            // SAFETY: the name's value is the number of an arena.
            unsafe { write(c"thread.arena", arena).is_ok() }
        }
    }
}

#[cfg(test)]
mod tests {
    use frameyard::boot::{MemoryTable, YardConfig, ZoneLimits};
    use frameyard::{Pfn, PfnRange};

    use super::*;
    use crate::jemalloc::install::{HeapYard, serve_arenas};

    const NODES: [NodeId; 2] = [NodeId(0), NodeId(1)];
    /// 96 MiB on each node.
    const MEMORY: [(PfnRange, NodeId); 2] = [
        (PfnRange { start: Pfn(0x10_0000), end: Pfn(0x10_6000) }, NODES[0]),
        (PfnRange { start: Pfn(0x10_8000), end: Pfn(0x10_E000) }, NODES[1]),
    ];

    /// jemalloc on a yard with two nodes, whatever the host has.
    fn heap() -> HeapYard {
        let table = MemoryTable { memory: &MEMORY, ..MemoryTable::default() };
        let config = YardConfig { zone_limits: ZoneLimits::NONE, ..YardConfig::new(&NODES) };
        let yard = HostYard::builder().machine(&table, &config).build().unwrap();
        serve_arenas(yard, read(c"opt.narenas").unwrap(), None).unwrap()
    }

    /// The node of the frame with that byte.
    fn node_at(heap: HeapYard, block: *mut u8) -> NodeId {
        let first = heap.extents().yard().memory().frame(MEMORY[0].0.start).unwrap().addr().get();
        let pfn = Pfn(MEMORY[0].0.start.0 + ((block.addr() - first) >> 12) as u64);
        MEMORY.iter().find(|(range, _)| range.contains(pfn)).unwrap().1
    }

    fn allocate(size: usize, flags: i32) -> *mut u8 {
        // SAFETY: the size is not zero.
        unsafe { sys::mallocx(size, flags) }.cast()
    }

    fn free(block: *mut u8, flags: i32) {
        // SAFETY: the block is one of `allocate`, and was not freed.
        unsafe { sys::dallocx(block.cast(), flags) }
    }

    #[test]
    fn arenas_of_nodes_take_frames_of_their_nodes() {
        let heap = heap();
        assert_eq!(heap.arena_of(NodeId(2)), None);
        assert!(!heap.bind_thread(NodeId(2)));
        for node in NODES {
            let arena = heap.arena_of(node).unwrap();
            assert!(arena >= read::<u32>(c"opt.narenas").unwrap(), "jemalloc does not choose it for a thread");
            let flags = sys::MALLOCX_ARENA(arena as usize) | sys::MALLOCX_TCACHE_NONE;
            let mut held = Vec::new();
            for size in [100, 5000, 1 << 20, 2 << 20, 5 << 20].into_iter().cycle() {
                let block = allocate(size, flags);
                if block.is_null() {
                    break;
                }
                held.push((block, size));
            }
            let size: usize = held.iter().map(|(_, size)| size).sum();
            assert!(size > 80 << 20, "the node is full at {size} bytes, and the other one is not used");
            for (block, size) in held {
                assert_eq!((node_at(heap, block), node_at(heap, block.wrapping_add(size - 1))), (node, node));
                free(block, flags);
            }
        }
        for node in [1, 0, 1].map(|node| NODES[node]) {
            assert!(heap.bind_thread(node));
            for size in [100, 5000, 3 << 20] {
                let block = allocate(size, 0);
                assert_eq!(node_at(heap, block), node, "{size} bytes");
                free(block, 0);
            }
        }
        let other = std::thread::spawn(|| read::<u32>(c"thread.arena").unwrap()).join().unwrap();
        assert!(other < read::<u32>(c"opt.narenas").unwrap(), "only the calling thread is bound");
        crate::jemalloc::purge();
        heap.validate().unwrap();
    }

    #[test]
    fn extents_grow_within_their_node() {
        // Without a hole between the nodes.
        let memory = [(PfnRange { end: MEMORY[1].0.start, ..MEMORY[0].0 }, NODES[0]), MEMORY[1]];
        let table = MemoryTable { memory: &memory, ..MemoryTable::default() };
        let config = YardConfig { zone_limits: ZoneLimits::NONE, ..YardConfig::new(&NODES) };
        let yard = HostYard::builder().machine(&table, &config).build().unwrap();
        let border = yard.memory().frame(memory[1].0.start).unwrap().addr().get();
        let extents = crate::jemalloc::extents::Extents::new(yard).unwrap();
        let at = |node| extents.allocate_at(border - 4096, 8192, node).map(|extent| extent.addr().get());
        assert_eq!((at(Some(NODES[0])), at(Some(NODES[1]))), (None, None));
        assert!(extents.allocate_at(border - 4096, 4096, Some(NODES[0])).is_some());
        assert!(extents.allocate_at(border, 4096, Some(NODES[0])).is_none());
        assert!(extents.allocate_at(border, 4096, Some(NODES[1])).is_some());
        extents.yard().validate().unwrap();
    }
}
