//! Values of options: enumerations, and small languages such as `25%` or `fraction:8`.

use std::fmt;
use std::num::{NonZeroU8, NonZeroU32};
use std::str::FromStr;
use std::time::Duration;

use clap::ValueEnum;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use frameyard::ByteSize;
use frameyard::policy::ZonePolicy;
use frameyard::units::ParseSizeError;
use frameyard_vm::LruPolicy;
use frameyard_workloads::TaskMode;
use frameyard_workloads::alloc::AccessKind;

/// What `show` prints: a file of /proc, or the metrics of the yard.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum ShownFile {
    /// Free blocks of each order, by zone
    Buddyinfo,
    /// Free blocks by migration type, and pageblocks of each type
    Pagetypeinfo,
    /// Zones: page counts, watermarks, reserves, per-CPU lists
    Zoneinfo,
    /// Counters of the whole machine
    Vmstat,
    /// Zone locks and transfers, by zone and CPU
    Metrics,
}

/// The format of a file: a file of /proc as of a kernel version, metrics as text or for Prometheus.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum ShownFormat {
    /// A file of /proc, as in Linux 6.1
    #[value(name = "6.1")]
    V6_1,
    /// A file of /proc, as in Linux 6.12, the default there
    #[value(name = "6.12")]
    V6_12,
    /// Metrics, as lines of a name and a number, the default there
    Text,
    /// Metrics, in the text format of Prometheus
    Prometheus,
}

/// Whether the huge-page daemon has raised the minimum of free memory.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum HugePageMinimum {
    /// The minimum is what the kernel computes from the size of memory
    #[default]
    KernelDefault,
    /// The huge-page daemon has raised it to what it recommends
    Recommended,
}

impl From<HugePageMinimum> for frameyard::watermarks::HugePageMinimum {
    fn from(minimum: HugePageMinimum) -> Self {
        match minimum {
            HugePageMinimum::KernelDefault => Self::KernelDefault,
            HugePageMinimum::Recommended => Self::Recommended,
        }
    }
}

/// A workload of `show --after`.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum Workload {
    /// Blocks of mixed orders and types are allocated and freed at random, and some stay allocated
    Churn,
}

/// An amount of memory: a size, or a share of what there is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Amount {
    /// A size.
    Size(ByteSize),
    /// A percentage, at most 100.
    Percent(u8),
}

impl Amount {
    /// The amount in bytes, of a total.
    #[must_use]
    pub fn of(self, total: ByteSize) -> ByteSize {
        match self {
            Self::Size(size) => size,
            Self::Percent(percent) => ByteSize((u128::from(total.0) * u128::from(percent) / 100) as u64),
        }
    }
}

/// Why a text is not an amount of memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ParseAmountError {
    /// Not a whole number from 0 to 100 before the `%`.
    Percent,
    /// Not a size either.
    Size(ParseSizeError),
}

impl fmt::Display for ParseAmountError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Percent => f.write_str("not a percentage: write a whole number from 0 to 100 and %, as in 25%"),
            Self::Size(error) => write!(f, "{error}, or a percentage, as in 25%"),
        }
    }
}

impl std::error::Error for ParseAmountError {}

impl FromStr for Amount {
    type Err = ParseAmountError;

    fn from_str(text: &str) -> Result<Self, ParseAmountError> {
        match text.strip_suffix('%') {
            Some(percent) => match percent.parse() {
                Ok(percent @ 0..=100) => Ok(Self::Percent(percent)),
                _ => Err(ParseAmountError::Percent),
            },
            None => text.parse().map(Self::Size).map_err(ParseAmountError::Size),
        }
    }
}

/// Numbers of tasks: one number or a range.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TaskRange {
    first: NonZeroU32,
    last: NonZeroU32,
}

/// The text is not a number of tasks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ParseTasksError;

impl fmt::Display for ParseTasksError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("write whole numbers from 1 on, as in 4 or 1..40")
    }
}

impl std::error::Error for ParseTasksError {}

impl TaskRange {
    /// All numbers of the range.
    pub fn numbers(self) -> impl Iterator<Item = NonZeroU32> {
        (self.first.get()..=self.last.get()).filter_map(NonZeroU32::new)
    }

    /// The highest of them.
    #[must_use]
    pub fn last(self) -> NonZeroU32 {
        self.last
    }
}

impl FromStr for TaskRange {
    type Err = ParseTasksError;

    fn from_str(text: &str) -> Result<Self, ParseTasksError> {
        let number = |text: &str| text.parse::<NonZeroU32>().map_err(|_| ParseTasksError);
        let (first, last) = match text.split_once("..") {
            Some((first, last)) => (number(first)?, number(last)?),
            None => (number(text)?, number(text)?),
        };
        if first <= last { Ok(Self { first, last }) } else { Err(ParseTasksError) }
    }
}

/// Reads one of `all` by its name.
pub(super) fn named_with_help<T: Copy + Send + Sync + 'static, const N: usize>(
    all: [T; N],
    name: fn(T) -> &'static str,
    help: fn(T) -> &'static str,
) -> impl TypedValueParser<Value = T> {
    PossibleValuesParser::new(all.map(|value| PossibleValue::new(name(value)).help(help(value))))
        .map(move |text| all.into_iter().find(|value| name(*value) == text).expect("clap has checked the name"))
}

/// Reads an access pattern.
pub(super) fn access_kind() -> impl TypedValueParser<Value = AccessKind> {
    named_with_help(AccessKind::ALL, AccessKind::name, |kind| match kind {
        AccessKind::Repeat => "Allocates and frees one block a step, after half the memory was allocated",
        AccessKind::Bulk => "Allocates a task's share of half the memory, then frees it",
        AccessKind::Random => "As bulk, freed in an order shuffled across all tasks",
    })
}

/// Reads what the tasks of a workload are.
pub(super) fn task_mode() -> impl TypedValueParser<Value = TaskMode> {
    named_with_help(TaskMode::ALL, TaskMode::name, |mode| match mode {
        TaskMode::Threads => "Threads of one process",
        TaskMode::Processes => "Processes that share the yard",
    })
}

/// A size that is not zero.
pub(super) fn positive_size(text: &str) -> Result<ByteSize, String> {
    match text.parse() {
        Ok(ByteSize(0)) => Err("must be more than nothing, as in 64M or 8G".to_owned()),
        Ok(size) => Ok(size),
        Err(error) => Err(ParseSizeError::to_string(&error)),
    }
}

/// A number of tasks or runs.
pub(super) fn positive_number(text: &str) -> Result<NonZeroU32, String> {
    text.parse().map_err(|_| "write a whole number from 1 to 4294967295".to_owned())
}

/// A number that may be 0.
pub(super) fn whole_number(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| format!("write a whole number from 0 to {}", u64::MAX))
}

/// A time, as in `500ms` or `2s`.
pub(super) fn duration(text: &str) -> Result<Duration, String> {
    let units = [("ms", 1_000_000), ("us", 1_000), ("ns", 1), ("s", 1_000_000_000)];
    let read = |(unit, nanoseconds): (&str, u64)| {
        text.strip_suffix(unit)?.parse::<u64>().ok()?.checked_mul(nanoseconds).map(Duration::from_nanos)
    };
    units.into_iter().find_map(read).ok_or_else(|| "write digits and s, ms, us or ns, as in 500ms or 2s".to_owned())
}

/// A time that is not zero.
pub(super) fn positive_duration(text: &str) -> Result<Duration, String> {
    match duration(text)? {
        Duration::ZERO => Err("must be more than nothing, as in 500ms or 2s".to_owned()),
        duration => Ok(duration),
    }
}

/// A percentage up to a half.
pub(super) fn percentage(text: &str) -> Result<u8, String> {
    let number = text.strip_suffix('%').and_then(|number| number.parse().ok());
    number.filter(|percent| *percent <= 50).ok_or_else(|| "write a percentage from 0% to 50%".to_owned())
}

/// An order of blocks.
pub(super) fn order(text: &str) -> Result<frameyard::Order, String> {
    let highest = frameyard::units::ORDER_SLOTS - 1;
    match text.parse() {
        Ok(order) if usize::from(order) <= highest => Ok(frameyard::Order(order)),
        _ => Err(format!("write an order from 0 to {highest}")),
    }
}

/// The order of a pageblock, which is at least 1.
pub(super) fn pageblock_order(text: &str) -> Result<frameyard::Order, String> {
    text.parse::<NonZeroU8>().map_err(|_| "a pageblock has at least order 1".to_owned()).and_then(|_| order(text))
}

/// Reads a policy of zones.
pub(super) fn zone_policy() -> impl TypedValueParser<Value = ZonePolicy> {
    let names = ZonePolicy::ALL.iter().map(|policy| policy.name());
    PossibleValuesParser::new(names).try_map(|name| name.parse::<ZonePolicy>())
}

/// Reads a policy of LRU lists.
pub(super) fn lru_policy() -> impl TypedValueParser<Value = LruPolicy> {
    let names = LruPolicy::ALL.iter().map(|policy| policy.name());
    PossibleValuesParser::new(names).try_map(|name| name.parse::<LruPolicy>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_sizes_or_percentages() {
        assert_eq!("2G".parse(), Ok(Amount::Size(ByteSize::gib(2))));
        assert_eq!("25%".parse(), Ok(Amount::Percent(25)));
        assert_eq!("101%".parse::<Amount>(), Err(ParseAmountError::Percent));
        assert_eq!("-1%".parse::<Amount>(), Err(ParseAmountError::Percent));
        assert_eq!("lots".parse::<Amount>(), Err(ParseAmountError::Size(ParseSizeError::Malformed)));
    }

    #[test]
    fn times_are_digits_and_a_unit() {
        assert_eq!(duration("2s"), Ok(Duration::from_secs(2)));
        assert_eq!(duration("15us"), Ok(Duration::from_micros(15)));
        assert_eq!(positive_duration("100ms"), Ok(Duration::from_millis(100)));
        assert!(positive_duration("0ms").unwrap_err().contains("more than nothing"));
        for text in ["", "5", "s", "-1s", "1.5s", "20000000000s"] {
            assert!(duration(text).unwrap_err().contains("as in 500ms"), "{text}");
        }
    }

    #[test]
    fn a_percentage_of_the_largest_total_does_not_overflow() {
        assert_eq!(Amount::Percent(100).of(ByteSize(u64::MAX)), ByteSize(u64::MAX));
        assert_eq!(Amount::Percent(25).of(ByteSize::gib(8)), ByteSize::gib(2));
        assert_eq!(Amount::Size(ByteSize(5)).of(ByteSize::gib(8)), ByteSize(5));
    }
}
