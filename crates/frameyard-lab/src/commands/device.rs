//! `device`: devices whose memory has page structures, in a session that outlives the command.
//!
//! A session is a process with a private yard ([`session`]). Clients find it by its socket ([`client`]). Requests and answers
//! are lines of JSON ([`exchange`]). A memory file with a path would not suffice: devices of a shared yard cannot hold their
//! own page structures, and a memory file ends with the last process that has it open.

mod client;
mod exchange;
mod session;

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand, ValueHint};
use frameyard::ByteSize;
use frameyard::devices::{MapLayout, MapPlacement};
use frameyard_host::DeviceAlignment;

use crate::Failure;
use crate::args::OutputArgs;
use crate::args::values::{device_alignment, map_layout, map_placement, positive_size};
use crate::chosen_machine::print_notes;
use crate::output::{Format, Report, Row};
use client::Start;
use exchange::{CreateOrder, DeviceRow, Request};

/// What follows the options in the help text.
const HELP: &str = "\
The first create starts a session: a process in the background that holds the devices. Destroying the last device ends it: \
    frameyard device destroy all.

Examples:
  frameyard device create --size 64G --align 1G --phantom
  frameyard device list
  frameyard device destroy all";

/// Creates, lists and destroys devices whose memory has page structures
#[derive(Args, Clone, Debug)]
#[command(after_help = HELP, arg_required_else_help = false, disable_help_subcommand = true)]
pub(super) struct DeviceArgs {
    #[command(subcommand)]
    command: DeviceCommand,
}

/// Actions on the devices of a session: a process in the background with its own yard. The first `create` starts it, and it
/// ends with its last device.
#[derive(Subcommand, Clone, Debug)]
enum DeviceCommand {
    Create(DeviceCreateArgs),
    List(DeviceListArgs),
    Destroy(DeviceDestroyArgs),
}

/// Which session.
#[derive(Args, Clone, Debug)]
pub(super) struct SessionArgs {
    /// The socket of the session [default: frameyard/session in $XDG_RUNTIME_DIR, or frameyard-UID/session in /dev/shm]
    #[arg(long, value_name = "PATH", value_hint = ValueHint::FilePath)]
    session: Option<PathBuf>,
}

/// What follows the options in the help text.
const CREATE_HELP: &str = "\
Examples:
  frameyard device create --size 64G --align 1G --phantom
  frameyard device create --file disk.img --size 1G --map dev";

/// Creates a device with page structures and prints their cost. The first one starts a session: a process in the background
/// that ends when its last device is destroyed
#[derive(Args, Clone, Debug)]
#[command(after_help = CREATE_HELP)]
struct DeviceCreateArgs {
    /// Its size, a multiple of its alignment [default: all of --file]
    #[arg(long, value_name = "SIZE", value_parser = positive_size, required_unless_present = "file")]
    size: Option<ByteSize>,

    /// The size of its pages: 4K, 2M or 1G
    #[arg(long, value_name = "ALIGN", value_parser = device_alignment, default_value = "2M")]
    align: DeviceAlignment,

    /// Where its page structures are: in ordinary memory (mem) or in the device itself (dev)
    #[arg(long, value_name = "WHERE", value_parser = map_placement(), default_value = "mem")]
    map: MapPlacement,

    /// Which page structures it has
    #[arg(long, value_name = "LAYOUT", value_parser = map_layout(), default_value = "deduplicated")]
    layout: MapLayout,

    /// The file or DAX device with its bytes; a file is created or extended to --size [default: memory]
    #[arg(long, value_name = "PATH", value_hint = ValueHint::FilePath)]
    file: Option<PathBuf>,

    /// No memory behind its frames: for devices larger than this machine's memory
    #[arg(long, conflicts_with = "file")]
    phantom: bool,

    #[command(flatten)]
    session: SessionArgs,
    #[command(flatten)]
    output: OutputArgs,
}

/// What follows the options in the help text.
const LIST_HELP: &str = "\
Example:
  frameyard device list --json";

/// Prints the devices of a session, and the cost of their page structures
#[derive(Args, Clone, Debug)]
#[command(after_help = LIST_HELP)]
struct DeviceListArgs {
    #[command(flatten)]
    session: SessionArgs,
    #[command(flatten)]
    output: OutputArgs,
}

/// What follows the options in the help text.
const DESTROY_HELP: &str = "\
Examples:
  frameyard device destroy 0
  frameyard device destroy all";

/// Destroys devices; with the last one the session ends
#[derive(Args, Clone, Debug)]
#[command(after_help = DESTROY_HELP)]
struct DeviceDestroyArgs {
    /// Numbers of devices as `list` prints them, or all
    #[arg(value_name = "DEVICE", required = true, value_parser = device_choice)]
    devices: Vec<DeviceChoice>,
    #[command(flatten)]
    session: SessionArgs,
    #[command(flatten)]
    output: OutputArgs,
}

/// Which devices.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum DeviceChoice {
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

/// Reads a placement of page structures.
/// The hidden command of session processes. Its only argument is their socket.
pub(super) const SESSION_COMMAND: &str = "device-session";
/// How to end the process that holds the devices.
const SESSION_NOTE: &str = "a process in the background holds the devices; it ends with the last one: frameyard device destroy all (with the same --session)";
/// Attempts to start a session that accepts the request: one may end first because its last device was just destroyed.
const ATTEMPTS: u32 = 4;

/// Creates, lists or destroys devices.
pub(super) fn run(args: &DeviceArgs) -> Result<(), Failure> {
    let (name, socket, rows, form): (_, _, _, &OutputArgs) = match &args.command {
        DeviceCommand::Create(args) => {
            let socket = client::socket(&args.session)?;
            let rows = create(args, &socket)?;
            ("device create", socket, rows, &args.output)
        }
        DeviceCommand::List(args) => {
            let socket = client::socket(&args.session)?;
            let rows = client::ask(&socket, &Request::List)?;
            // Without a session there are no devices.
            ("device list", socket, rows.unwrap_or_default(), &args.output)
        }
        DeviceCommand::Destroy(args) => {
            let socket = client::socket(&args.session)?;
            let rows = client::ask(&socket, &Request::Destroy(chosen(args)))?;
            let no_session =
                || Failure::input(format!("{}: no session and so no devices to destroy", socket.display()));
            ("device destroy", socket.clone(), rows.ok_or_else(no_session)?, &args.output)
        }
    };
    let report = Report::new(name, rows.iter().map(row).collect()).total("session", socket.display().to_string());
    let report = if rows.is_empty() { report.verbatim("no devices\n") } else { report };
    report.print(form)
}

/// Holds the devices of a session: the hidden command.
pub(super) fn hold_session(socket: &Path) -> Result<(), Failure> {
    session::hold(socket)
}

fn create(args: &DeviceCreateArgs, socket: &Path) -> Result<Vec<DeviceRow>, Failure> {
    if args.phantom && args.map == MapPlacement::Device {
        return Err(Failure::input(
            "--map dev: a phantom device has no bytes that could hold its page structures; leave --phantom or --map out",
        ));
    }
    // The session has another working directory.
    let file = args.file.as_deref().map(std::path::absolute).transpose().map_err(Failure::run_time)?;
    let order = CreateOrder {
        size: args.size.map(|size| size.0),
        align: args.align.name().to_owned(),
        map: args.map.name().to_owned(),
        layout: args.layout.name().to_owned(),
        file,
        phantom: args.phantom,
    };
    let request = Request::Create(order);
    for _ in 0..ATTEMPTS {
        let start = client::start(socket)?;
        if let Some(rows) = client::ask(socket, &request)? {
            if start == Start::Started {
                print_notes(&[SESSION_NOTE.to_owned()]);
            }
            return Ok(rows);
        }
    }
    Err(Failure::run_time(format!("{}: every session ended before it accepted the request", socket.display())))
}

/// Numbers of devices; `None` for all.
fn chosen(args: &DeviceDestroyArgs) -> Option<Vec<u16>> {
    let number = |choice: &DeviceChoice| match choice {
        DeviceChoice::One(number) => Some(*number),
        DeviceChoice::All => None,
    };
    args.devices.iter().map(number).collect()
}

fn row(device: &DeviceRow) -> Row {
    Row::new()
        .column("device", "device", device.device)
        .column_as("size_bytes", "size", Format::ExactSize, device.size_bytes)
        .column_as("align_bytes", "align", Format::ExactSize, device.align_bytes)
        .data("first_pfn", device.first_pfn)
        .column_as("data_bytes", "data", Format::Size, device.data_bytes)
        .minor()
        .column("map", "map", device.map.clone())
        .column("layout", "layout", device.layout.clone())
        .column("structures", "structures", device.structures)
        .minor()
        .column_as("map_bytes_equation", "by equation", Format::Size, device.map_bytes_equation)
        .minor()
        .column_as("map_bytes_resident", "resident", Format::Size, device.map_bytes_resident)
        .column_as("map_bytes_full", "if full", Format::Size, device.map_bytes_full)
        .column("mappings", "mappings", device.mappings)
        .minor()
        .data("page_table_entries", device.page_table_entries)
        .column_as("bring_up_ns", "bring-up ms", Format::millions(3), device.bring_up_ns)
        .minor()
        .column_as("remove_ns", "remove ms", Format::millions(3), device.remove_ns)
        .minor()
        .data("backing", device.backing.clone())
        .data("path", device.path.clone())
        .remark("backing", Format::Plain, device.path.clone().unwrap_or_else(|| device.backing.clone()))
        .minor()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::assert_refused;

    fn read(line: &str) -> Result<DeviceArgs, String> {
        crate::args::read(line)
    }

    #[test]
    fn a_device_has_compound_pages_by_default() {
        let args = read("create --size 64M").unwrap();
        let DeviceCommand::Create(args) = args.command else { panic!("no create") };
        assert_eq!(
            (args.align, args.map, args.layout),
            (DeviceAlignment::Huge, MapPlacement::Memory, MapLayout::Deduplicated)
        );
        let args = read("destroy 3 all").unwrap();
        let DeviceCommand::Destroy(args) = args.command else { panic!("no destroy") };
        assert_eq!(args.devices, [DeviceChoice::One(3), DeviceChoice::All]);
    }

    #[test]
    fn refusals_name_a_correct_value() {
        assert_refused::<DeviceArgs>(&[
            ("create", "--size"),
            ("create --size 1G --align 3M", "write 4K, 2M or 1G"),
            ("create --size 1G --map disk", "possible values: mem, dev"),
            ("create --size 1G --phantom --file x", "cannot be used with"),
            ("destroy", "<DEVICE>"),
            ("destroy first", "the number of a device, or all"),
        ]);
    }
}
