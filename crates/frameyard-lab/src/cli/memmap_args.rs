//! Arguments of `bench memmap` and `bench pcp-reset`.

use std::num::{NonZeroU32, NonZeroU64};

use clap::Args;
use frameyard::ByteSize;
use frameyard::boot::{InitMode, Initialiser, JobGranularity};
use frameyard::page::MapContent;

use super::init_args::{content, granularity, initialiser, mode};
use super::values::{positive_number, positive_size, whole_number};
use super::{FullArgs, OutputArgs, QuickArgs};

/// Arguments of `bench memmap`. Lists are empty where the sweep chooses.
#[derive(Args, Clone, Debug)]
pub struct MemmapArgs {
    /// How pages are written; an initialiser that cannot write a content is left out for it
    #[arg(
        long = "initialiser",
        value_name = "HOW",
        value_delimiter = ',',
        value_parser = initialiser(),
        default_value = "none,two-pass,memset-per-page,stores-per-page,stream"
    )]
    pub initialisers: Vec<Initialiser>,

    /// Content of pages
    #[arg(long = "content", value_name = "WHAT", value_delimiter = ',', value_parser = content(), default_value = "zero,kernel")]
    pub contents: Vec<MapContent>,

    /// When the map is initialised
    #[arg(long = "init", value_name = "WHEN", value_delimiter = ',', value_parser = mode(), default_value = "eager,deferred,lazy")]
    pub modes: Vec<InitMode>,

    /// How the work is divided into jobs
    #[arg(long = "granularity", value_name = "HOW", value_delimiter = ',', value_parser = granularity(), default_value = "sections,ranges")]
    pub granularities: Vec<JobGranularity>,

    /// Numbers of threads; lazy rows have one [default: 1,2,4,… up to the CPUs here]
    #[arg(long, value_name = "N", value_delimiter = ',', value_parser = positive_number)]
    pub threads: Vec<NonZeroU32>,

    /// Sizes of the map in eager and deferred mode [default: 64M,1G; with --full also 16G]
    #[arg(long = "map-size", value_name = "SIZES", value_delimiter = ',', value_parser = positive_size, default_value_if("quick", "true", "64M"))]
    pub map_sizes: Vec<ByteSize>,

    /// Frames of memory in lazy mode [default: 2^18, 2^22, 2^25 and 2^28]
    #[arg(long, value_name = "COUNTS", value_delimiter = ',', value_parser = positive_count, default_value_if("quick", "true", "2^18,2^22"))]
    pub frames: Vec<NonZeroU64>,

    /// Holes of one frame in the memory [default: none; the complete sweep has two further rows of each size with 4096
    /// holes, which compare the granularities]
    #[arg(long, value_name = "N", value_parser = whole_number)]
    pub holes: Option<u64>,

    /// Runs of each row, of which the median is reported
    #[arg(long, value_name = "N", default_value = "5", default_value_if("quick", "true", "2"), value_parser = positive_number)]
    pub repeat: NonZeroU32,

    /// A short run.
    #[command(flatten)]
    pub quick: QuickArgs,
    /// A run without limits.
    #[command(flatten)]
    pub full: FullArgs,

    /// The form of the result.
    #[command(flatten)]
    pub output: OutputArgs,
}

/// Arguments of `bench pcp-reset`.
#[derive(Args, Clone, Debug)]
pub struct PcpResetArgs {
    /// Memory of each of the two nodes, in one zone
    #[arg(long = "zone-size", value_name = "SIZES", value_delimiter = ',', value_parser = positive_size, default_value = "256M,512M,1G,8G,128G", default_value_if("quick", "true", "256M,1G"))]
    pub zone_sizes: Vec<ByteSize>,

    /// CPUs of each node
    #[arg(long, value_name = "N", value_delimiter = ',', value_parser = positive_number, default_value = "2,8,32", default_value_if("quick", "true", "2,8"))]
    pub cpus: Vec<NonZeroU32>,

    /// Frames that each CPU allocates and frees
    #[arg(long, value_name = "N", default_value = "1024", value_parser = positive_number)]
    pub pages: NonZeroU32,

    /// A short run.
    #[command(flatten)]
    pub quick: QuickArgs,

    /// The form of the result.
    #[command(flatten)]
    pub output: OutputArgs,
}

fn positive_count(text: &str) -> Result<NonZeroU64, String> {
    let power = |text: &str| text.strip_prefix("2^")?.parse().ok().and_then(|shift| 1u64.checked_shl(shift));
    let count = power(text).or_else(|| text.parse().ok()).and_then(NonZeroU64::new);
    count.ok_or_else(|| "write a whole number from 1, as in 262144 or 2^18".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser, Debug)]
    struct Line {
        #[command(flatten)]
        memmap: MemmapArgs,
    }

    fn read(line: &str) -> Result<MemmapArgs, String> {
        let words = std::iter::once("x").chain(line.split_whitespace());
        Line::try_parse_from(words).map(|line| line.memmap).map_err(|error| error.to_string())
    }

    #[test]
    fn a_bare_sweep_has_every_initialiser_content_and_mode() {
        let args = read("").unwrap();
        assert_eq!(args.initialisers, Initialiser::ALL);
        assert_eq!((args.contents, args.modes), (MapContent::ALL.to_vec(), InitMode::ALL.to_vec()));
        assert_eq!(
            (args.granularities, args.repeat.get(), args.full.full),
            (vec![JobGranularity::Sections, JobGranularity::Ranges], 5, false)
        );
        assert!(args.threads.is_empty() && args.map_sizes.is_empty() && args.frames.is_empty());
    }

    #[test]
    fn axes_are_lists_with_commas() {
        let args =
            read("--initialiser stream,none --threads 1,4 --map-size 64M,2G --frames 2^18,1000000 --holes 7").unwrap();
        assert_eq!(args.initialisers, [Initialiser::Stream, Initialiser::None]);
        assert_eq!(args.threads.iter().map(|threads| threads.get()).collect::<Vec<_>>(), [1, 4]);
        assert_eq!(args.map_sizes, [ByteSize::mib(64), ByteSize::gib(2)]);
        assert_eq!(args.frames.iter().map(|frames| frames.get()).collect::<Vec<_>>(), [1 << 18, 1_000_000]);
        assert_eq!(args.holes, Some(7));
    }

    #[test]
    fn refusals_name_a_correct_value() {
        for (line, says) in [
            ("--initialiser quick", "possible values: none, two-pass"),
            ("--threads 0", "from 1"),
            ("--map-size 0", "more than nothing"),
            ("--frames 2^64", "as in 262144 or 2^18"),
            ("--frames 0", "as in 262144 or 2^18"),
            ("--granularity nodes", "possible values: ranges, sections"),
        ] {
            let error = read(line).unwrap_err();
            assert!(error.contains(says), "{line}: {error}");
        }
    }
}
