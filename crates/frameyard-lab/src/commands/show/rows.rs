//! The files of /proc and metrics as flat rows, so that programs need not parse them.

use frameyard::units::ZoneKind;
use frameyard::watermarks::WatermarkLevel;
use frameyard::{CpuId, MigrateType, NodeId, Order, PageCount, ZoneId};
use frameyard_formats::{
    KernelFormat, Metric, MetricHistogram, MetricsSource, NumaEvent, ReportSource, Series, ZoneSnapshot, write_vmstat,
};
use serde_json::{Map, Value};

type Row = Map<String, Value>;

/// A row for each zone: free blocks by order.
pub(super) fn of_buddyinfo(source: &dyn ReportSource) -> Vec<Row> {
    let row = |(id, _)| {
        let mut row = named(id);
        for order in orders(source) {
            let free = MigrateType::ALL.map(|of| source.free_blocks(id, of, order)).into_iter().sum::<u64>();
            row.insert(format!("order_{}", order.0), free.into());
        }
        row
    };
    zones(source).map(row).collect()
}

/// A row for each zone and migration type: pageblocks of that type, and free blocks by order.
pub(super) fn of_pagetypeinfo(source: &dyn ReportSource) -> Vec<Row> {
    let types = || MigrateType::ALL.into_iter().filter(|of| *of != MigrateType::Cma || source.has_cma());
    let row = |(id, of): (ZoneId, MigrateType)| {
        let mut row = named(id);
        row.insert("type".to_owned(), of.name().into());
        row.insert("pageblocks".to_owned(), source.pageblocks(id, of).into());
        for order in orders(source) {
            row.insert(format!("order_{}", order.0), source.free_blocks(id, of, order).into());
        }
        row
    };
    zones(source).flat_map(|(id, _)| types().map(move |of| (id, of))).map(row).collect()
}

/// A row for each zone: pages, watermarks, reserves, the sums of its per-CPU lists, and where requests were served.
pub(super) fn of_zoneinfo(source: &dyn ReportSource) -> Vec<Row> {
    zones(source).map(|(id, zone)| zoneinfo_row(source, id, &zone)).collect()
}

fn zoneinfo_row(source: &dyn ReportSource, id: ZoneId, zone: &ZoneSnapshot) -> Row {
    let mut row = named(id);
    let marks = zone.watermarks;
    let pages = [
        ("free", zone.free),
        ("boost", marks.boost),
        ("min", marks.level(WatermarkLevel::Min)),
        ("low", marks.level(WatermarkLevel::Low)),
        ("high", marks.level(WatermarkLevel::High)),
        ("promo", marks.level(WatermarkLevel::Promo)),
        ("spanned", zone.spanned),
        ("present", zone.present),
        ("managed", zone.managed),
        ("cma", zone.cma),
        ("free_cma", zone.free_cma),
        ("reported", source.reported(id)),
    ];
    row.extend(pages.map(|(key, PageCount(pages))| (key.to_owned(), pages.into())));
    for (kind, pages) in ZoneKind::ALL.into_iter().zip(zone.protection) {
        row.insert(format!("protection_{}", kind.name().to_lowercase()), pages.0.into());
    }
    let lists = || (0..source.cpus()).map(|cpu| source.per_cpu(id, CpuId(cpu)));
    let first = lists().next().unwrap_or_default();
    row.insert("pcp_count".to_owned(), lists().map(|lists| lists.count).sum::<PageCount>().0.into());
    row.insert("pcp_high".to_owned(), first.high.0.into());
    row.insert("pcp_batch".to_owned(), first.batch.0.into());
    row.insert("stat_threshold".to_owned(), first.stat_threshold.into());
    for event in NumaEvent::ALL {
        row.insert(event.name().to_owned(), source.numa_event(id, *event).into());
    }
    row.insert("start_pfn".to_owned(), zone.start.0.into());
    row
}

/// A row for each line.
pub(super) fn of_vmstat(source: &dyn ReportSource, format: KernelFormat) -> Vec<Row> {
    let mut text = String::new();
    // Writing into a string cannot fail.
    let _ = write_vmstat(source, format, &mut text);
    let row = |(name, value): (&str, &str)| {
        let value = value.parse::<u64>().map_or(Value::Null, Value::from);
        Row::from_iter([("name".to_owned(), name.into()), ("value".to_owned(), value)])
    };
    text.lines().filter_map(|line| line.split_once(' ')).map(row).collect()
}

/// A row for each zone and CPU. `cpu` is `null` for transfers that bypassed the per-CPU lists. Counts of histograms are of values up to
/// the number in the key.
pub(super) fn of_metrics(source: &dyn MetricsSource, series: Series) -> Vec<Row> {
    let mut rows = Vec::new();
    // Collecting cannot fail.
    let _ = source.for_each_row(&mut |found| {
        let mut row = named(found.zone);
        row.insert("cpu".to_owned(), found.cpu.map(|cpu| cpu.0).into());
        row.insert("policy".to_owned(), source.policy().name().into());
        for metric in Metric::all() {
            row.insert(metric.info.name.to_owned(), metric.value(found).into());
        }
        for histogram in MetricHistogram::ALL {
            let (name, (counts, sum)) = (histogram.name(), histogram.counts(found));
            row.insert(format!("{name}_sum"), sum.into());
            row.insert(format!("{name}_count"), counts.count().into());
            for (bound, below) in counts.cumulative() {
                let bound = bound.map_or_else(|| "inf".to_owned(), |bound| bound.to_string());
                row.insert(format!("{name}_le_{bound}"), below.into());
            }
        }
        let is_zero = |metric: Metric| metric.value(found).is_none_or(|value| value == 0);
        if series == Series::All || !Metric::all().all(is_zero) {
            rows.push(row);
        }
        Ok(())
    });
    rows
}

fn named(id: ZoneId) -> Row {
    Row::from_iter([("node".to_owned(), id.node().0.into()), ("zone".to_owned(), id.kind().name().into())])
}

/// The zones that have memory.
fn zones(source: &dyn ReportSource) -> impl Iterator<Item = (ZoneId, ZoneSnapshot)> {
    let ids = (0..source.nodes()).flat_map(|node| ZoneKind::ALL.map(|kind| ZoneId::new(NodeId(node), kind)));
    ids.map(|id| (id, source.zone(id))).filter(|(_, zone)| zone.present.0 > 0)
}

fn orders(source: &dyn ReportSource) -> impl Iterator<Item = Order> + use<> {
    (0..=source.geometry().max_order().0).map(Order)
}
