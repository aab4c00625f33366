//! Named counters. Each mechanism declares its own with [`counters`]; output formats and programs iterate over all of
//! them by name.

use crate::units::MigrateType;

/// Whether the value of a counter can fall.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum CounterKind {
    /// Only rises.
    Counter,
    /// Rises and falls.
    Gauge,
}

/// What a counter is kept for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum CounterScope {
    /// Each CPU in each zone, and transfers that bypassed the per-CPU lists.
    Cpu,
    /// Each zone.
    Zone,
}

/// The description of a counter.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct CounterInfo {
    /// Its name in text and JSON.
    pub name: &'static str,
    /// The name without the migration type, if there is one such counter for each type. Members of a family are
    /// adjacent.
    pub family: &'static str,
    /// The migration type within the family; `other` is any type without per-CPU lists.
    pub migrate_type: Option<&'static str>,
    /// Whether it can fall.
    pub kind: CounterKind,
    /// What it is kept for.
    pub scope: CounterScope,
    /// A one-line description, the same for all members of a family.
    pub help: &'static str,
}

/// The values of all counters of the transfer mechanisms, possibly stale: those of one CPU in one zone, or a sum.
/// Mechanisms that the policy does not use count nothing.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct MechanismCounts(pub(super) [Option<u64>; Self::COUNT]);

impl Default for MechanismCounts {
    fn default() -> Self {
        Self([None; Self::COUNT])
    }
}

impl MechanismCounts {
    /// All counters with their values; `None` where a counter is not kept for this zone and CPU.
    pub fn iter(&self) -> impl Iterator<Item = (&'static CounterInfo, Option<u64>)> {
        Self::INFOS.iter().zip(self.0)
    }

    /// The value of the counter with that number in [`INFOS`](Self::INFOS).
    #[must_use]
    pub fn at(&self, at: usize) -> Option<u64> {
        self.0.get(at).copied().flatten()
    }

    /// The value of a counter; 0 if it is not kept for this zone and CPU, or if there is no counter of that name.
    #[must_use]
    pub fn get(&self, name: &str) -> u64 {
        self.iter().find(|(info, _)| info.name == name).and_then(|(_, value)| value).unwrap_or(0)
    }

    /// The same values, except that one counter has the given value.
    #[must_use]
    pub fn with(mut self, name: &str, value: u64) -> Self {
        let at = self.iter().position(|(info, _)| info.name == name);
        if let Some(at) = at {
            self.0[at] = Some(value);
        }
        self
    }

    /// The sum of two counts.
    #[must_use]
    pub fn and(mut self, other: &Self) -> Self {
        for (sum, value) in self.0.iter_mut().zip(other.0) {
            *sum = sum.zip(value).map(|(sum, value)| sum.wrapping_add(value)).or(*sum).or(value);
        }
        self
    }
}

/// Declares the counters of a mechanism and the function `count` that reads them for a CPU of a zone; without a CPU, for the zone
/// and for transfers that bypassed the per-CPU lists.
///
/// `let of = source;` begins a group of counters that exist if the source does. A counter may name a family and the type in it.
macro_rules! counters {
    (|$view:ident, $counts:ident, $cpu:ident| $(
        let $of:ident = $source:expr;
        $($name:literal $([$family:literal $label:literal])? $kind:ident of $scope:ident $help:literal = $value:expr;)*
    )*) => {
        /// The counters of this mechanism.
        pub(in crate::store) const COUNTERS: &[$crate::store::CounterInfo] = &[$($(
            $crate::store::CounterInfo {
                name: $name,
                family: [$name $(, $family)?][[$name $(, $family)?].len() - 1],
                migrate_type: [None $(, Some($label))?][[$name $(, $label)?].len() - 1],
                kind: $crate::store::CounterKind::$kind,
                scope: $crate::store::CounterScope::$scope,
                help: $help,
            },
        )*)*];

        /// The values of [`COUNTERS`].
        pub(in crate::store) fn count<P: $crate::platform::Platform>(
            $view: $crate::zone::view::ZoneView<'_, P>,
            $counts: &$crate::store::Counts,
            $cpu: Option<$crate::units::CpuId>,
        ) -> [Option<u64>; COUNTERS.len()] {
            let _ = ($view, $counts, $cpu);
            [$($($source.map(|$of| $value),)*)*]
        }
    };
}

pub(super) use counters;

/// The number of counters in some lists.
pub(super) const fn count_all(lists: &[&[CounterInfo]]) -> usize {
    let (mut list, mut count) = (0, 0);
    while list < lists.len() {
        count += lists[list].len();
        list += 1;
    }
    count
}

/// The counters of some lists, one list behind the other.
pub(super) const fn join<const N: usize>(lists: &[&[CounterInfo]]) -> [CounterInfo; N] {
    let mut all = [lists[0][0]; N];
    let (mut list, mut at, mut end) = (0, 0, 0);
    while end < N {
        if at < lists[list].len() {
            all[end] = lists[list][at];
            (at, end) = (at + 1, end + 1);
        } else {
            (list, at) = (list + 1, 0);
        }
    }
    all
}

/// A counter's value.
pub(super) fn read(counter: &crate::sync::AtomicU64) -> u64 {
    counter.load(crate::sync::Ordering::Relaxed)
}

/// The place of a type in counters that are kept by type; the last is for types without per-CPU lists.
pub(super) fn by_type(migrate_type: MigrateType) -> usize {
    migrate_type.index().min(MigrateType::PER_CPU)
}
