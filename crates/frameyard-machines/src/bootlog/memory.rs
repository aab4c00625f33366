//! The memory map of a boot log: the firmware's ranges, with the changes of later messages.

use frameyard_units::NodeId;

use super::super::validate::{check_disjoint, check_range};
use super::{AddressRange, MachineError, MachineNode, Place, Problem, divide};

/// A range, and the line that states it.
#[derive(Clone, Copy)]
pub(super) struct Found {
    pub(super) line: usize,
    pub(super) range: AddressRange,
    pub(super) node: NodeId,
}

/// The memory of a log.
#[derive(Default)]
pub(super) struct Map {
    /// Usable ranges of the firmware's map.
    pub(super) firmware: Vec<Found>,
    /// Usable ranges of the map that the command line replaced it with.
    pub(super) user: Vec<Found>,
    /// Memory by node, as the kernel used it.
    pub(super) early: Vec<Found>,
    /// The address ranges that firmware assigns to nodes.
    pub(super) claims: Vec<(NodeId, AddressRange)>,
}

impl Map {
    /// The valid map: the user's, if there is one, else the firmware's.
    fn usable(&mut self) -> &mut Vec<Found> {
        if self.user.is_empty() { &mut self.firmware } else { &mut self.user }
    }

    /// Removes a range from usable memory (`e820__range_remove`, `e820__range_update`).
    pub(super) fn remove(&mut self, cut: AddressRange) {
        let pieces = |found: &Found| found.range.without(cut).map(|range| Found { range, ..*found });
        let usable = self.usable();
        *usable = usable.iter().flat_map(pieces).filter(|found| !found.range.is_empty()).collect();
    }

    /// Adds a range to usable memory (`e820__range_update`).
    pub(super) fn add(&mut self, line: usize, range: AddressRange) {
        self.remove(range);
        self.usable().push(Found { line, range, node: NodeId(0) });
    }

    /// The nodes that lines name.
    pub(super) fn node_ids(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.early.iter().map(|found| found.node).chain(self.claims.iter().map(|(node, _)| *node))
    }

    /// The memory of each node.
    pub(super) fn nodes(&self, file: &str, nodes: usize) -> Result<Vec<MachineNode>, MachineError> {
        if !self.early.is_empty() {
            let ranges = sorted(file, &self.early)?;
            let memory: Vec<_> = ranges.iter().map(|(_, range)| *range).collect();
            return Ok(divide(&memory, &ranges, nodes));
        }
        let usable = if self.user.is_empty() { &self.firmware } else { &self.user };
        if usable.is_empty() {
            let expected = "'BIOS-e820: [mem ...] usable' or 'Early memory node ranges' lines";
            return Err(MachineError::NoMemoryMap { file: file.to_owned(), expected });
        }
        let memory: Vec<_> = sorted(file, usable)?.into_iter().map(|(_, range)| range).collect();
        Ok(divide(&memory, &self.claims, nodes))
    }
}

/// The ranges in ascending order, checked. Errors name the line.
fn sorted(file: &str, found: &[Found]) -> Result<Vec<(NodeId, AddressRange)>, MachineError> {
    let at = |problem: Problem, line: usize| MachineError::from(problem).at(Place { file: file.to_owned(), line });
    for one in found {
        check_range(one.range).map_err(|problem| at(problem, one.line))?;
    }
    let mut ranges: Vec<_> = found.iter().map(|one| (one.node, one.range)).collect();
    check_disjoint(&mut ranges).map_err(|problem| {
        let line = match &problem {
            Problem::Overlap { second_range, .. } => {
                found.iter().rfind(|one| one.range == *second_range).map(|one| one.line)
            }
            _ => None,
        };
        at(problem, line.unwrap_or(1))
    })?;
    Ok(ranges)
}
