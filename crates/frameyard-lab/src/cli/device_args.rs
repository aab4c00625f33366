//! Arguments of what is about device memory: `device` and `bench device-map`.

use std::num::NonZeroU32;
use std::path::PathBuf;

use clap::builder::{ArgPredicate, TypedValueParser};
use clap::{Args, Subcommand, ValueHint};
use frameyard::ByteSize;
use frameyard::devices::{MapLayout, MapPlacement};
use frameyard_host::DeviceAlignment;

use super::init_args::named;
use super::values::{named_with_help, positive_number, positive_size};
use super::{FullArgs, OutputArgs, QuickArgs};
use frameyard_workloads::device_map::YardSharing;

/// Reads which page structures there are.
pub(super) fn layout() -> impl TypedValueParser<Value = MapLayout> {
    named(MapLayout::ALL.iter().map(|layout| layout.name()))
}

/// Reads a size of pages.
pub(super) fn alignment(text: &str) -> Result<DeviceAlignment, String> {
    text.parse().map_err(|_| "write 4K, 2M or 1G".to_owned())
}

/// Reads where page structures lie.
fn placement() -> impl TypedValueParser<Value = MapPlacement> {
    named(MapPlacement::ALL.iter().map(|placement| placement.name()))
}

/// Arguments of `device`.
#[derive(Args, Clone, Debug)]
#[command(arg_required_else_help = false, disable_help_subcommand = true)]
pub struct DeviceArgs {
    /// What to do with devices.
    #[command(subcommand)]
    pub command: DeviceCommand,
}

/// What can be done with the devices of a session: a process in the background with a yard of its own, which the first
/// `create` starts and which ends with its last device.
#[derive(Subcommand, Clone, Debug)]
pub enum DeviceCommand {
    /// Makes a device, gives it page structures, and prints what they cost. The first one starts a session: a process in the
    /// background that holds a yard, and ends when its last device is destroyed
    Create(DeviceCreateArgs),
    /// Prints the devices of a session, and what the page structures of each cost
    List(DeviceListArgs),
    /// Takes devices away
    Destroy(DeviceDestroyArgs),
}

/// Which session.
#[derive(Args, Clone, Debug)]
pub struct SessionArgs {
    /// The socket of the session [default: frameyard/session in $XDG_RUNTIME_DIR, or frameyard-UID/session in /dev/shm]
    #[arg(long, value_name = "PATH", value_hint = ValueHint::FilePath)]
    pub session: Option<PathBuf>,
}

/// Arguments of `device create`.
#[derive(Args, Clone, Debug)]
pub struct DeviceCreateArgs {
    /// How large it is, a multiple of its alignment [default: all of --file]
    #[arg(long, value_name = "SIZE", value_parser = positive_size, required_unless_present = "file")]
    pub size: Option<ByteSize>,

    /// The size of its pages: 4K, 2M or 1G
    #[arg(long, value_name = "ALIGN", value_parser = alignment, default_value = "2M")]
    pub align: DeviceAlignment,

    /// Where its page structures lie: in ordinary memory (mem) or in the device itself (dev)
    #[arg(long, value_name = "WHERE", value_parser = placement(), default_value = "mem")]
    pub map: MapPlacement,

    /// Which page structures it has
    #[arg(long, value_name = "LAYOUT", value_parser = layout(), default_value = "shared-tails")]
    pub layout: MapLayout,

    /// The file or DAX device that has its bytes; a file is made, or made longer, where --size says more than it has
    /// [default: memory]
    #[arg(long, value_name = "PATH", value_hint = ValueHint::FilePath)]
    pub file: Option<PathBuf>,

    /// Nothing is behind its frames: for devices larger than this machine's memory
    #[arg(long, conflicts_with = "file")]
    pub phantom: bool,

    /// The session.
    #[command(flatten)]
    pub session: SessionArgs,
    /// How the result is written.
    #[command(flatten)]
    pub output: OutputArgs,
}

/// Arguments of `device list`.
#[derive(Args, Clone, Debug)]
pub struct DeviceListArgs {
    /// The session.
    #[command(flatten)]
    pub session: SessionArgs,
    /// How the result is written.
    #[command(flatten)]
    pub output: OutputArgs,
}

/// Which devices.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DeviceChoice {
    /// The one of that number.
    One(u16),
    /// Every one.
    All,
}

fn device_choice(text: &str) -> Result<DeviceChoice, String> {
    match text {
        "all" => Ok(DeviceChoice::All),
        number => number.parse().map(DeviceChoice::One).map_err(|_| "write a device's number, or all".to_owned()),
    }
}

/// Arguments of `device destroy`.
#[derive(Args, Clone, Debug)]
pub struct DeviceDestroyArgs {
    /// Numbers of devices as `list` prints them, or all
    #[arg(value_name = "DEVICE", required = true, value_parser = device_choice)]
    pub devices: Vec<DeviceChoice>,
    /// The session.
    #[command(flatten)]
    pub session: SessionArgs,
    /// How the result is written.
    #[command(flatten)]
    pub output: OutputArgs,
}

/// Arguments of the hidden command that is a session.
#[derive(Clone, Debug)]
pub struct DeviceSessionArgs {
    /// Its socket.
    pub socket: PathBuf,
}

/// Reads whether a yard is private.
fn yard_sharing() -> impl TypedValueParser<Value = YardSharing> {
    named_with_help(YardSharing::ALL, YardSharing::name, |sharing| match sharing {
        YardSharing::Private => "One process's own: tails are the host's zero page",
        YardSharing::Shared => {
            "In a memory file, for several processes: tails are a read-only window that is mapped again and again"
        }
    })
}

/// Arguments of `bench device-map`. Lists are empty where the sweep chooses.
#[derive(Args, Clone, Debug)]
pub struct DeviceMapArgs {
    /// Sizes of the device, multiples of its pages [default: 256G,1T; with 4K pages 16G]
    #[arg(long = "size", value_name = "SIZES", value_delimiter = ',', value_parser = positive_size, default_value_if("quick", ArgPredicate::IsPresent, "64G"))]
    pub sizes: Vec<ByteSize>,

    /// Sizes of its pages: 4K, 2M, 1G [default: all of them; where sizes are given, 2M,1G]
    #[arg(long = "geometry", value_name = "SIZES", value_delimiter = ',', value_parser = alignment)]
    pub geometries: Vec<DeviceAlignment>,

    /// Which page structures are written; what would not fit in memory is left out unless asked for
    #[arg(long = "layout", value_name = "LAYOUTS", value_delimiter = ',', value_parser = layout(), default_value = "full,shared-tails,folded")]
    pub layouts: Vec<MapLayout>,

    /// Whose yard it is [default: private; where nothing else is chosen, shared too for 1T in 1G pages]
    #[arg(long = "yard", value_name = "YARDS", value_delimiter = ',', value_parser = yard_sharing())]
    pub yards: Vec<YardSharing>,

    /// Runs of each row, which alternate; the median is reported
    #[arg(long, value_name = "N", default_value = "3", default_value_if("quick", ArgPredicate::IsPresent, "1"), value_parser = positive_number)]
    pub repeat: NonZeroU32,

    /// A short run.
    #[command(flatten)]
    pub quick: QuickArgs,
    /// A run without limits.
    #[command(flatten)]
    pub full: FullArgs,

    /// How the result is written.
    #[command(flatten)]
    pub output: OutputArgs,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser, Debug)]
    enum Line {
        Device(DeviceArgs),
        DeviceMap(DeviceMapArgs),
    }

    fn read(line: &str) -> Result<Line, String> {
        let words = std::iter::once("x").chain(line.split_whitespace());
        Line::try_parse_from(words).map_err(|error| error.to_string())
    }

    #[test]
    fn axes_are_lists_with_commas() {
        let Line::DeviceMap(args) = read("device-map --size 1G,2T --geometry 2M,1g --layout folded").unwrap() else {
            panic!("no device-map")
        };
        assert_eq!(args.sizes, [ByteSize::gib(1), ByteSize(2 << 40)]);
        assert_eq!(args.geometries, [DeviceAlignment::Huge, DeviceAlignment::Gigantic]);
        assert_eq!((args.layouts, args.repeat.get()), (vec![MapLayout::Folded], 3));
        let Line::DeviceMap(args) = read("device-map").unwrap() else { panic!("no device-map") };
        assert!(args.sizes.is_empty() && args.geometries.is_empty());
        assert_eq!(args.layouts, MapLayout::ALL);
    }

    #[test]
    fn a_device_is_of_compound_pages_with_shared_tails_unless_asked_for_otherwise() {
        let Line::Device(args) = read("device create --size 64M").unwrap() else { panic!("no device") };
        let DeviceCommand::Create(args) = args.command else { panic!("no create") };
        assert_eq!(
            (args.align, args.map, args.layout),
            (DeviceAlignment::Huge, MapPlacement::Memory, MapLayout::SharedTails)
        );
        let Line::Device(args) = read("device destroy 3 all").unwrap() else { panic!("no device") };
        let DeviceCommand::Destroy(args) = args.command else { panic!("no destroy") };
        assert_eq!(args.devices, [DeviceChoice::One(3), DeviceChoice::All]);
    }

    #[test]
    fn wrong_values_are_refused_with_what_would_be_right() {
        for (line, says) in [
            ("device create", "--size"),
            ("device create --size 1G --align 3M", "write 4K, 2M or 1G"),
            ("device create --size 1G --map disk", "possible values: mem, dev"),
            ("device create --size 1G --phantom --file x", "cannot be used with"),
            ("device destroy", "<DEVICE>"),
            ("device destroy first", "a device's number, or all"),
            ("device-map --geometry 3M", "write 4K, 2M or 1G"),
            ("device-map --layout sparse", "possible values: full, shared-tails, folded"),
            ("device-map --size 0", "more than nothing"),
            ("device-map --repeat 0", "from 1"),
        ] {
            let error = read(line).unwrap_err();
            assert!(error.contains(says), "{line}: {error}");
        }
    }
}
