//! Finding a place where a contiguous range can be made.

use crate::gfp::Gfp;
use crate::owners::Owners;
use crate::platform::Platform;
use crate::request::contig::{AllocError, BlockedBy, Blocker};
use crate::units::{MigrateType, NodeId, Order, PageCount, Pfn, PfnRange};
use crate::yard::Yard;

/// Memory maps have fewer frames than that: a larger alignment has no place.
const MAX_ALIGN: Order = Order(32);

/// The places of a range of memory at which a request waits in vain. At all further ones it spins: in a damaged yard a frame may be in
/// transit for good, at each of them.
const WAITS: u32 = 8;

impl<P: Platform> Yard<P> {
    /// Allocates `count` frames that begin at a multiple of `2^align`, and has owners move blocks away
    /// (`alloc_contig_pages`).
    ///
    /// Searches the zones in zonelist order, each from its lowest frame up. A place with a block that cannot move is
    /// passed over after a look at page structures alone.
    pub(crate) fn search_contiguous(
        &self,
        (count, align): (PageCount, Order),
        gfp: Gfp,
        node: NodeId,
        owners: &Owners<'_>,
    ) -> Result<PfnRange, AllocError> {
        if node.0 >= self.nodes() {
            return Err(AllocError::NoSuchNode(node));
        }
        let migrate_type = gfp.migrate_type().ok_or(AllocError::BadFlags(gfp))?;
        let mut blocked = AllocError::NoPlace { count, align };
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

    /// Tries the places of a range of memory, lowest first, until one is had.
    ///
    /// # Errors
    ///
    /// What was in the way at the last place; `None` where there is none.
    pub(crate) fn first_place(
        &self,
        memory: PfnRange,
        (count, align): (PageCount, Order),
        migrate_type: MigrateType,
        gfp: Gfp,
        owners: &Owners<'_>,
    ) -> Result<PfnRange, Option<AllocError>> {
        if align > MAX_ALIGN {
            return Err(None);
        }
        let (mut problem, mut waits) = (None, 0);
        let mut at = memory.start.align_up(align);
        // Ends: each place begins above the one before.
        while let Some(start) = at.filter(|start| *start < memory.end && (memory.end - *start) >= count) {
            let place = PfnRange::new(start, count);
            let gfp = if waits < WAITS { gfp } else { gfp.without(Gfp::DIRECT_RECLAIM) };
            let blocker = match self.first_obstacle(place, migrate_type, owners) {
                Some(blocker) => blocker,
                None => match self.take_contiguous(place, gfp, migrate_type, owners) {
                    Ok(range) => return Ok(range),
                    Err(AllocError::Blocked(blocker)) => {
                        waits += 1;
                        blocker
                    }
                    // A pageblock at a border of the zone; there are places beside it.
                    Err(AllocError::NotOneZone(shared)) => {
                        problem = Some(AllocError::NotOneZone(shared));
                        let behind = PfnRange::new(self.pageblocks().start_of(start), self.pageblocks().pages()).end;
                        at = behind.align_up(align);
                        continue;
                    }
                    Err(other) => return Err(Some(other)),
                },
            };
            problem = Some(AllocError::Blocked(blocker));
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
