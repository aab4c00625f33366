//! `device`: devices whose memory has page structures, in a session that outlives the command.
//!
//! A session is a process with a private yard ([`session`]). Clients find it by its socket ([`client`]). Requests and answers
//! are lines of JSON ([`exchange`]). A memory file with a path would not suffice: devices of a shared yard cannot hold their
//! own page structures, and a memory file ends with the last process that has it open.

use std::path::Path;

use frameyard::devices::MapPlacement;

use crate::Failure;
use crate::chosen_machine::print_notes;
use crate::cli::{
    DeviceArgs, DeviceChoice, DeviceCommand, DeviceCreateArgs, DeviceDestroyArgs, DeviceSessionArgs, OutputArgs,
};
use crate::output::{Format, Report, Row};

mod client;
mod exchange;
mod session;

use client::Start;
use exchange::{CreateOrder, DeviceRow, Request};

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
pub(super) fn hold_session(args: &DeviceSessionArgs) -> Result<(), Failure> {
    session::hold(&args.socket)
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
