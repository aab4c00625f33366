//! Arguments of the workloads of one whole zone.

use std::num::NonZeroU32;

use clap::Args;
use frameyard::{ByteSize, Order};
use frameyard_vm::LruPolicy;

use super::values::{lru_policy, order, positive_number, positive_size, whole_number};
use super::{Amount, MachineArgs, OutputArgs, QuickArgs, YardArgs};

/// Arguments of `bench compaction`.
#[derive(Args, Clone, Debug)]
pub struct CompactionArgs {
    /// Policies of LRU lists to compare
    #[arg(long = "lru", value_name = "POLICIES", value_delimiter = ',', value_parser = lru_policy(), default_value = "vanilla")]
    pub lru_policies: Vec<LruPolicy>,

    /// Runs of each row, of which the median is reported
    #[arg(long, value_name = "N", default_value = "3", default_value_if("quick", "true", "1"), value_parser = positive_number)]
    pub repeat: NonZeroU32,

    /// A short run.
    #[command(flatten)]
    pub quick: QuickArgs,
    /// The machine. Its memory is the zone; page tables have further memory.
    #[command(flatten)]
    pub machine: MachineArgs,
    /// The form of the result.
    #[command(flatten)]
    pub output: OutputArgs,
}

/// Arguments of `bench contig`.
#[derive(Args, Clone, Debug)]
pub struct ContigArgs {
    /// Size of the contiguous ranges
    #[arg(long, value_name = "SIZE", default_value = "1G", default_value_if("quick", "true", "256M"), value_parser = positive_size)]
    pub size: ByteSize,

    /// The part of the Movable zone that tasks use, up to 90%
    #[arg(long, value_name = "SIZE|PERCENT", default_value = "50%")]
    pub fill: Amount,

    /// Tasks that use memory meanwhile
    #[arg(long, value_name = "N", default_value = "2", value_parser = positive_number)]
    pub tasks: NonZeroU32,

    /// Repetitions, each in a new yard
    #[arg(long, value_name = "N", default_value = "3", default_value_if("quick", "true", "1"), value_parser = positive_number)]
    pub repeat: NonZeroU32,

    /// Policies of LRU lists to compare
    #[arg(long = "lru", value_name = "POLICIES", value_delimiter = ',', value_parser = lru_policy(), default_value = "vanilla")]
    pub lru_policies: Vec<LruPolicy>,

    /// Seed of the random choices
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = whole_number)]
    pub seed: u64,

    /// A short run.
    #[command(flatten)]
    pub quick: QuickArgs,
    /// The machine, whose memory is one range of one node.
    #[command(flatten)]
    pub machine: MachineArgs,
    /// The yard. Three quarters of it are Movable by default.
    #[command(flatten)]
    pub yard: YardArgs,
    /// The form of the result.
    #[command(flatten)]
    pub output: OutputArgs,
}

/// Arguments of `bench report-free`.
#[derive(Args, Clone, Debug)]
pub struct ReportFreeArgs {
    /// Minimum orders of the free blocks that are returned
    #[arg(long = "order", value_name = "ORDERS", value_delimiter = ',', value_parser = order, default_value = "0,4,9")]
    pub orders: Vec<Order>,

    /// The most memory that is returned [default: all]
    #[arg(long, value_name = "SIZE", value_parser = positive_size)]
    pub budget: Option<ByteSize>,

    /// Runs of each row, of which the median is reported
    #[arg(long, value_name = "N", default_value = "1", value_parser = positive_number)]
    pub repeat: NonZeroU32,

    /// Seed of the random choices
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = whole_number)]
    pub seed: u64,

    /// A short run.
    #[command(flatten)]
    pub quick: QuickArgs,
    /// The machine, whose memory is one range of one node.
    #[command(flatten)]
    pub machine: MachineArgs,
    /// The yard.
    #[command(flatten)]
    pub yard: YardArgs,
    /// The form of the result.
    #[command(flatten)]
    pub output: OutputArgs,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser, Debug)]
    enum Line {
        Compaction(CompactionArgs),
        Contig(ContigArgs),
        ReportFree(ReportFreeArgs),
    }

    fn read(line: &str) -> Result<Line, String> {
        let words = std::iter::once("x").chain(line.split_whitespace());
        Line::try_parse_from(words).map_err(|error| error.to_string())
    }

    #[test]
    fn bare_workloads_have_their_usual_sizes() {
        let Line::Compaction(args) = read("compaction").unwrap() else { panic!("no compaction") };
        assert_eq!((args.lru_policies, args.repeat.get()), (vec![LruPolicy::Vanilla], 3));
        let Line::Contig(args) = read("contig").unwrap() else { panic!("no contig") };
        assert_eq!((args.size, args.fill, args.tasks.get()), (ByteSize::gib(1), Amount::Percent(50), 2));
        let Line::ReportFree(args) = read("report-free").unwrap() else { panic!("no report-free") };
        assert_eq!((args.orders, args.budget), (vec![Order(0), Order(4), Order(9)], None));
    }

    #[test]
    fn refusals_name_a_correct_value() {
        for (line, says) in [
            ("compaction --lru fast", "possible values: vanilla, sharded"),
            ("compaction --repeat 0", "from 1"),
            ("contig --size 0", "more than nothing"),
            ("contig --fill half", "or a percentage, as in 25%"),
            ("contig --tasks none", "from 1"),
            ("report-free --order 16", "from 0 to 15"),
            ("report-free --budget lots", "write digits"),
        ] {
            let error = read(line).unwrap_err();
            assert!(error.contains(says), "{line}: {error}");
        }
    }
}
