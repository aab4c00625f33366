//! Memory layouts: the memory map of a typical PC, and the division of ranges between nodes.

use frameyard_units::{NodeId, PhysAddr};

use super::{AddressRange, MachineNode};

/// The end of the first page, which belongs to a PC's firmware.
const LOW_START: u64 = 0x1000;
/// The start of the extended BIOS data area, below the 640 KiB line.
const LOW_END: u64 = 0x9fc00;
/// The end of the video and firmware window.
const EXTENDED: u64 = 1 << 20;
/// The start of the window of 32-bit PCI devices. A PC shows the memory behind the window above 4 GiB.
const PCI_HOLE: u64 = 3 << 30;
/// The end of that window.
const ABOVE_PCI: u64 = 4 << 30;

/// The memory map of a typical PC with these installed bytes on each node, lowest node first.
///
/// Memory behind the window of 32-bit PCI devices lies above 4 GiB. Only the first page and the range from 639 KiB to
/// 1 MiB are unusable.
pub(super) fn pc_nodes(installed: &[u64]) -> Vec<MachineNode> {
    let windows = [(LOW_START, LOW_END), (EXTENDED, PCI_HOLE), (ABOVE_PCI, u64::MAX)];
    // Installed bytes fill [0, PCI_HOLE) and continue at ABOVE_PCI.
    let address = |offset: u64| if offset < PCI_HOLE { offset } else { offset.saturating_add(ABOVE_PCI - PCI_HOLE) };
    let mut offset = 0u64;
    installed
        .iter()
        .map(|&bytes| {
            let (start, end) = (address(offset), address(offset.saturating_add(bytes)));
            offset = offset.saturating_add(bytes);
            let node = AddressRange::new(PhysAddr(start), PhysAddr(end));
            let pieces =
                windows.iter().map(|&(low, high)| node.intersection(AddressRange::new(PhysAddr(low), PhysAddr(high))));
            MachineNode { memory: pieces.filter(|piece| !piece.is_empty()).collect() }
        })
        .collect()
}

/// Divides `memory` between `nodes` nodes. A claim assigns an address range to a node.
///
/// Unclaimed memory goes to the node of the next lower claim, or to node 0. If claims overlap, the one with the lower start
/// wins.
pub(super) fn divide(memory: &[AddressRange], claims: &[(NodeId, AddressRange)], nodes: usize) -> Vec<MachineNode> {
    let mut sorted: Vec<_> = claims.to_vec();
    sorted.sort_by_key(|(_, claim)| *claim);
    let mut divided = vec![MachineNode::default(); nodes];
    for &range in memory {
        let mut rest = range;
        for &(node, claim) in &sorted {
            let taken = rest.intersection(claim);
            if taken.is_empty() {
                continue;
            }
            let unclaimed = AddressRange::new(rest.start, taken.start);
            push(&mut divided, node_below(&sorted, taken.start), unclaimed);
            push(&mut divided, node, taken);
            rest.start = taken.end;
        }
        push(&mut divided, node_below(&sorted, rest.start), rest);
    }
    divided
}

/// The node of the last claim that begins below the address, or node 0.
fn node_below(sorted: &[(NodeId, AddressRange)], address: PhysAddr) -> NodeId {
    let below = sorted.partition_point(|(_, claim)| claim.start < address);
    below.checked_sub(1).map_or(NodeId(0), |last| sorted[last].0)
}

/// Adds a range to a node. Joins it to the node's last range if they are adjacent.
fn push(nodes: &mut [MachineNode], node: NodeId, range: AddressRange) {
    if range.is_empty() {
        return;
    }
    let memory = &mut nodes[node.index()].memory;
    match memory.last_mut() {
        Some(last) if last.end == range.start => last.end = range.end,
        _ => memory.push(range),
    }
}

/// Divides `total` in the ratio of `weights`. The shares add up to `total`, and each share but the last is a multiple of
/// `unit`. If all weights are zero, the first share is `total`.
pub(super) fn shares(total: u64, weights: &[u64], unit: u64) -> Vec<u64> {
    let sum: u128 = weights.iter().map(|&weight| u128::from(weight)).sum();
    if sum == 0 {
        return (0..weights.len()).map(|node| if node == 0 { total } else { 0 }).collect();
    }
    let last = weights.iter().rposition(|&weight| weight != 0);
    let (mut seen, mut given) = (0u128, 0u64);
    weights
        .iter()
        .enumerate()
        .map(|(node, &weight)| {
            seen += u128::from(weight);
            let upto = (u128::from(total) * seen / sum) as u64;
            let upto = if Some(node) < last { upto - upto % unit } else { upto };
            let share = upto - given;
            given = upto;
            share
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(start: u64, end: u64) -> AddressRange {
        AddressRange::new(PhysAddr(start), PhysAddr(end))
    }

    #[test]
    fn a_pc_loses_its_first_page_and_the_hole_below_a_mebibyte_alone() {
        let nodes = pc_nodes(&[8 << 30, 8 << 30]);
        assert_eq!(nodes[0].memory, [range(0x1000, 0x9fc00), range(1 << 20, 3 << 30), range(4 << 30, 9 << 30)]);
        assert_eq!(nodes[1].memory, [range(9 << 30, 17 << 30)]);
        let small = pc_nodes(&[1 << 30]);
        assert_eq!(small[0].memory, [range(0x1000, 0x9fc00), range(1 << 20, 1 << 30)]);
    }

    #[test]
    fn memory_goes_to_the_node_that_claims_it_and_the_rest_to_the_one_below() {
        let memory = [range(0x1000, 0x5000), range(0x8000, 0xa000)];
        let claims = [(NodeId(1), range(0x3000, 0x4000)), (NodeId(0), range(0, 0x2000))];
        let nodes = divide(&memory, &claims, 2);
        assert_eq!(nodes[0].memory, [range(0x1000, 0x3000)]);
        assert_eq!(nodes[1].memory, [range(0x3000, 0x5000), range(0x8000, 0xa000)]);
    }

    #[test]
    fn shares_keep_the_ratio_and_the_sum() {
        assert_eq!(shares(100, &[1, 1], 1), [50, 50]);
        assert_eq!(shares(100, &[3, 0, 1], 10), [70, 0, 30]);
        assert_eq!(shares(100, &[1, 0], 64), [100, 0]);
        assert_eq!(shares(100, &[0, 0], 1), [100, 0]);
    }
}
