//! Looking for a place where a contiguous range can be made.

use super::{BlockedBy, Blocker, ContigError};
use crate::gfp::Gfp;
use crate::owners::Owners;
use crate::platform::Platform;
use crate::units::{ByteSize, MigrateType, NodeId, Order, PageCount, Pfn, PfnRange};
use crate::yard::Yard;

/// How large a gigantic page is.
const GIGANTIC: ByteSize = ByteSize::gib(1);
/// Memory maps have fewer frames than that: a larger alignment has no place.
const MAX_ALIGN: Order = Order(32);

impl<P: Platform> Yard<P> {
    /// Allocates `count` frames that begin at a multiple of `2^align`, of whichever zone the flags allow, moving away what
    /// is in use (`alloc_contig_pages`).
    ///
    /// Zones are looked at in the order in which a request of the node looks at them, each from its lowest frame up.
    /// Places with blocks that will stay are passed over by looking at their pages alone. Free the frames with
    /// [`free_range`](Self::free_range).
    ///
    /// # Errors
    ///
    /// [`ContigError`]: [`Blocked`](ContigError::Blocked) names the block that was in the way at the last place looked
    /// at. Nothing is allocated then.
    pub fn alloc_contig(
        &self,
        count: PageCount,
        align: Order,
        gfp: Gfp,
        node: NodeId,
        owners: &Owners<'_>,
    ) -> Result<PfnRange, ContigError> {
        if node.0 >= self.nodes() {
            return Err(ContigError::NoSuchNode(node));
        }
        if count.0 == 0 {
            return Err(ContigError::Empty);
        }
        let migrate_type = gfp.migrate_type().ok_or(ContigError::BadFlags(gfp))?;
        let mut blocked = ContigError::NoPlace { count, align };
        let this_node = gfp.contains(Gfp::THISNODE);
        for zone in self.tables.zonelist(node).filter(|zone| zone.kind() <= gfp.highest_zone()) {
            if this_node && zone.node() != node {
                continue;
            }
            for (memory, _) in self.tables.ranges().filter(|(_, of)| *of == zone) {
                match self.first_place(memory, (count, align), migrate_type, gfp, owners) {
                    Ok(range) => return Ok(range),
                    Err(Some(problem)) => blocked = problem,
                    Err(None) => {}
                }
            }
        }
        Err(blocked)
    }

    /// Allocates a page of 1 GiB at run time (`alloc_contig_pages` for `alloc_gigantic_folio`); its first frame. Free it
    /// with [`free_range`](Self::free_range).
    ///
    /// # Errors
    ///
    /// As [`alloc_contig`](Self::alloc_contig).
    pub fn alloc_gigantic(&self, gfp: Gfp, node: NodeId, owners: &Owners<'_>) -> Result<PfnRange, ContigError> {
        let order = Order((GIGANTIC.0.trailing_zeros() as u8) - self.geometry.page_shift());
        self.alloc_contig(order.pages(), order, gfp, node, owners)
    }

    /// Tries the places of a range of memory, lowest first, until one is had.
    ///
    /// # Errors
    ///
    /// What was in the way at the last place; `None` where there is none.
    pub(in crate::yard) fn first_place(
        &self,
        memory: PfnRange,
        (count, align): (PageCount, Order),
        migrate_type: MigrateType,
        gfp: Gfp,
        owners: &Owners<'_>,
    ) -> Result<PfnRange, Option<ContigError>> {
        if align > MAX_ALIGN {
            return Err(None);
        }
        let mut problem = None;
        let mut at = memory.start.align_up(align);
        // Ends: each place begins above the one before.
        while let Some(start) = at.filter(|start| *start < memory.end && (memory.end - *start) >= count) {
            let place = PfnRange::new(start, count);
            let blocker = match self.first_obstacle(place, migrate_type, owners) {
                Some(blocker) => blocker,
                None => match self.take_contiguous(place, gfp, migrate_type, owners) {
                    Ok(range) => return Ok(range),
                    Err(ContigError::Blocked(blocker)) => blocker,
                    // A pageblock at a border of the zone; there are places beside it.
                    Err(ContigError::NotOneZone(shared)) => {
                        problem = Some(ContigError::NotOneZone(shared));
                        let behind = PfnRange::new(self.pageblocks().start_of(start), self.pageblocks().pages()).end;
                        at = behind.align_up(align);
                        continue;
                    }
                    Err(other) => return Err(Some(other)),
                },
            };
            problem = Some(ContigError::Blocked(blocker));
            // No other place would find more memory to move blocks to.
            if blocker.why == BlockedBy::OutOfMemory {
                break;
            }
            at = behind(blocker, start).align_up(align);
        }
        Err(problem)
    }
}

/// The first frame at which a place that does not hold the blocker could begin, above the last one's start.
fn behind(blocker: Blocker, start: Pfn) -> Pfn {
    blocker.frames().end.max(Pfn(start.0 + 1))
}
