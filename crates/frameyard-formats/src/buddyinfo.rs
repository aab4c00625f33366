//! `/proc/buddyinfo`: the number of free blocks of each order, one line per zone.

use core::fmt::{self, Write};

use frameyard::MigrateType;

use super::snapshot::{ReportSource, nodes, orders, populated_zones_of};

/// Writes `/proc/buddyinfo`: one line per populated zone, which looks the same in both kernels. Modelled on the
/// kernel's `frag_show_print`.
///
/// # Errors
///
/// Errors of `out`.
pub fn write_buddyinfo<S: ReportSource + ?Sized, W: Write + ?Sized>(source: &S, out: &mut W) -> fmt::Result {
    for node in nodes(source) {
        for (id, _) in populated_zones_of(source, node) {
            write!(out, "Node {}, zone {:>8} ", node.0, id.kind())?;
            for order in orders(source) {
                let free: u64 = MigrateType::ALL.into_iter().map(|of| source.free_blocks(id, of, order)).sum();
                write!(out, "{free:>6} ")?;
            }
            out.write_char('\n')?;
        }
    }
    Ok(())
}
