//! `/proc/pagetypeinfo`: free blocks and pageblocks by migration type, a table for each node.

use core::fmt::{self, Write};

use frameyard::{MigrateType, NodeId};

use super::snapshot::{ReportSource, nodes, orders, populated_zones_of};

/// The kernel stops counting a free list here, so as not to hold the zone's lock for long.
const COUNTED: u64 = 100_000;

/// Writes `/proc/pagetypeinfo`. The headers are repeated for each node that has memory.
///
/// Both kernels print it alike. The row and the column for CMA appear only if the source has CMA. Like the kernel, it
/// prints `>100000` for a list of 100000 blocks or more. Modelled on the kernel's `pagetypeinfo_showfree_print` and
/// `pagetypeinfo_showblockcount_print`.
///
/// # Errors
///
/// Errors of `out`.
pub fn write_pagetypeinfo<S: ReportSource + ?Sized, W: Write + ?Sized>(source: &S, out: &mut W) -> fmt::Result {
    let pageblock = source.geometry().pageblock_order();
    for node in nodes(source).filter(|node| populated_zones_of(source, *node).next().is_some()) {
        writeln!(out, "Page block order: {}", pageblock.0)?;
        writeln!(out, "Pages per block:  {}", pageblock.pages().0)?;
        out.write_char('\n')?;
        write_free_blocks(source, node, out)?;
        out.write_char('\n')?;
        write_pageblocks(source, node, out)?;
    }
    Ok(())
}

fn write_free_blocks<S: ReportSource + ?Sized, W: Write + ?Sized>(
    source: &S,
    node: NodeId,
    out: &mut W,
) -> fmt::Result {
    write!(out, "{:<43} ", "Free pages count per migrate type at order")?;
    for order in orders(source) {
        write!(out, "{:>6} ", order.0)?;
    }
    out.write_char('\n')?;
    for (id, _) in populated_zones_of(source, node) {
        for of in types(source) {
            write!(out, "Node {:>4}, zone {:>8}, type {of:>12} ", node.0, id.kind())?;
            for order in orders(source) {
                let free = source.free_blocks(id, of, order);
                let more = if free >= COUNTED { ">" } else { "" };
                write!(out, "{more}{:>6} ", free.min(COUNTED))?;
            }
            out.write_char('\n')?;
        }
    }
    Ok(())
}

fn write_pageblocks<S: ReportSource + ?Sized, W: Write + ?Sized>(source: &S, node: NodeId, out: &mut W) -> fmt::Result {
    write!(out, "{:<23}", "Number of blocks type ")?;
    for of in types(source) {
        write!(out, "{of:>12} ")?;
    }
    out.write_char('\n')?;
    for (id, _) in populated_zones_of(source, node) {
        write!(out, "Node {}, zone {:>8} ", node.0, id.kind())?;
        for of in types(source) {
            write!(out, "{:>12} ", source.pageblocks(id, of))?;
        }
        out.write_char('\n')?;
    }
    Ok(())
}

fn types<S: ReportSource + ?Sized>(source: &S) -> impl Iterator<Item = MigrateType> + use<S> {
    let has_cma = source.has_cma();
    MigrateType::ALL.into_iter().filter(move |of| has_cma || *of != MigrateType::Cma)
}
