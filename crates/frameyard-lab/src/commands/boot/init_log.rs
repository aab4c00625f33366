//! The memory map in the boot log: nodes and their holes, and how fast the pages of each node were initialised.

use std::io::{self, Write};

use frameyard::boot::InitMode;
use frameyard::page::Page;
use frameyard::platform::NodeInit;
use frameyard::units::ZoneKind;
use frameyard::{NodeId, PfnRange, ZoneId};
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::holes::{Hole, holes};
use super::zone_ranges::{frames, node_ranges, zone_ranges};
use crate::boot::BootedYard;

/// A node whose pages were initialised.
#[derive(Serialize)]
struct InitialisedNode {
    node: u16,
    threads: usize,
    jobs: u64,
    pages: u64,
    freed: u64,
    init_ns: Option<u64>,
    /// Of the memory map.
    bytes_per_s: Option<f64>,
}

impl InitialisedNode {
    fn of(init: &NodeInit) -> Self {
        let bytes = init.pages.0 * size_of::<Page>() as u64;
        let rate = |ns: u64| bytes as f64 * 1e9 / ns as f64;
        Self {
            node: init.node.0,
            threads: init.threads,
            jobs: init.jobs,
            pages: init.pages.0,
            freed: init.freed.0,
            init_ns: init.elapsed_ns,
            bytes_per_s: init.elapsed_ns.filter(|ns| *ns > 0).map(rate),
        }
    }

    /// The kernel's line, with more figures in brackets.
    fn line(&self, what: &str) -> String {
        let time = self.init_ns.map_or_else(String::new, |ns| format!(" in {}ms", milliseconds(ns)));
        let rate = self.bytes_per_s.map_or_else(String::new, |rate| format!(", {:.1} GB/s", rate / 1e9));
        let threads = counted(self.threads as u64, "thread");
        format!("node {} {what}pages initialised{time} ({threads}, {} pages{rate})", self.node, self.pages)
    }
}

/// A count and its noun.
pub(super) fn counted(count: u64, what: &str) -> String {
    if count == 1 { format!("1 {what}") } else { format!("{count} {what}s") }
}

/// Whole milliseconds, as the kernel prints them; below ten with one digit more.
fn milliseconds(ns: u64) -> String {
    let ms = ns as f64 / 1e6;
    if ms < 9.95 { format!("{ms:.1}") } else { format!("{ms:.0}") }
}

fn nodes_initialised(booted: &BootedYard) -> Vec<InitialisedNode> {
    let mut nodes: Vec<InitialisedNode> = booted.nodes_initialised.iter().map(InitialisedNode::of).collect();
    nodes.sort_by_key(|node| node.node);
    nodes
}

/// From a node's first to its last frame.
fn node_spans(booted: &BootedYard) -> Vec<(NodeId, PfnRange)> {
    let mut spans: Vec<(NodeId, PfnRange)> = Vec::new();
    for (node, PfnRange { start, end }) in node_ranges(booted) {
        match spans.iter_mut().find(|(other, _)| *other == node) {
            Some((_, span)) => *span = PfnRange { start: span.start.min(start), end: span.end.max(end) },
            None => spans.push((node, PfnRange { start, end })),
        }
    }
    spans.sort_unstable_by_key(|(node, _)| *node);
    spans
}

fn found_holes(booted: &BootedYard) -> Vec<Hole> {
    let ranges: Vec<(PfnRange, ZoneId)> = booted.yard.memory_ranges().collect();
    holes(booted.machine.geometry, &ranges)
}

/// The kernel's lines on each node before any page is initialised.
pub(super) fn write_nodes(booted: &BootedYard, out: &mut dyn Write) -> io::Result<()> {
    for (node, span) in node_spans(booted) {
        writeln!(out, "Initmem setup node {} {}", node.0, frames(booted.machine.geometry, span))?;
    }
    for Hole { node, zone, pages } in found_holes(booted) {
        writeln!(out, "On node {node}, zone {zone}: {pages} pages in unavailable ranges")?;
    }
    Ok(())
}

/// The time for the pages of each node, and the pages that are left.
pub(super) fn write_initialised(booted: &BootedYard, out: &mut dyn Write) -> io::Result<()> {
    let what = match booted.map_init.mode {
        InitMode::Deferred => "deferred ",
        _ => "",
    };
    for node in nodes_initialised(booted) {
        writeln!(out, "{}", node.line(what))?;
    }
    let left = booted.yard.core().init().deferred_pages().0;
    if left > 0 {
        writeln!(out, "{left} pages left uninitialised until they are needed")?;
    }
    Ok(())
}

/// The same as JSON.
pub(super) fn totals(booted: &BootedYard) -> Map<String, Value> {
    let init = &booted.map_init;
    let geometry = booted.machine.geometry;
    let addresses = |range: PfnRange| (geometry.address_of(range.start).0, geometry.address_of(range.end).0);
    let ranges = node_ranges(booted).into_iter().map(|(node, range)| {
        let (start, end) = addresses(range);
        json!({ "node": node.0, "start": start, "end": end })
    });
    let zone_ranges = zone_ranges(booted).into_iter().filter(|(_, range)| !range.is_empty()).map(|(kind, range)| {
        let (start, end) = addresses(range);
        json!({ "zone": kind.name(), "start": start, "end": end })
    });
    let movable = booted.yard.stats().zones().filter(|zone| zone.id.kind() == ZoneKind::Movable);
    let movable_starts =
        movable.map(|zone| json!({ "node": zone.id.node().0, "start": geometry.address_of(zone.span.start).0 }));
    Map::from_iter([
        (
            "init".to_owned(),
            json!({
                "mode": init.mode.name(),
                "content": init.content.name(),
                "initialiser": init.initialiser.name(),
                "granularity": init.jobs.granularity.name(),
                "threads": init.jobs.threads,
                "job_align_bytes": init.jobs.alignment.map(|pages| geometry.size_of(pages).0),
                "job_min_chunk_bytes": init.jobs.min_chunk.map(|pages| geometry.size_of(pages).0),
                "pcp_reset": init.pcp_reset.name(),
                "create_ns": booted.create_ns,
                "finish_ns": booted.finish_ns,
            }),
        ),
        ("nodes_initialised".to_owned(), json!(nodes_initialised(booted))),
        ("zone_ranges".to_owned(), zone_ranges.collect()),
        ("movable_starts".to_owned(), movable_starts.collect()),
        ("ranges".to_owned(), ranges.collect()),
        ("holes".to_owned(), json!(found_holes(booted))),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;
    use frameyard::PageCount;

    fn node(threads: usize, elapsed_ns: Option<u64>) -> InitialisedNode {
        let pages = PageCount(8_126_464);
        InitialisedNode::of(&NodeInit { node: NodeId(1), threads, jobs: 3, pages, freed: pages, elapsed_ns })
    }

    #[test]
    fn a_node_has_the_kernels_line_with_threads_pages_and_rate() {
        let line = node(2, Some(21_600_000)).line("deferred ");
        assert_eq!(line, "node 1 deferred pages initialised in 22ms (2 threads, 8126464 pages, 24.1 GB/s)");
        let line = node(1, Some(1_260_000)).line("");
        assert_eq!(line, "node 1 pages initialised in 1.3ms (1 thread, 8126464 pages, 412.8 GB/s)");
    }

    #[test]
    fn where_there_is_no_clock_there_is_no_rate() {
        assert_eq!(node(4, None).line(""), "node 1 pages initialised (4 threads, 8126464 pages)");
        assert_eq!(node(4, None).bytes_per_s, None);
        assert_eq!(node(4, Some(0)).bytes_per_s, None);
    }
}
