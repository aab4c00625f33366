//! Arguments of `bench pin` and `bench memory-region`.

use std::num::NonZeroU32;
use std::time::Duration;

use clap::builder::TypedValueParser;
use clap::{Args, ValueEnum};
use frameyard::ByteSize;
use frameyard::devices::MapLayout;
use frameyard_host::DeviceAlignment;
use frameyard_vm::{PinCall, PinPath, RefHandling};

use super::device_args::{alignment, layout};
use super::init_args::named;
use super::values::{positive_duration, positive_number, positive_size};
use super::{OutputArgs, QuickArgs};

/// A kind of memory.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum PinMemory {
    /// Anonymous memory in pages of 4 KiB
    Anonymous,
    /// Anonymous memory in transparent huge pages
    Huge,
    /// Memory of devices without memory behind their frames: only page structures are used
    Device,
}

/// What a call returns.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum PinResult {
    /// The frame of each page
    Array,
    /// Runs of frames
    Runs,
}

fn call() -> impl TypedValueParser<Value = PinCall> {
    named(PinCall::ALL.iter().map(|call| call.name()))
}

fn path() -> impl TypedValueParser<Value = PinPath> {
    named(PinPath::ALL.iter().map(|path| path.name()))
}

fn refs() -> impl TypedValueParser<Value = RefHandling> {
    named(RefHandling::ALL.iter().map(|refs| refs.name()))
}

/// Which memory is mapped, and how.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Memory")]
pub struct PinnedArgs {
    /// Kinds of memory
    #[arg(
        long = "memory",
        value_name = "KINDS",
        value_delimiter = ',',
        value_enum,
        default_value = "anonymous,huge,device"
    )]
    pub memory: Vec<PinMemory>,

    /// What an entry of the page tables maps: 4K, 2M, 1G [default: all]
    #[arg(long = "page-size", value_name = "SIZES", value_delimiter = ',', value_parser = alignment)]
    pub pages: Vec<DeviceAlignment>,

    /// What a page structure is the head of: 4K, 2M, 1G [default: all; over 4K devices are mapped by entries of every size]
    #[arg(long = "map-geometry", value_name = "SIZES", value_delimiter = ',', value_parser = alignment)]
    pub maps: Vec<DeviceAlignment>,

    /// Which page structures devices of compound pages have
    #[arg(long, value_name = "LAYOUT", value_parser = layout(), default_value = "deduplicated")]
    pub layout: MapLayout,
}

/// Arguments of `bench pin`, in the manner of the kernel's gup_test.
#[derive(Args, Clone, Debug)]
pub struct PinArgs {
    /// Sizes that are taken, multiples of 2M (gup_test -m) [default: 1G,16G; of 16G only kinds that fit]
    #[arg(long = "size", value_name = "SIZES", value_delimiter = ',', value_parser = positive_size, default_value_if("quick", "true", "256M"))]
    pub sizes: Vec<ByteSize>,

    /// Most pages of a call (gup_test -n) [default: all]
    #[arg(long, value_name = "PAGES", value_parser = positive_number)]
    pub batch: Option<NonZeroU32>,

    /// Runs of each row, which alternate; the median is reported (gup_test -r)
    #[arg(long, value_name = "N", default_value = "3", default_value_if("quick", "true", "1"), value_parser = positive_number)]
    pub repeat: NonZeroU32,

    /// References (gup_test -a, -U) or pins (gup_test -b, -B)
    #[arg(long = "call", value_name = "CALLS", value_delimiter = ',', value_parser = call(), default_value = "get,pin")]
    pub calls: Vec<PinCall>,

    /// fast: without locks where possible; slow: under the map lock; fast-only: without locks, or fail
    #[arg(long = "path", value_name = "PATHS", value_delimiter = ',', value_parser = path(), default_value = "fast,slow")]
    pub paths: Vec<PinPath>,

    /// One reference for each page, or all references of a head at once
    #[arg(long = "refs", value_name = "HOW", value_delimiter = ',', value_parser = refs(), default_value = "per-page,batched")]
    pub refs: Vec<RefHandling>,

    /// What a call returns
    #[arg(long = "interface", value_name = "WHAT", value_delimiter = ',', value_enum, default_value = "array,runs")]
    pub interfaces: Vec<PinResult>,

    /// Take pages for reading only (gup_test -W)
    #[arg(long)]
    pub read_only: bool,

    /// Take pages for a long time (gup_test -L)
    #[arg(long)]
    pub longterm: bool,

    /// Do not touch pages first: the calls fault them in, anew in each run (gup_test -z)
    #[arg(long)]
    pub no_touch: bool,

    /// A short run.
    #[command(flatten)]
    pub quick: QuickArgs,
    /// The memory.
    #[command(flatten)]
    pub memory: PinnedArgs,
    /// The form of the result.
    #[command(flatten)]
    pub output: OutputArgs,
}

/// Arguments of `bench memory-region`.
#[derive(Args, Clone, Debug)]
pub struct MemoryRegionArgs {
    /// Size that is registered, a multiple of 2M
    #[arg(long, value_name = "SIZE", default_value = "1G", value_parser = positive_size)]
    pub size: ByteSize,

    /// Duration of each row
    #[arg(long, value_name = "TIME", default_value = "5s", default_value_if("quick", "true", "200ms"), value_parser = positive_duration)]
    pub duration: Duration,

    /// Leave out the registration by the host kernel
    #[arg(long)]
    pub no_host: bool,

    /// A short run.
    #[command(flatten)]
    pub quick: QuickArgs,
    /// The memory.
    #[command(flatten)]
    pub memory: PinnedArgs,
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
        Pin(PinArgs),
        MemoryRegion(MemoryRegionArgs),
    }

    fn read(line: &str) -> Result<Line, String> {
        let words = std::iter::once("x").chain(line.split_whitespace());
        Line::try_parse_from(words).map_err(|error| error.to_string())
    }

    #[test]
    fn bare_workloads_have_all_rows() {
        let Line::Pin(args) = read("pin").unwrap() else { panic!("no pin") };
        assert_eq!((args.calls, args.paths), (PinCall::ALL.to_vec(), vec![PinPath::FastThenSlow, PinPath::SlowOnly]));
        assert_eq!((args.refs, args.interfaces.len()), (RefHandling::ALL.to_vec(), 2));
        assert_eq!((args.memory.memory.len(), args.memory.layout), (3, MapLayout::Deduplicated));
        assert!(args.sizes.is_empty() && args.batch.is_none() && args.memory.pages.is_empty());
        let Line::MemoryRegion(args) = read("memory-region").unwrap() else { panic!("no memory-region") };
        assert_eq!((args.size, args.duration, args.no_host), (ByteSize::gib(1), Duration::from_secs(5), false));
    }

    #[test]
    fn refusals_name_a_correct_value() {
        for (line, says) in [
            ("pin --size 0", "more than nothing"),
            ("pin --batch 0", "from 1"),
            ("pin --call hold", "possible values: get, pin"),
            ("pin --path quick", "possible values: fast, slow, fast-only"),
            ("pin --refs many", "possible values: per-page, batched"),
            ("pin --interface list", "possible values: array, runs"),
            ("pin --page-size 8K", "write 4K, 2M or 1G"),
            ("memory-region --duration 0s", "more than nothing"),
            ("memory-region --memory file", "possible values: anonymous, huge, device"),
        ] {
            let error = read(line).unwrap_err();
            assert!(error.contains(says), "{line}: {error}");
        }
    }
}
