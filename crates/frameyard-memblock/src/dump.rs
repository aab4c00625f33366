//! The map as text, in the format of the kernel's boot log.

use core::fmt;

use super::{EarlyMemory, Memblock, Region, RegionList};

impl<M: EarlyMemory, const INLINE: usize> Memblock<M, INLINE> {
    /// Writes both lists, one region per line: the kernel's `memblock_dump_all` with `memblock=debug`.
    ///
    /// [`Display`](fmt::Display) does the same.
    ///
    /// # Errors
    ///
    /// Those of the writer.
    pub fn dump(&self, out: &mut dyn fmt::Write) -> fmt::Result {
        writeln!(out, "MEMBLOCK configuration:")?;
        let (memory, reserved) = (self.phys_mem_size().0, self.reserved_size().0);
        writeln!(out, " memory size = {memory:#018x} reserved size = {reserved:#018x}")?;
        dump_list(out, RegionList::Memory, self.memory())?;
        dump_list(out, RegionList::Reserved, self.reserved())
    }
}

fn dump_list(out: &mut dyn fmt::Write, list: RegionList, regions: &[Region]) -> fmt::Result {
    writeln!(out, " {list}.cnt  = {:#x}", regions.len())?;
    for (index, region) in regions.iter().enumerate() {
        // Lent state may have an empty region.
        let (first, last) = (region.base.0, region.end().0.wrapping_sub(1));
        write!(out, " {list}[{index:#x}]\t[{first:#018x}-{last:#018x}], {:#018x} bytes", region.size.0)?;
        if let Some(node) = region.node.id() {
            write!(out, " on {node}")?;
        }
        writeln!(out, " flags: {:#x}", region.flags.bits())?;
    }
    Ok(())
}

impl<M: EarlyMemory, const INLINE: usize> fmt::Display for Memblock<M, INLINE> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.dump(f)
    }
}

impl<M, const INLINE: usize> fmt::Debug for Memblock<M, INLINE> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Memblock")
            .field("memory", &self.memory.regions())
            .field("reserved", &self.reserved.regions())
            .field("current_limit", &self.current_limit)
            .field("direction", &self.direction)
            .field("movable_nodes", &self.movable_nodes)
            .field("has_mirror", &self.has_mirror)
            .field("can_resize", &self.can_resize)
            .finish_non_exhaustive()
    }
}
