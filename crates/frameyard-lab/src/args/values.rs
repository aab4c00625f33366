//! Values of options: enumerations, and small languages such as `25%` or `fraction:8`.

use std::fmt;
use std::num::{NonZeroU8, NonZeroU32};
use std::str::FromStr;
use std::time::Duration;

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use frameyard::boot::PageChecks;
use frameyard::devices::{MapLayout, MapPlacement};
use frameyard::policy::ZonePolicy;
use frameyard::units::ParseSizeError;
use frameyard::watermarks::{PcpSizing, PcpSizingError};
use frameyard::{ByteSize, CleanRegions, DefragMode};
use frameyard_host::DeviceAlignment;
use frameyard_vm::LruPolicy;
use frameyard_workloads::TaskMode;
use frameyard_workloads::alloc::AccessKind;
use frameyard_workloads::device_map::YardSharing;
use frameyard_workloads::frag::BlockOrders;

/// An amount of memory: a size, or a share of what there is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Amount {
    /// A size.
    Size(ByteSize),
    /// A percentage, at most 100.
    Percent(u8),
}

impl Amount {
    /// The amount in bytes, of a total.
    pub(crate) fn of(self, total: ByteSize) -> ByteSize {
        match self {
            Self::Size(size) => size,
            Self::Percent(percent) => ByteSize((u128::from(total.0) * u128::from(percent) / 100) as u64),
        }
    }
}

/// Why a text is not an amount of memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ParseAmountError {
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
pub(crate) struct TaskRange {
    first: NonZeroU32,
    last: NonZeroU32,
}

/// The text is not a number of tasks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ParseTasksError;

impl fmt::Display for ParseTasksError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("write whole numbers from 1 on, as in 4 or 1..40")
    }
}

impl std::error::Error for ParseTasksError {}

impl TaskRange {
    /// All numbers of the range.
    pub(crate) fn numbers(self) -> impl Iterator<Item = NonZeroU32> {
        (self.first.get()..=self.last.get()).filter_map(NonZeroU32::new)
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

/// Sizings of per-CPU lists: several for commands that compare them, else one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Sizings(Vec<PcpSizing>);

impl Sizings {
    /// The only one, or the first.
    pub(crate) fn first(&self) -> PcpSizing {
        self.0.first().copied().unwrap_or_default()
    }

    /// All of them.
    pub(crate) fn all(&self) -> &[PcpSizing] {
        &self.0
    }
}

/// Reads one sizing.
pub(crate) fn one_sizing(text: &str) -> Result<Sizings, PcpSizingError> {
    text.parse().map(|sizing| Sizings(vec![sizing]))
}

/// Reads sizings between commas.
pub(crate) fn sizings(text: &str) -> Result<Sizings, PcpSizingError> {
    text.split(',').map(str::parse).collect::<Result<_, _>>().map(Sizings)
}

/// A parser of names that lists them all in completions and refusals.
pub(crate) fn named<T>(names: impl IntoIterator<Item = &'static str>) -> impl TypedValueParser<Value = T>
where
    T: FromStr<Err: fmt::Display + std::error::Error + Send + Sync + 'static> + Clone + Send + Sync + 'static,
{
    PossibleValuesParser::new(names).try_map(|name| name.parse::<T>())
}

/// Reads a policy of zones.
pub(crate) fn zone_policy() -> impl TypedValueParser<Value = ZonePolicy> {
    named(ZonePolicy::ALL.iter().map(|policy| policy.name()))
}

/// Reads whether a yard keeps whole pageblocks in stock.
pub(crate) fn defrag_mode() -> impl TypedValueParser<Value = DefragMode> {
    named(DefragMode::ALL.iter().map(|mode| mode.name()))
}

/// Reads whether a yard keeps regions of 1 GiB clean.
pub(crate) fn clean_regions() -> impl TypedValueParser<Value = CleanRegions> {
    named(CleanRegions::ALL.iter().map(|mode| mode.name()))
}

/// Reads a policy of LRU lists.
pub(crate) fn lru_policy() -> impl TypedValueParser<Value = LruPolicy> {
    named(LruPolicy::ALL.iter().map(|policy| policy.name()))
}

/// Reads a layout of page structures.
pub(crate) fn map_layout() -> impl TypedValueParser<Value = MapLayout> {
    named(MapLayout::ALL.iter().map(|layout| layout.name()))
}

/// Reads when page structures are checked.
pub(crate) fn page_checks() -> impl TypedValueParser<Value = PageChecks> {
    named(PageChecks::ALL.iter().map(|checks| checks.name()))
}

/// Reads where page structures lie.
pub(crate) fn map_placement() -> impl TypedValueParser<Value = MapPlacement> {
    named(MapPlacement::ALL.iter().map(|placement| placement.name()))
}

/// Reads a size of device pages.
pub(crate) fn device_alignment(text: &str) -> Result<DeviceAlignment, String> {
    text.parse().map_err(|_| "write 4K, 2M or 1G".to_owned())
}

/// Reads one of `all` by its name.
pub(crate) fn named_with_help<T: Copy + Send + Sync + 'static, const N: usize>(
    all: [T; N],
    name: fn(T) -> &'static str,
    help: fn(T) -> &'static str,
) -> impl TypedValueParser<Value = T> {
    PossibleValuesParser::new(all.map(|value| PossibleValue::new(name(value)).help(help(value))))
        .map(move |text| all.into_iter().find(|value| name(*value) == text).expect("clap has checked the name"))
}

/// Reads which processes use a yard.
pub(crate) fn yard_sharing() -> impl TypedValueParser<Value = YardSharing> {
    named_with_help(YardSharing::ALL, YardSharing::name, |sharing| match sharing {
        YardSharing::Private => "One process: tails are the host's zero page",
        YardSharing::Shared => {
            "Several processes, in a memory file: tails of devices are one read-only window that is mapped many times, of pools holes"
        }
    })
}

/// Reads an access pattern.
pub(crate) fn access_kind() -> impl TypedValueParser<Value = AccessKind> {
    named_with_help(AccessKind::ALL, AccessKind::name, |kind| match kind {
        AccessKind::Repeat => {
            "Allocates and frees one block a step, after half of the zone was allocated that the task prefers"
        }
        AccessKind::Spill => {
            "As repeat, after all of that zone was allocated: another zone or node serves each request"
        }
        AccessKind::Bulk => "Allocates a task's share of half the memory, then frees it",
        AccessKind::Random => "As bulk, freed in an order shuffled across all tasks",
        AccessKind::Cold => "As bulk, each run on a yard just created",
        AccessKind::Warm => "As bulk, after the same without a drain in between",
    })
}

/// Reads the orders of the blocks of `frag`.
pub(crate) fn block_orders() -> impl TypedValueParser<Value = BlockOrders> {
    named_with_help(BlockOrders::ALL, BlockOrders::name, |orders| match orders {
        BlockOrders::Single => "Single frames",
        BlockOrders::Mixed => {
            "Orders 0 to 8, each with the same share of the bytes: half of the blocks are single frames"
        }
    })
}

/// Reads what the tasks of a workload are.
pub(crate) fn task_mode() -> impl TypedValueParser<Value = TaskMode> {
    named_with_help(TaskMode::ALL, TaskMode::name, |mode| match mode {
        TaskMode::Threads => "Threads of one process",
        TaskMode::Processes => "Processes that share the yard",
    })
}

/// A size that is not zero.
pub(crate) fn positive_size(text: &str) -> Result<ByteSize, String> {
    match text.parse() {
        Ok(ByteSize(0)) => Err("must be more than nothing, as in 64M or 8G".to_owned()),
        Ok(size) => Ok(size),
        Err(error) => Err(ParseSizeError::to_string(&error)),
    }
}

/// A number of tasks or runs.
pub(crate) fn positive_number(text: &str) -> Result<NonZeroU32, String> {
    text.parse().map_err(|_| "write a whole number from 1 to 4294967295".to_owned())
}

/// A number that may be 0.
pub(crate) fn whole_number(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| format!("write a whole number from 0 to {}", u64::MAX))
}

/// A time, as in `500ms` or `2s`.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let units = [("ms", 1_000_000), ("us", 1_000), ("ns", 1), ("s", 1_000_000_000)];
    let read = |(unit, nanoseconds): (&str, u64)| {
        text.strip_suffix(unit)?.parse::<u64>().ok()?.checked_mul(nanoseconds).map(Duration::from_nanos)
    };
    units.into_iter().find_map(read).ok_or_else(|| "write digits and s, ms, us or ns, as in 500ms or 2s".to_owned())
}

/// A time that is not zero.
pub(crate) fn positive_duration(text: &str) -> Result<Duration, String> {
    match duration(text)? {
        Duration::ZERO => Err("must be more than nothing, as in 500ms or 2s".to_owned()),
        duration => Ok(duration),
    }
}

/// A percentage up to a half.
pub(crate) fn percentage(text: &str) -> Result<u8, String> {
    let number = text.strip_suffix('%').and_then(|number| number.parse().ok());
    number.filter(|percent| *percent <= 50).ok_or_else(|| "write a percentage from 0% to 50%".to_owned())
}

/// An order of blocks.
pub(crate) fn order(text: &str) -> Result<frameyard::Order, String> {
    let highest = frameyard::units::ORDER_SLOTS - 1;
    match text.parse() {
        Ok(order) if usize::from(order) <= highest => Ok(frameyard::Order(order)),
        _ => Err(format!("write an order from 0 to {highest}")),
    }
}

/// The order of a pageblock, which is at least 1.
pub(crate) fn pageblock_order(text: &str) -> Result<frameyard::Order, String> {
    text.parse::<NonZeroU8>().map_err(|_| "a pageblock has at least order 1".to_owned()).and_then(|_| order(text))
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
