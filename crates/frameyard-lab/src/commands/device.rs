//! `device`: devices whose memory has page structures, in a session that outlives the command.
//!
//! A session is a process with a private yard ([`session`]), found by its socket ([`client`]); each request is a line of JSON
//! and so is the answer ([`exchange`]). A memory file that is kept by a path would not do: devices of a shared yard cannot hold
//! their own page structures, and a memory file lives no longer than those who have it open.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use frameyard::ByteSize;
use frameyard::devices::MapPlacement;

use crate::Failure;
use crate::cli::{
    DeviceArgs, DeviceChoice, DeviceCommand, DeviceCreateArgs, DeviceDestroyArgs, DeviceSessionArgs, OutputArgs,
};
use crate::output::{self, Outcome, RoundedSize, RowError, Rows, Table};

mod client;
mod exchange;
mod session;

use exchange::{CreateOrder, DeviceRow, Request};

/// How often a session is started that ends before it is asked, as its last device was just destroyed.
const ATTEMPTS: u32 = 4;

/// Makes, lists or destroys.
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
            // No session has no devices.
            ("device list", socket, rows.unwrap_or_default(), &args.output)
        }
        DeviceCommand::Destroy(args) => {
            let socket = client::socket(&args.session)?;
            let rows = client::ask(&socket, &Request::Destroy(chosen(args)))?;
            let no_session =
                || Failure::input(format!("{}: no session: it has no devices to destroy", socket.display()));
            ("device destroy", socket.clone(), rows.ok_or_else(no_session)?, &args.output)
        }
    };
    output::print(&DeviceOutcome { name, socket, rows }, form)
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
    // The session is somewhere else.
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
        client::start(socket)?;
        if let Some(rows) = client::ask(socket, &request)? {
            return Ok(rows);
        }
    }
    Err(Failure::run_time(format!("{}: sessions end before they can be asked", socket.display())))
}

/// Numbers of devices; none for all.
fn chosen(args: &DeviceDestroyArgs) -> Option<Vec<u16>> {
    let number = |choice: &DeviceChoice| match choice {
        DeviceChoice::One(number) => Some(*number),
        DeviceChoice::All => None,
    };
    args.devices.iter().map(number).collect()
}

/// Devices of a session.
struct DeviceOutcome {
    name: &'static str,
    socket: PathBuf,
    rows: Vec<DeviceRow>,
}

impl Outcome for DeviceOutcome {
    fn command(&self) -> &'static str {
        self.name
    }

    fn totals(&self) -> serde_json::Map<String, serde_json::Value> {
        serde_json::Map::from_iter([("session".to_owned(), self.socket.display().to_string().into())])
    }

    fn rows(&self) -> Result<Rows, RowError> {
        Rows::of(&self.rows)
    }

    fn write_text(&self, out: &mut dyn Write) -> io::Result<()> {
        if self.rows.is_empty() {
            return writeln!(out, "no devices");
        }
        let size = |bytes: u64| RoundedSize(ByteSize(bytes)).to_string();
        let or_none = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
        let ms = |ns: Option<u64>| or_none(ns.map(|ns| format!("{:.3}", ns as f64 / 1e6)));
        let mut table = Table::new([
            "device",
            "size",
            "align",
            "data",
            "map",
            "layout",
            "structures",
            "by equation",
            "resident",
            "if full",
            "mappings",
            "bring-up ms",
            "remove ms",
            "backing",
        ]);
        for row in &self.rows {
            table.push([
                row.device.to_string(),
                ByteSize(row.size_bytes).to_string(),
                ByteSize(row.align_bytes).to_string(),
                size(row.data_bytes),
                row.map.clone(),
                row.layout.clone(),
                row.structures.to_string(),
                size(row.map_bytes_equation),
                or_none(row.map_bytes_resident.map(size)),
                size(row.map_bytes_full),
                or_none(row.mappings.map(|mappings| mappings.to_string())),
                ms(Some(row.bring_up_ns)),
                ms(row.remove_ns),
                row.path.clone().unwrap_or_else(|| row.backing.clone()),
            ]);
        }
        table.write(out)
    }
}
