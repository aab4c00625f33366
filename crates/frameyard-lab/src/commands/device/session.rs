//! A session: a process that holds a private yard with devices and answers requests until the last device is gone.

use std::fs::{self, File, TryLockError};
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use frameyard::devices::{DeviceError, DeviceId, DeviceInfo, DeviceRequest, Removal};
use frameyard::{ByteSize, Geometry, MemoryTable, NodeId, PageCount, Pfn, PfnRange, YardConfig};
use frameyard_host::{
    Backing, DeviceAlignment, DeviceBacking, DeviceMemory, DeviceMemoryError, DeviceSharing, FileGrowth,
    HostDeviceError, HostTopology, HostYard, MemoryError,
};

use super::exchange::{Answer, CreateOrder, DeviceRow, Request};
use crate::Failure;
use crate::boot::nanoseconds;

/// What a session prints when it accepts requests.
pub(super) const READY: &str = "ready";
/// What it prints if another session exists.
pub(super) const TAKEN: &str = "taken";

/// Some memory beside the devices.
const MEMORY: PfnRange = PfnRange { start: Pfn(0x10_0000), end: Pfn(0x10_4000) };
/// Where devices lie: 8 TiB, at multiples of the largest pages.
const SPACE: PfnRange = PfnRange { start: Pfn(0x20_0000), end: Pfn(0x20_0000 + (8 << 28)) };
/// Each device begins in its own section: two devices in one section would need the same order and layout.
const SECTION: u64 = 1 << 15;
const PAGE: u64 = 4096;
const PAGE_STRUCTURE: u64 = 64;
/// How long the session waits for the request of a connection.
const PATIENCE: Duration = Duration::from_secs(10);

/// Holds a session until its last device is destroyed.
pub(super) fn hold(socket: &Path) -> Result<(), Failure> {
    let said = |line: &str| {
        println!("{line}");
        io::stdout().flush().map_err(Failure::from)
    };
    let listener = match listen(socket) {
        Ok(Some(listener)) => listener,
        Ok(None) => return said(TAKEN),
        Err(error) => return said(&error.to_string()),
    };
    let session = match Session::new() {
        Ok(session) => session,
        Err(error) => return said(&error.to_string()),
    };
    said(READY)?;
    let done = session.serve(&listener.0);
    // Removed before the lock is released: the next session creates its own socket.
    let _ = fs::remove_file(socket);
    done
}

/// The socket, and the lock of the session that owns it; `None` if another session has it.
fn listen(socket: &Path) -> io::Result<Option<(UnixListener, File)>> {
    let mut name = socket.as_os_str().to_owned();
    name.push(".lock");
    let lock = File::options().create(true).truncate(false).write(true).open(PathBuf::from(name))?;
    match lock.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => return Ok(None),
        Err(TryLockError::Error(error)) => return Err(error),
    }
    // An earlier session ended without removing it.
    match fs::symlink_metadata(socket) {
        Ok(found) if found.file_type().is_socket() => fs::remove_file(socket)?,
        Ok(_) => return Err(io::Error::other("the path exists and is no socket")),
        Err(_) => {}
    }
    let listener = UnixListener::bind(socket)?;
    fs::set_permissions(socket, fs::Permissions::from_mode(0o600))?;
    Ok(Some((listener, lock)))
}

/// A yard with devices.
struct Session {
    yard: HostYard,
}

/// A device, beside what the yard knows of it.
struct Made {
    id: DeviceId,
    memory: Arc<DeviceMemory>,
    bring_up_ns: u64,
}

impl Session {
    fn new() -> Result<Self, Failure> {
        let host = HostTopology::current().map_err(Failure::run_time)?;
        let cpus = vec![NodeId(0); host.allowed().as_slice().len().max(1)];
        let config = YardConfig { device_space: Some(SPACE), ..YardConfig::new(&cpus) };
        let memory = MemoryTable { memory: &[(MEMORY, NodeId(0))], ..MemoryTable::default() };
        let yard = HostYard::builder().backing(Backing::Phantom).machine(&memory, &config).host(&host).build();
        Ok(Self { yard: yard.map_err(Failure::run_time)? })
    }

    /// Answers until the last device is gone. A session also ends if its first device cannot be created.
    fn serve(&self, listener: &UnixListener) -> Result<(), Failure> {
        let mut made = Vec::new();
        for stream in listener.incoming() {
            let Ok(stream) = stream else { continue };
            // A connection without a request only tested whether the session exists.
            let Ok(Some(request)) = read_request(&stream) else { continue };
            let answer = match self.answer(&request, &mut made) {
                Ok(rows) => Answer::Devices(rows),
                Err(failure) => failure.into(),
            };
            let line = serde_json::to_string(&answer).map_err(Failure::run_time)? + "\n";
            // A client that has gone needs no answer.
            let _ = (&stream).write_all(line.as_bytes());
            if made.is_empty() {
                break;
            }
        }
        Ok(())
    }

    fn answer(&self, request: &Request, made: &mut Vec<Made>) -> Result<Vec<DeviceRow>, Failure> {
        match request {
            Request::Create(order) => {
                made.push(self.create(order)?);
                made[made.len() - 1..].iter().map(|device| self.row(device)).collect()
            }
            Request::List => made.iter().map(|device| self.row(device)).collect(),
            Request::Destroy(numbers) => self.destroy(numbers.as_deref(), made),
        }
    }

    fn create(&self, order: &CreateOrder) -> Result<Made, Failure> {
        let align: DeviceAlignment = order.align.parse().map_err(Failure::input)?;
        let placement = order.map.parse().map_err(Failure::input)?;
        let layout = order.layout.parse().map_err(Failure::input)?;
        let memory = Arc::new(self.memory(order, align)?);
        let range = self.room(memory.frames(Geometry::X86_64), align)?;
        self.yard.platform().add_device(range, Arc::clone(&memory)).map_err(Failure::run_time)?;
        let order = align.order(Geometry::X86_64);
        let request = DeviceRequest { range, node: NodeId(0), order, layout, placement };
        let begin = Instant::now();
        match self.yard.map_device(request) {
            Ok(id) => Ok(Made { id, memory, bring_up_ns: nanoseconds(begin) }),
            Err(error) => {
                let taken_back = self.yard.remove_device(range);
                debug_assert!(taken_back.is_ok(), "no process has mapped it: {taken_back:?}");
                Err(refused(error))
            }
        }
    }

    /// The memory of the device.
    fn memory(&self, order: &CreateOrder, align: DeviceAlignment) -> Result<DeviceMemory, Failure> {
        let host = self.yard.platform().host();
        let Some(path) = &order.file else {
            let size = ByteSize(order.size.unwrap_or(0));
            let backing = if order.phantom { DeviceBacking::Phantom } else { DeviceBacking::Memfd };
            return DeviceMemory::builder(size, align).backing(backing).build(host).map_err(no_memory);
        };
        let found = fs::metadata(path);
        if found.as_ref().is_ok_and(|found| found.file_type().is_char_device()) {
            let path = path.clone();
            let Some(size) = order.size else {
                return DeviceMemory::dax(&path, DeviceSharing::Alone, host).map_err(no_memory);
            };
            let builder = DeviceMemory::builder(ByteSize(size), align).backing(DeviceBacking::Dax { path });
            return builder.build(host).map_err(no_memory);
        }
        let size = match (order.size, found) {
            (Some(size), _) => size,
            (None, Ok(found)) => found.len(),
            (None, Err(error)) => {
                let path = path.display();
                return Err(Failure::input(format!("{path}: {error}: name a file that is there, or say its --size")));
            }
        };
        let backing = DeviceBacking::File { path: path.clone(), growth: FileGrowth::Grow };
        DeviceMemory::builder(ByteSize(size), align).backing(backing).build(host).map_err(no_memory)
    }

    /// The first frames without a device.
    fn room(&self, frames: PageCount, align: DeviceAlignment) -> Result<PfnRange, Failure> {
        let unit = (align.size().0 / PAGE).max(SECTION);
        let mut taken: Vec<PfnRange> = self.yard.devices().list().map(|device| device.range).collect();
        taken.sort_by_key(|range| range.start.0);
        let mut start = SPACE.start.0.next_multiple_of(unit);
        for range in taken {
            if start + frames.0 <= range.start.0 {
                break;
            }
            start = start.max(range.end.0.next_multiple_of(unit));
        }
        if start + frames.0 <= SPACE.end.0 {
            return Ok(PfnRange::new(Pfn(start), frames));
        }
        let left = ByteSize(SPACE.end.0.saturating_sub(start) * PAGE);
        Err(Failure::input(format!(
            "no room for a device of {}: sessions have 8T for devices, and {left} are left at their end: destroy others, or take \
             another --session",
            ByteSize(frames.0 * PAGE)
        )))
    }

    fn info(&self, id: DeviceId) -> Result<DeviceInfo, Failure> {
        let found = self.yard.devices().list().find(|device| device.id == id);
        found.ok_or_else(|| Failure::run_time(DeviceError::NoSuchDevice(id)))
    }

    fn row(&self, made: &Made) -> Result<DeviceRow, Failure> {
        let device = self.info(made.id)?;
        let gone = || Failure::run_time(DeviceError::NotDevice(device.range.start));
        let offset = self.yard.core().map_offset(device.range.start).ok_or_else(gone)?;
        let full = ByteSize(device.range.count().0 * PAGE_STRUCTURE);
        let used = self.yard.map_region().memory_use(offset, full).map_err(Failure::run_time)?;
        Ok(DeviceRow {
            device: made.id.number(),
            size_bytes: device.range.count().0 * PAGE,
            align_bytes: device.order.pages().0 * PAGE,
            first_pfn: device.range.start.0,
            data_bytes: device.data.count().0 * PAGE,
            map: device.placement.name().to_owned(),
            layout: device.layout.name().to_owned(),
            structures: device.structures,
            map_bytes_equation: device.map_bytes.0,
            map_bytes_resident: Some(used.proportional.0),
            map_bytes_full: full.0,
            mappings: Some(used.mappings),
            page_table_entries: device.mappings,
            bring_up_ns: made.bring_up_ns,
            remove_ns: None,
            backing: made.memory.backing().name().to_owned(),
            path: made.memory.path().map(|path| path.display().to_string()),
        })
    }

    /// Destroys devices. All numbers are checked before the first device goes.
    fn destroy(&self, numbers: Option<&[u16]>, made: &mut Vec<Made>) -> Result<Vec<DeviceRow>, Failure> {
        let known: Vec<u16> = made.iter().map(|device| device.id.number()).collect();
        if let Some(unknown) = numbers.into_iter().flatten().find(|number| !known.contains(number)) {
            let known: Vec<String> = known.iter().map(u16::to_string).collect();
            return Err(Failure::input(format!("device {unknown} does not exist: there are {}", known.join(", "))));
        }
        let mut gone = Vec::new();
        for number in known.into_iter().filter(|number| numbers.is_none_or(|numbers| numbers.contains(number))) {
            let Some(place) = made.iter().position(|device| device.id.number() == number) else { continue };
            let row = self.row(&made[place])?;
            let range = PfnRange::new(Pfn(row.first_pfn), PageCount(row.size_bytes / PAGE));
            let begin = Instant::now();
            self.yard.unmap_device(made[place].id, Removal::Wait).map_err(Failure::run_time)?;
            let remove_ns = Some(nanoseconds(begin));
            self.yard.remove_device(range).map_err(Failure::run_time)?;
            made.remove(place);
            gone.push(DeviceRow { map_bytes_resident: None, mappings: None, remove_ns, ..row });
        }
        Ok(gone)
    }
}

fn read_request(stream: &UnixStream) -> io::Result<Option<Request>> {
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line)?;
    if line.is_empty() {
        return Ok(None);
    }
    serde_json::from_str(&line).map(Some).map_err(io::Error::other)
}

/// A refusal of the system is no bad input.
fn no_memory(error: DeviceMemoryError) -> Failure {
    match error {
        DeviceMemoryError::Memory(MemoryError::System { .. }) | DeviceMemoryError::DaxUnknown { .. } => {
            Failure::run_time(error)
        }
        _ => Failure::input(error),
    }
}

/// As [`no_memory`].
fn refused(error: HostDeviceError) -> Failure {
    let is_run_time = match &error {
        HostDeviceError::Yard(error) => matches!(error, DeviceError::NoMapMemory(_) | DeviceError::WorkerPanicked),
        _ => true,
    };
    if is_run_time { Failure::run_time(error) } else { Failure::input(error) }
}
