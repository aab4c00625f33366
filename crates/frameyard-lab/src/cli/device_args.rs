//! Arguments of the commands for device memory: `device` and `bench device-map`.

use std::num::NonZeroU32;
use std::path::PathBuf;

use clap::builder::TypedValueParser;
use clap::{Args, Subcommand, ValueHint};
use frameyard::ByteSize;
use frameyard::devices::{MapLayout, MapPlacement};
use frameyard_host::DeviceAlignment;

use super::init_args::named;
use super::values::{named_with_help, positive_number, positive_size};
use super::{FullArgs, OutputArgs, QuickArgs};
use frameyard_workloads::device_map::YardSharing;

/// Reads a layout of page structures.
pub(super) fn layout() -> impl TypedValueParser<Value = MapLayout> {
    named(MapLayout::ALL.iter().map(|layout| layout.name()))
}

/// Reads a size of pages.
pub(super) fn alignment(text: &str) -> Result<DeviceAlignment, String> {
    text.parse().map_err(|_| "write 4K, 2M or 1G".to_owned())
}

/// Reads a placement of page structures.
fn placement() -> impl TypedValueParser<Value = MapPlacement> {
    named(MapPlacement::ALL.iter().map(|placement| placement.name()))
}

/// Arguments of `device`.
#[derive(Args, Clone, Debug)]
#[command(arg_required_else_help = false, disable_help_subcommand = true)]
pub struct DeviceArgs {
    /// The action.
    #[command(subcommand)]
    pub command: DeviceCommand,
}

/// Actions on the devices of a session: a process in the background with its own yard. The first `create` starts it, and it
/// ends with its last device.
#[derive(Subcommand, Clone, Debug)]
pub enum DeviceCommand {
    /// Creates a device with page structures and prints their cost. The first one starts a session: a process in the background
    /// that ends when its last device is destroyed
    Create(DeviceCreateArgs),
    /// Prints the devices of a session, and the cost of their page structures
    List(DeviceListArgs),
    /// Destroys devices; with the last one the session ends
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
    /// Its size, a multiple of its alignment [default: all of --file]
    #[arg(long, value_name = "SIZE", value_parser = positive_size, required_unless_present = "file")]
    pub size: Option<ByteSize>,

    /// The size of its pages: 4K, 2M or 1G
    #[arg(long, value_name = "ALIGN", value_parser = alignment, default_value = "2M")]
    pub align: DeviceAlignment,

    /// Where its page structures are: in ordinary memory (mem) or in the device itself (dev)
    #[arg(long, value_name = "WHERE", value_parser = placement(), default_value = "mem")]
    pub map: MapPlacement,

    /// Which page structures it has
    #[arg(long, value_name = "LAYOUT", value_parser = layout(), default_value = "deduplicated")]
    pub layout: MapLayout,

    /// The file or DAX device with its bytes; a file is created or extended to --size [default: memory]
    #[arg(long, value_name = "PATH", value_hint = ValueHint::FilePath)]
    pub file: Option<PathBuf>,

    /// No memory behind its frames: for devices larger than this machine's memory
    #[arg(long, conflicts_with = "file")]
    pub phantom: bool,

    /// The session.
    #[command(flatten)]
    pub session: SessionArgs,
    /// The form of the result.
    #[command(flatten)]
    pub output: OutputArgs,
}

/// Arguments of `device list`.
#[derive(Args, Clone, Debug)]
pub struct DeviceListArgs {
    /// The session.
    #[command(flatten)]
    pub session: SessionArgs,
    /// The form of the result.
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
        number => number.parse().map(DeviceChoice::One).map_err(|_| "write the number of a device, or all".to_owned()),
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
    /// The form of the result.
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
        YardSharing::Private => "One process: tails are the host's zero page",
        YardSharing::Shared => {
            "Several processes, in a memory file: tails are one read-only window that is mapped many times"
        }
    })
}

/// Arguments of `bench device-map`. Lists are empty where the sweep chooses.
#[derive(Args, Clone, Debug)]
pub struct DeviceMapArgs {
    /// Sizes of the device, multiples of its pages [default: 256G,1T; with 4K pages 16G]
    #[arg(long = "size", value_name = "SIZES", value_delimiter = ',', value_parser = positive_size, default_value_if("quick", "true", "64G"))]
    pub sizes: Vec<ByteSize>,

    /// Sizes of its pages: 4K, 2M, 1G [default: all; with --size 2M,1G]
    #[arg(long = "geometry", value_name = "SIZES", value_delimiter = ',', value_parser = alignment)]
    pub geometries: Vec<DeviceAlignment>,

    /// Which page structures are written; rows without enough memory are left out unless --size names them
    #[arg(long = "layout", value_name = "LAYOUTS", value_delimiter = ',', value_parser = layout(), default_value = "full,deduplicated,folded")]
    pub layouts: Vec<MapLayout>,

    /// Which processes use the yard [default: private; in the bare sweep also shared, for 1T in 1G pages]
    #[arg(long = "yard", value_name = "YARDS", value_delimiter = ',', value_parser = yard_sharing())]
    pub yards: Vec<YardSharing>,

    /// Runs of each row, which alternate; the median is reported
    #[arg(long, value_name = "N", default_value = "3", default_value_if("quick", "true", "1"), value_parser = positive_number)]
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
    fn a_device_has_compound_pages_by_default() {
        let Line::Device(args) = read("device create --size 64M").unwrap() else { panic!("no device") };
        let DeviceCommand::Create(args) = args.command else { panic!("no create") };
        assert_eq!(
            (args.align, args.map, args.layout),
            (DeviceAlignment::Huge, MapPlacement::Memory, MapLayout::Deduplicated)
        );
        let Line::Device(args) = read("device destroy 3 all").unwrap() else { panic!("no device") };
        let DeviceCommand::Destroy(args) = args.command else { panic!("no destroy") };
        assert_eq!(args.devices, [DeviceChoice::One(3), DeviceChoice::All]);
    }

    #[test]
    fn refusals_name_a_correct_value() {
        for (line, says) in [
            ("device create", "--size"),
            ("device create --size 1G --align 3M", "write 4K, 2M or 1G"),
            ("device create --size 1G --map disk", "possible values: mem, dev"),
            ("device create --size 1G --phantom --file x", "cannot be used with"),
            ("device destroy", "<DEVICE>"),
            ("device destroy first", "the number of a device, or all"),
            ("device-map --geometry 3M", "write 4K, 2M or 1G"),
            ("device-map --layout sparse", "possible values: full, deduplicated, folded"),
            ("device-map --size 0", "more than nothing"),
            ("device-map --repeat 0", "from 1"),
        ] {
            let error = read(line).unwrap_err();
            assert!(error.contains(says), "{line}: {error}");
        }
    }
}
