//! Metrics: what is written of fixed numbers, what holds of every exposition, and what a yard counts.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::fixture::{Fixture, run_on};
use frameyard::compaction::CompactRequest;
use frameyard::locks::{HistogramCounts, LockUse};
use frameyard::owners::Owners;
use frameyard::platform::{Contention, LockError, LockId, Probe};
use frameyard::policy::ZonePolicy;
use frameyard::stats::{CounterScope, MechanismCounts, PcpStatistics, RegionCounts, ZoneLockTelemetry};
use frameyard::units::ZoneKind;
use frameyard::{CpuId, Gfp, NodeId, Order, PageCount, Pfn, Platform, Yard, ZoneId};
use frameyard_formats::{
    Metric, MetricsRow, MetricsSource, RegionNumbers, Series, WholePageblocks, write_metrics, write_prometheus,
};

const NORMAL: ZoneId = ZoneId::new(NodeId(0), ZoneKind::Normal);

/// Numbers that never change.
struct Fixed(Vec<MetricsRow>);

impl MetricsSource for Fixed {
    fn policy(&self) -> ZonePolicy {
        ZonePolicy::Bits
    }

    fn for_each_row(&self, visit: &mut dyn FnMut(&MetricsRow) -> fmt::Result) -> fmt::Result {
        self.0.iter().try_for_each(visit)
    }
}

fn histogram(mut counts: HistogramCounts, values: &[u64]) -> HistogramCounts {
    values.iter().for_each(|value| counts.record(*value));
    counts
}

fn fixed() -> Fixed {
    // Of the mechanisms, only the one that no build leaves out.
    let bits = [("bits_pages", 640), ("bits_supplied", 30), ("bits_collected", 10)];
    let counts = bits.iter().fold(MechanismCounts::default(), |counts, (name, value)| counts.with(name, *value));
    let direct = MetricsRow {
        zone: ZoneId::new(NodeId(1), ZoneKind::Normal),
        cpu: None,
        lock: ZoneLockTelemetry::default(),
        mechanisms: counts,
        lists: None,
        bad_pages: Some(2),
        whole: Some(WholePageblocks { stock: Some(5632), moved: 300, discarded: 40 }),
        regions: Some(RegionNumbers {
            now: Some([14, 2]),
            counts: RegionCounts { tainted: 5, cleaned: 3, moved: 700 },
        }),
    };
    let lock = ZoneLockTelemetry {
        uses: LockUse { acquisitions: 40, contended: 2, wait_ns: 1_000_000_150, hold_ns: 700 },
        pages_moved: 630,
        pages_timed: 126,
        wait_ns: histogram(HistogramCounts::of_times(), &[150, 1_000_000_000]),
        hold_ns: histogram(HistogramCounts::of_times(), &[100, 600]),
        pages: histogram(HistogramCounts::of_pages(), &[63, 63]),
    };
    let lists = PcpStatistics { pages: PageCount(77), refills: 6, drains: 4, ..PcpStatistics::default() };
    let mechanisms = MechanismCounts::default();
    let of_cpu = MetricsRow {
        cpu: Some(CpuId(0)),
        lists: Some(lists),
        mechanisms,
        bad_pages: None,
        whole: None,
        regions: None,
        ..direct
    };
    let idle = MetricsRow { cpu: Some(CpuId(1)), lists: Some(PcpStatistics::default()), ..of_cpu };
    Fixed(vec![direct, MetricsRow { lock, ..of_cpu }, idle])
}

fn text(source: &dyn MetricsSource) -> String {
    let mut text = String::new();
    write_metrics(source, &mut text).unwrap();
    text
}

fn exposition(source: &dyn MetricsSource) -> String {
    let mut text = String::new();
    write_prometheus(source, Series::All, &mut text).unwrap();
    text
}

/// Compares with a file of the tests, line by line first.
fn assert_snapshot(written: &str, expected: &str) {
    for (number, (ours, kept)) in written.lines().zip(expected.lines()).enumerate() {
        assert_eq!(ours, kept, "line {}", number + 1);
    }
    assert_eq!(written, expected);
}

#[test]
fn writes_one_name_and_value_per_line() {
    assert_snapshot(&text(&fixed()), include_str!("metrics/text.txt"));
}

#[test]
fn writes_the_prometheus_format() {
    assert_snapshot(&exposition(&fixed()), include_str!("metrics/prometheus.txt"));
}

/// What `promtool check metrics` and the format demand, of any exposition. How many series there are.
fn check_exposition(text: &str) -> usize {
    assert!(text.ends_with('\n') && !text.contains("\n\n"));
    let mut types: HashMap<&str, &str> = HashMap::new();
    let mut helped = HashSet::new();
    let mut series = HashMap::new();
    let mut family = "";
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            let (name, help) = rest.split_once(' ').unwrap();
            assert!(helped.insert(name) && help.len() > 5, "{line}");
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').unwrap();
            assert!(types.insert(name, kind).is_none() && helped.contains(name), "{line}");
            assert_eq!(kind == "counter", name.ends_with("_total"), "{line}");
            family = name;
        } else {
            let (id, value) = line.rsplit_once(' ').unwrap();
            let (name, labels) = id.strip_suffix('}').unwrap().split_once('{').unwrap();
            assert!(name.chars().all(|of| of.is_ascii_lowercase() || of == '_'), "{line}");
            // All series of a family stand together behind its type.
            let base = match types[family] {
                "histogram" => ["_bucket", "_sum", "_count"].iter().find_map(|end| name.strip_suffix(end)).unwrap(),
                _ => name,
            };
            assert_eq!(base, family, "{line}");
            for label in labels.split(',') {
                let (key, value) = label.split_once('=').unwrap();
                assert!(["node", "zone", "cpu", "type", "policy", "le"].contains(&key), "{line}");
                assert!(value.len() > 2 && value.starts_with('"') && value.ends_with('"'), "{line}");
            }
            let value: f64 = value.parse().unwrap();
            assert!(types[family] == "gauge" || value >= 0.0, "{line}");
            assert!(series.insert(id.to_owned(), value).is_none(), "twice: {line}");
        }
    }
    check_histograms(text, &series);
    series.len()
}

/// Buckets rise in bound and in count, and the last holds what is counted.
fn check_histograms(text: &str, series: &HashMap<String, f64>) {
    let mut buckets: HashMap<String, Vec<(f64, f64)>> = HashMap::new();
    for line in text.lines().filter(|line| line.contains(",le=\"")) {
        let (id, count) = line.rsplit_once(' ').unwrap();
        let (own, bound) = id.split_once(",le=\"").unwrap();
        let bound: f64 = bound.trim_end_matches("\"}").parse().unwrap();
        buckets.entry(own.to_owned()).or_default().push((bound, count.parse().unwrap()));
    }
    for (own, buckets) in buckets {
        assert!(buckets.is_sorted_by(|a, b| a.0 < b.0 && a.1 <= b.1), "{own}: {buckets:?}");
        let (bound, count) = *buckets.last().unwrap();
        assert!(bound.is_infinite(), "{own}");
        let of = |end: &str| series[&format!("{}}}", own.replace("_bucket{", &format!("{end}{{")))];
        assert_eq!(of("_count"), count, "{own}");
        // No value is larger than the bound of its bucket, or not larger than that of the bucket before.
        let mut below = (0.0, 0.0);
        let (mut least, mut most) = (0.0, 0.0);
        for (bound, count) in &buckets {
            least += (count - below.1) * below.0;
            most += if *count > below.1 { (count - below.1) * bound } else { 0.0 };
            below = (*bound, *count);
        }
        assert!((least..=most).contains(&of("_sum")), "{own}: {least} {} {most}", of("_sum"));
    }
}

#[test]
fn exposition_of_fixed_numbers_is_valid() {
    assert!(check_exposition(&exposition(&fixed())) > 3 * 6 + 3 + 2 * 27);
}

/// A clock that rises by 10 ns at each look, while locks are timed; one CPU.
#[derive(Default)]
struct Timed {
    clock: AtomicU64,
    on: AtomicBool,
    /// Whether the platform reports each acquisition as contended.
    contended: AtomicBool,
}

impl Platform for Timed {
    type Guard = ();

    #[inline(always)]
    fn probe(&self) -> &impl Probe {
        self
    }

    fn guard(&self) {}

    fn current_cpu(&self) -> CpuId {
        CpuId(1)
    }

    fn spin(&self, _round: u32) {}

    fn frame_bytes(&self, _pfn: Pfn) -> Option<NonNull<u8>> {
        None
    }

    fn lock(&self, id: LockId, word: &frameyard::sync::AtomicU32) -> Result<Contention, LockError> {
        assert_eq!(self.try_lock(id, word), Contention::Free);
        Ok(if self.contended.load(Ordering::Relaxed) { Contention::Contended } else { Contention::Free })
    }
}

impl Probe for Timed {
    fn lock_clock_ns(&self) -> Option<u64> {
        self.on.load(Ordering::Relaxed).then(|| self.clock.fetch_add(10, Ordering::Relaxed))
    }
}

/// A further view of a yard, with a clock. It must not outlive the fixture.
fn timed(yard: &Fixture) -> Yard<Timed> {
    // SAFETY: both regions are the yard's and stay mapped as long as the fixture lives.
    unsafe { Yard::attach(yard.map.raw(), yard.control.raw(), Timed::default()) }.unwrap()
}

fn churn(yard: &Yard<Timed>, count: usize) {
    let held: Vec<Pfn> = (0..count).map(|_| yard.alloc(Order::ZERO, Gfp::HIGHUSER_MOVABLE).unwrap()).collect();
    held.into_iter().for_each(|pfn| yard.free(pfn, Order::ZERO).unwrap());
}

#[test]
fn counts_belong_to_the_cpu_that_refills() {
    let fixture = Fixture::small_under(ZonePolicy::Vanilla, 2, 32 << 10);
    run_on(0);
    let yard = timed(&fixture);
    let direct = yard.zone(NORMAL).lock_telemetry_of(None).unwrap();
    churn(&yard, 500);
    let of_cpu = |cpu| yard.zone(NORMAL).lock_telemetry_of(Some(CpuId(cpu))).unwrap();
    assert_eq!(of_cpu(0), ZoneLockTelemetry::default());
    assert_eq!(yard.zone(NORMAL).lock_telemetry_of(None), Some(direct), "nothing went past the lists");
    let traffic = yard.zone(NORMAL).pcp(CpuId(1)).unwrap();
    assert_eq!(of_cpu(1).uses.acquisitions, traffic.refills + traffic.drains);
    assert!(of_cpu(1).pages_moved >= 500);
    let block = yard.alloc(Order(7), Gfp::KERNEL).unwrap();
    yard.free(block, Order(7)).unwrap();
    let later = yard.zone(NORMAL).lock_telemetry_of(None).unwrap().since(&direct);
    assert_eq!((later.uses.acquisitions, later.pages_moved), (2, 256));
    let whole = yard.zone(NORMAL).lock_telemetry();
    assert_eq!(whole.uses, yard.zone(NORMAL).statistics().lock);
    assert_eq!(whole.pages_moved, yard.zone(NORMAL).statistics().pages_moved);
    assert_eq!(yard.zone(NORMAL).lock_telemetry_of(Some(CpuId(2))), None);
    assert_eq!(yard.zone(NORMAL).mechanism_counts_of(Some(CpuId(2))), None);
}

#[test]
fn histograms_count_only_while_locks_are_timed() {
    let fixture = Fixture::small_under(ZonePolicy::Vanilla, 2, 32 << 10);
    run_on(0);
    let yard = timed(&fixture);
    churn(&yard, 500);
    yard.drain_all();
    let untimed = yard.zone(NORMAL).lock_telemetry();
    assert!(untimed.uses.acquisitions > 0);
    assert_eq!((untimed.hold_ns.count(), untimed.pages.count(), untimed.wait_ns.count()), (0, 0, 0));
    yard.platform().on.store(true, Ordering::Relaxed);
    churn(&yard, 500);
    yard.drain_all();
    let free = yard.zone(NORMAL).lock_telemetry().since(&untimed);
    // The clock is read after the lock is acquired and before it is released: 10 ns.
    assert_eq!(free.hold_ns.count(), free.uses.acquisitions);
    assert_eq!(free.hold_ns.buckets().next(), Some((Some(32), free.uses.acquisitions)));
    assert_eq!(free.uses.hold_ns, 10 * free.uses.acquisitions);
    assert_eq!((free.wait_ns.count(), free.pages_timed), (0, free.pages_moved));
    yard.platform().contended.store(true, Ordering::Relaxed);
    churn(&yard, 500);
    yard.drain_all();
    let all = yard.zone(NORMAL).lock_telemetry().since(&untimed);
    assert_eq!(all.wait_ns.count(), all.uses.contended);
    assert!(all.uses.contended > 0 && all.uses.wait_ns == 10 * all.uses.contended);
    yard.platform().on.store(false, Ordering::Relaxed);
    churn(&yard, 500);
    let later = yard.zone(NORMAL).lock_telemetry().since(&untimed);
    assert_eq!((later.hold_ns, later.pages), (all.hold_ns, all.pages));
}

#[test]
fn exposition_of_a_yard_is_valid_and_sums_to_its_statistics() {
    let fixture = Fixture::small_under(ZonePolicy::Vanilla, 2, 32 << 10);
    run_on(0);
    let yard = timed(&fixture);
    yard.platform().on.store(true, Ordering::Relaxed);
    yard.platform().contended.store(true, Ordering::Relaxed);
    churn(&yard, 2000);
    let text = exposition(&yard);
    check_exposition(&text);
    let sum = |name: &str| -> u64 {
        let lines = text.lines().filter(|line| line.starts_with(&format!("{name}{{")));
        lines.map(|line| line.rsplit_once(' ').unwrap().1.parse::<u64>().unwrap()).sum()
    };
    let zone = yard.zone(NORMAL).statistics();
    assert_eq!(sum("frameyard_zone_lock_acquisitions_total"), zone.lock.acquisitions);
    assert_eq!(sum("frameyard_zone_lock_pages_moved_total"), zone.pages_moved);
    assert_eq!(sum("frameyard_pcp_pages"), zone.per_cpu.0);
    assert_eq!(sum("frameyard_pcp_refills_total"), zone.refills);
    assert!(text.contains("zone=\"Normal\",cpu=\"1\",policy=\"vanilla\"} "));
    yard.set_policy(ZonePolicy::LockPerPage).unwrap();
    assert!(exposition(&yard).contains("policy=\"lock-per-page\"} "));
}

/// The values of metrics in a yard, all rows together.
fn sums<P: Platform>(yard: &Yard<P>) -> HashMap<&'static str, u64> {
    let mut sums = HashMap::new();
    let add = &mut |row: &MetricsRow| {
        for metric in Metric::all() {
            *sums.entry(metric.info.name).or_insert(0) += metric.value(row).unwrap_or(0);
        }
        Ok(())
    };
    yard.for_each_row(add).unwrap();
    sums
}

/// Takes many frames on one CPU, frees most of them on another, and has the zone compacted.
fn transfer(policy: ZonePolicy) -> HashMap<&'static str, u64> {
    let yard = Fixture::small_under(policy, 2, 32 << 10);
    run_on(0);
    let mut held: Vec<Pfn> = (0..8192).map(|_| yard.alloc(Order::ZERO, Gfp::HIGHUSER_MOVABLE).unwrap()).collect();
    let own = held.split_off(6144);
    own.into_iter().for_each(|pfn| yard.free(pfn, Order::ZERO).unwrap());
    run_on(1);
    held.into_iter().for_each(|pfn| yard.free(pfn, Order::ZERO).unwrap());
    let held: Vec<Pfn> = (0..2048).map(|_| yard.alloc(Order::ZERO, Gfp::HIGHUSER_MOVABLE).unwrap()).collect();
    let before = sums(&yard);
    check_exposition(&exposition(yard.yard()));
    held.into_iter().for_each(|pfn| yard.free(pfn, Order::ZERO).unwrap());
    yard.compaction().zone(NORMAL, CompactRequest::WHOLE_ZONE, &Owners::NONE);
    let mut after = sums(&yard);
    // Of what rises and falls, both looks are wanted.
    for (name, value) in before {
        after.entry(name).and_modify(|now| *now = (*now).max(value));
    }
    after
}

/// The counters of mechanisms that moved.
fn moved(policy: ZonePolicy) -> HashSet<&'static str> {
    let counted = MechanismCounts::INFOS.iter().map(|info| info.name);
    let sums = transfer(policy);
    counted.filter(|name| sums[name] > 0).collect()
}

#[test]
fn page_wise_policies_move_no_counter_of_a_mechanism() {
    let idle = moved(ZonePolicy::Vanilla);
    assert!(idle.iter().all(|name| name.ends_with("_max")), "capacities: {idle:?}");
    for policy in [ZonePolicy::Vanilla416, ZonePolicy::Prefetch, ZonePolicy::BigPcp] {
        assert_eq!(moved(policy), idle, "{policy}");
    }
}

#[test]
fn bits_count_free_frames_and_those_that_compaction_collects() {
    let sums = transfer(ZonePolicy::Bits);
    assert!(sums["bits_pages"] > 28 << 10 && sums["bits_collected"] > 28 << 10, "{sums:?}");
}

#[test]
fn families_are_adjacent_and_of_one_kind() {
    let mut seen = HashSet::new();
    let all: Vec<_> = Metric::all().map(|metric| *metric.info).collect();
    for together in all.chunk_by(|a, b| a.family == b.family) {
        let first = together[0];
        assert!(seen.insert(first.family), "{}", first.family);
        for info in together {
            assert_eq!((info.kind, info.scope, info.help), (first.kind, first.scope, first.help), "{}", first.family);
            let named = info.migrate_type.map(|of| format!("{}_{of}", info.family));
            assert_eq!(info.name, named.as_deref().unwrap_or(info.family));
        }
    }
}

#[test]
fn zone_metrics_have_no_cpu_label() {
    let text = exposition(&fixed());
    for info in Metric::all().map(|metric| metric.info) {
        let starts = ["{", "_total{"].map(|end| format!("frameyard_{}{end}", info.family));
        for series in text.lines().filter(|line| starts.iter().any(|start| line.starts_with(start))) {
            assert_eq!(series.contains("cpu=\""), info.scope == CounterScope::Cpu, "{series}");
        }
    }
}

#[test]
fn metric_names_are_unique() {
    let names: HashSet<_> = Metric::all().map(|metric| metric.info.name).collect();
    assert_eq!((names.len(), Metric::all().count()), (Metric::COUNT, Metric::COUNT));
    assert!(Metric::all().all(|metric| metric.info.help.ends_with('.') && !metric.info.help.contains('\n')));
}
