//! The metrics: description, and place in a row.

use frameyard::stats::{CounterInfo, CounterKind, CounterScope, MechanismCounts};

use super::MetricsRow;

/// A value that is counted per zone, and for most metrics per CPU as well.
#[derive(Clone, Copy, Debug)]
pub struct Metric {
    /// The name and the description. The Prometheus name is `frameyard_` and the family, followed by `_total` for a
    /// counter.
    pub info: &'static CounterInfo,
    place: Place,
}

/// Reads a value from a row; `None` if the row has none.
type Value = fn(&MetricsRow) -> Option<u64>;

#[derive(Clone, Copy, Debug)]
enum Place {
    Row(Value),
    /// The number of the counter among those of the mechanisms.
    Mechanism(usize),
}

const fn own(kind: CounterKind, name: &'static str, help: &'static str) -> CounterInfo {
    CounterInfo { name, family: name, migrate_type: None, kind, scope: CounterScope::Cpu, help }
}

const fn of_zone(kind: CounterKind, name: &'static str, help: &'static str) -> CounterInfo {
    CounterInfo { scope: CounterScope::Zone, ..own(kind, name, help) }
}

/// How many metrics do not depend on the policy.
const OWN_COUNT: usize = 15;

/// The metrics that do not depend on the policy.
static OWN: [(CounterInfo, Value); OWN_COUNT] = {
    use CounterKind::{Counter, Gauge};
    [
        (own(Counter, "zone_lock_acquisitions", "Acquisitions of the zone lock."), |row| {
            Some(row.lock.uses.acquisitions)
        }),
        (own(Counter, "zone_lock_contended", "Acquisitions of the zone lock that had to wait."), |row| {
            Some(row.lock.uses.contended)
        }),
        (own(Counter, "zone_lock_pages_moved", "Page frames moved under the zone lock, in either direction."), |row| {
            Some(row.lock.pages_moved)
        }),
        (own(Gauge, "pcp_pages", "Page frames on per-CPU lists."), |row| row.lists.map(|lists| lists.pages.0)),
        (own(Counter, "pcp_refills", "Batches that per-CPU lists fetched from the zone."), |row| {
            row.lists.map(|lists| lists.refills)
        }),
        (own(Counter, "pcp_drains", "Batches that per-CPU lists returned to the zone."), |row| {
            row.lists.map(|lists| lists.drains)
        }),
        (of_zone(Counter, "bad_pages", "Page frames out of use because a page structure was bad."), |row| {
            row.bad_pages
        }),
        (of_zone(Gauge, "stock_pages", "Free page frames in whole pageblocks, while the zone keeps a stock."), |row| {
            row.whole?.stock
        }),
        (of_zone(Counter, "compact_daemon_migrated", "Page frames that the background compactor moved."), |row| {
            row.whole.map(|whole| whole.moved)
        }),
        (of_zone(Counter, "compact_discarded", "Page frames whose contents compaction dropped."), |row| {
            row.whole.map(|whole| whole.discarded)
        }),
        (of_zone(Gauge, "clean_regions", "Clean regions of 1 GiB, while the zone keeps regions clean."), |row| {
            Some(row.regions?.now?[0])
        }),
        (of_zone(Gauge, "tainted_regions", "Tainted regions of 1 GiB, while the zone keeps regions clean."), |row| {
            Some(row.regions?.now?[1])
        }),
        (of_zone(Counter, "regions_tainted", "Regions of 1 GiB that became tainted."), |row| {
            Some(row.regions?.counts.tainted)
        }),
        (of_zone(Counter, "regions_cleaned", "Regions of 1 GiB that became clean again."), |row| {
            Some(row.regions?.counts.cleaned)
        }),
        (
            of_zone(Counter, "region_frames_moved", "Page frames moved in the background out of tainted regions."),
            |row| Some(row.regions?.counts.moved),
        ),
    ]
};

impl Metric {
    /// The number of metrics.
    pub const COUNT: usize = OWN_COUNT + MechanismCounts::COUNT;

    /// All metrics, in output order. The metrics of a family are adjacent.
    pub fn all() -> impl Iterator<Item = Self> {
        let own = OWN.iter().map(|(info, value)| Self { info, place: Place::Row(*value) });
        let counted = MechanismCounts::INFOS.iter().enumerate();
        own.chain(counted.map(|(at, info)| Self { info, place: Place::Mechanism(at) }))
    }

    /// The metric's value in a row; `None` if the row has none.
    #[must_use]
    pub fn value(&self, row: &MetricsRow) -> Option<u64> {
        match self.place {
            Place::Row(value) => value(row),
            Place::Mechanism(at) => row.mechanisms.at(at),
        }
    }
}
