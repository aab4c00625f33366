//! Options that choose a machine and change it.

use clap::{Args, ValueHint};
use frameyard::units::GeometryError;
use frameyard::{ByteSize, Geometry, Order};

use super::values::{order, pageblock_order, positive_size};
use crate::Failure;

/// The machine, its size, and the memory behind its frames.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Machine")]
pub(crate) struct MachineArgs {
    /// A built-in machine, or a file: a description (TOML), /proc/iomem, or a kernel's boot messages
    /// [default: the machine this runs on]
    #[arg(long, value_name = "NAME|FILE", value_hint = ValueHint::AnyPath)]
    pub(crate) machine: Option<String>,

    /// The machine this runs on
    #[arg(long, conflicts_with = "machine")]
    pub(crate) host: bool,

    /// Scale the machine to this much memory, as in 64M, 8G or 1T
    #[arg(long, value_name = "SIZE", value_parser = positive_size)]
    pub(crate) memory: Option<ByteSize>,

    /// A full memory map, and no memory behind the frames: for machines larger than this one
    #[arg(long)]
    pub(crate) phantom: bool,

    /// Changes to the geometry.
    #[command(flatten)]
    pub(crate) geometry: GeometryArgs,
}

impl MachineArgs {
    /// Refuses `--phantom` for a command that needs memory behind frames.
    ///
    /// # Errors
    ///
    /// [`Failure::Input`], with the reason.
    pub(crate) fn refuse_phantom(&self, command: &str, reason: &str) -> Result<(), Failure> {
        if self.phantom {
            Err(Failure::input(format!("{command} --phantom: {reason}; leave --phantom out")))
        } else {
            Ok(())
        }
    }
}

/// Changes to a machine's geometry.
#[derive(Args, Clone, Copy, Default, Debug)]
pub(crate) struct GeometryArgs {
    /// Page size, the size of a frame: a power of two from 4K to 1G. Above 64K, pageblocks have 16 frames, and sections and the
    /// largest blocks 512, unless other options say otherwise [default: the machine's]
    #[arg(long, value_name = "SIZE", value_parser = positive_size)]
    pub(crate) page_size: Option<ByteSize>,

    /// Section size, a power of two [default: the machine's]
    #[arg(long, value_name = "SIZE", value_parser = positive_size)]
    pub(crate) section_size: Option<ByteSize>,

    /// Order of a pageblock [default: the machine's]
    #[arg(long, value_name = "ORDER", value_parser = pageblock_order)]
    pub(crate) pageblock_order: Option<Order>,

    /// Order of the largest blocks [default: the machine's]
    #[arg(long, value_name = "ORDER", value_parser = order)]
    pub(crate) max_order: Option<Order>,
}

impl GeometryArgs {
    /// A machine's geometry with these changes.
    ///
    /// # Errors
    ///
    /// [`GeometryError`] where the four numbers contradict each other.
    pub(crate) fn apply(&self, machine: Geometry) -> Result<Geometry, GeometryError> {
        let usual = match self.page_size {
            // No machine has such pages: the frames are those of a pool.
            Some(size) if size > ByteSize::kib(64) => Geometry::of_frames(size)?,
            _ => machine,
        };
        Geometry::new(
            self.page_size.unwrap_or(usual.page_size()),
            self.section_size.unwrap_or(usual.section_size()),
            self.pageblock_order.unwrap_or(usual.pageblock_order()),
            self.max_order.unwrap_or(usual.max_order()),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::assert_refused;

    fn read(line: &str) -> Result<MachineArgs, String> {
        crate::args::read(line)
    }

    #[test]
    fn the_default_is_the_machines_own_geometry() {
        let args = read("").unwrap();
        assert!(args.machine.is_none() && !args.host && args.memory.is_none() && !args.phantom);
        assert_eq!(args.geometry.apply(Geometry::X86_64), Ok(Geometry::X86_64));
    }

    #[test]
    fn geometry_options_replace_single_numbers() {
        let args = read("--page-size 64K --section-size 512M").unwrap();
        let geometry = args.geometry.apply(Geometry::X86_64).unwrap();
        assert_eq!((geometry.page_size(), geometry.section_size()), (ByteSize::kib(64), ByteSize::mib(512)));
        assert_eq!((geometry.pageblock_order(), geometry.max_order()), (Order(9), Order(10)));
        let args = read("--page-size 2M --max-order 7").unwrap();
        let geometry = args.geometry.apply(Geometry::X86_64).unwrap();
        assert_eq!((geometry.page_size(), geometry.section_size()), (ByteSize::mib(2), ByteSize::gib(1)));
        assert_eq!((geometry.pageblock_order(), geometry.max_order()), (Order(4), Order(7)));
        let args = read("--pageblock-order 10 --max-order 9").unwrap();
        assert_eq!(args.geometry.apply(Geometry::X86_64), Err(GeometryError::PageblockOrder(Order(10))));
    }

    #[test]
    fn refusals_name_a_correct_value() {
        assert_refused::<MachineArgs>(&[
            ("--memory 0", "more than nothing"),
            ("--memory 12Q", "write digits and K, M, G, T or P"),
            ("--memory 99999999999P", "overflows"),
            ("--max-order 16", "from 0 to 15"),
            ("--pageblock-order 0", "at least order 1"),
            ("--machine server-1t --host", "cannot be used with"),
        ]);
    }
}
