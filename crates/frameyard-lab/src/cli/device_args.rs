//! Arguments of what is about device memory: `bench device-map`.

use std::num::NonZeroU32;

use clap::Args;
use clap::builder::TypedValueParser;
use frameyard::{ByteSize, MapLayout};
use frameyard_host::DeviceAlignment;

use super::OutputArgs;
use super::init_args::named;
use super::values::{positive_number, positive_size};

/// Reads which page structures there are.
pub(super) fn layout() -> impl TypedValueParser<Value = MapLayout> {
    named(MapLayout::ALL.iter().map(|layout| layout.name()))
}

/// Reads a size of pages.
pub(super) fn alignment(text: &str) -> Result<DeviceAlignment, String> {
    text.parse().map_err(|_| "write 4K, 2M or 1G".to_owned())
}

/// Arguments of `bench device-map`. Lists are empty where the sweep chooses.
#[derive(Args, Clone, Debug)]
pub struct DeviceMapArgs {
    /// Sizes of the device, multiples of its pages [default: 256G,1T; with 4K pages 16G]
    #[arg(long = "size", value_name = "SIZES", value_delimiter = ',', value_parser = positive_size)]
    pub sizes: Vec<ByteSize>,

    /// Sizes of its pages: 4K, 2M, 1G [default: all of them; where sizes are given, 2M,1G]
    #[arg(long = "geometry", value_name = "SIZES", value_delimiter = ',', value_parser = alignment)]
    pub geometries: Vec<DeviceAlignment>,

    /// Which page structures are written; what would not fit in memory is left out unless asked for
    #[arg(long = "layout", value_name = "LAYOUTS", value_delimiter = ',', value_parser = layout(), default_value = "full,shared-tails,folded")]
    pub layouts: Vec<MapLayout>,

    /// Runs of each row, which alternate; the median is reported
    #[arg(long, value_name = "N", default_value = "3", value_parser = positive_number)]
    pub repeat: NonZeroU32,

    /// Lift the limit of about three minutes on 2 CPUs: page structures of more than 4 GiB
    #[arg(long)]
    pub full: bool,

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
        DeviceMap(DeviceMapArgs),
    }

    fn read(line: &str) -> Result<Line, String> {
        let words = std::iter::once("x").chain(line.split_whitespace());
        Line::try_parse_from(words).map_err(|error| error.to_string())
    }

    #[test]
    fn axes_are_lists_with_commas() {
        let Line::DeviceMap(args) = read("device-map --size 1G,2T --geometry 2M,1g --layout folded").unwrap();
        assert_eq!(args.sizes, [ByteSize::gib(1), ByteSize(2 << 40)]);
        assert_eq!(args.geometries, [DeviceAlignment::Huge, DeviceAlignment::Gigantic]);
        assert_eq!((args.layouts, args.repeat.get()), (vec![MapLayout::Folded], 3));
        let Line::DeviceMap(args) = read("device-map").unwrap();
        assert!(args.sizes.is_empty() && args.geometries.is_empty());
        assert_eq!(args.layouts, MapLayout::ALL);
    }

    #[test]
    fn wrong_values_are_refused_with_what_would_be_right() {
        for (line, says) in [
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
