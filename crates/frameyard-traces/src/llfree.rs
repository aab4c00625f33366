//! LLFree's trace files, as its program `replay` reads them.
//!
//! The file consists of pages of 4 KiB. The first holds three 32-bit numbers: pages behind it, CPUs, the highest frame. Each other page
//! holds the number of a CPU, 12 bytes of padding, and 255 entries of 128 bits: the time in µs (38 bits), the frame (24), whether it is
//! an allocation (1), the order (4), the flags (29), the process (32). All numbers have their low bits first. The entries of a CPU are in
//! the order of time; pages of different CPUs interleave. Source: `eval/src/bin/replay.rs` of luhsra/llfree-rs. Its replay ignores
//! entries of zeros, which fill the last page of each CPU.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};

use frameyard::{CpuId, MigrateType, Order, Pfn};
use frameyard_formats::TracedBlock;

use crate::{GfpFlags, PageEvent, TraceError, TraceEvent};

/// Bytes of a page.
pub(crate) const PAGE: usize = 4096;
/// Bytes before the first entry of a page.
const HEAD: usize = 16;
/// Bytes of an entry.
const ENTRY: usize = 16;
/// The most CPUs that a file may name.
const MOST_CPUS: u32 = 1 << 16;
/// A bit of the flags that LLFree's kernel sets for the page cache. No kernel flag.
const PAGE_CACHE: u32 = 1 << 28;

/// Fields of an entry: first bit and width.
mod field {
    pub(super) const TIME: (u32, u32) = (0, 38);
    pub(super) const PFN: (u32, u32) = (38, 24);
    pub(super) const ALLOC: (u32, u32) = (62, 1);
    pub(super) const ORDER: (u32, u32) = (63, 4);
    pub(super) const FLAGS: (u32, u32) = (67, 29);
    pub(super) const PID: (u32, u32) = (96, 32);
}

fn get(entry: u128, (at, width): (u32, u32)) -> u64 {
    (entry >> at) as u64 & ((1 << width) - 1)
}

fn set(value: u64, (at, width): (u32, u32)) -> Option<u128> {
    (value >> width == 0).then_some(u128::from(value) << at)
}

/// The content of a file.
pub(crate) struct LlfreeTrace {
    /// Allocations and frees, in the order of time.
    pub(crate) events: Vec<TraceEvent>,
    /// Whether the last page is incomplete.
    pub(crate) is_truncated: bool,
}

fn word(page: &[u8], at: usize) -> u32 {
    page.get(at..at + 4).and_then(|bytes| bytes.try_into().ok()).map_or(0, u32::from_le_bytes)
}

/// Whether the first page of a file is the header of a trace.
pub(crate) fn is_header(page: &[u8]) -> bool {
    page.len() == PAGE && (1..=MOST_CPUS).contains(&word(page, 4)) && page[12..].iter().all(|byte| *byte == 0)
}

/// Reads a file, its header included.
pub(crate) fn read(source: &mut impl Read) -> Result<LlfreeTrace, TraceError> {
    let mut page = Vec::new();
    let mut next = |page: &mut Vec<u8>| -> io::Result<usize> {
        page.clear();
        source.take(PAGE as u64).read_to_end(page)
    };
    next(&mut page)?;
    if !is_header(&page) {
        return Err(TraceError::Llfree("the first page is no header"));
    }
    let cpus = word(&page, 4);
    let mut by_cpu = BTreeMap::<u32, Vec<TraceEvent>>::new();
    let is_truncated = loop {
        match next(&mut page)? {
            0 => break false,
            PAGE => {}
            _ => break true,
        }
        let cpu = word(&page, 0);
        if cpu >= cpus {
            return Err(TraceError::Llfree("a page names a CPU that the header does not count"));
        }
        let (entries, _) = page[HEAD..].as_chunks::<ENTRY>();
        let events = entries.iter().map(|bytes| u128::from_le_bytes(*bytes)).filter(|entry| *entry != 0);
        by_cpu.entry(cpu).or_default().extend(events.map(|entry| event(CpuId(cpu), entry)));
    };
    Ok(LlfreeTrace { events: by_time(&by_cpu.into_values().collect::<Vec<_>>()), is_truncated })
}

fn event(cpu: CpuId, entry: u128) -> TraceEvent {
    let (pfn, order) = (Pfn(get(entry, field::PFN)), Order(get(entry, field::ORDER) as u8));
    let what = if get(entry, field::ALLOC) == 1 {
        let gfp = GfpFlags(get(entry, field::FLAGS) as u32 & !PAGE_CACHE);
        // Flags of two types are wrong; the kernel takes such a request as movable.
        let migrate_type = gfp.to_gfp().migrate_type().unwrap_or(MigrateType::Movable);
        PageEvent::Alloc { pfn: Some(pfn), order, migrate_type, gfp }
    } else {
        PageEvent::Free(TracedBlock { pfn, order })
    };
    TraceEvent { time_us: get(entry, field::TIME), pid: get(entry, field::PID) as u32, cpu, what }
}

/// The events of all CPUs in the order of time. Of events at the same time an allocation comes first, as in LLFree's replay.
fn by_time(cpus: &[Vec<TraceEvent>]) -> Vec<TraceEvent> {
    let mut all = Vec::with_capacity(cpus.iter().map(Vec::len).sum());
    let mut next = vec![0; cpus.len()];
    let key = |event: &TraceEvent| (event.time_us, !matches!(event.what, PageEvent::Alloc { .. }));
    loop {
        let heads = cpus.iter().zip(&next).enumerate().filter_map(|(cpu, (events, at))| Some((cpu, events.get(*at)?)));
        let Some((cpu, event)) = heads.min_by_key(|(_, event)| key(event)) else { return all };
        all.push(*event);
        next[cpu] += 1;
    }
}

/// Writes a recording's allocations and frees as a trace of LLFree. Times count from the first event.
///
/// The format has no other events. Needs the memory of a page for each CPU.
#[derive(Debug)]
pub struct LlfreeWriter<W> {
    out: W,
    first_us: Option<u64>,
    pages: BTreeMap<u32, Vec<u8>>,
    written: u32,
    highest: u64,
    events: u64,
}

impl<W: Write + io::Seek> LlfreeWriter<W> {
    /// Begins a file.
    ///
    /// # Errors
    ///
    /// Those of `out`.
    pub fn new(mut out: W) -> Result<Self, TraceError> {
        out.write_all(&[0; PAGE])?;
        Ok(Self { out, first_us: None, pages: BTreeMap::new(), written: 0, highest: 0, events: 0 })
    }

    /// Adds an event, if it is an allocation or a free.
    ///
    /// # Errors
    ///
    /// [`TraceError::Export`] for a frame from 2^24 on or frame 0, a time from 2^38 µs after the first event on or before it, a flag from
    /// 2^28 on, or a CPU from 2^16 on; [`TraceError::Io`].
    pub fn event(&mut self, event: &TraceEvent) -> Result<(), TraceError> {
        let (pfn, order, alloc, gfp) = match event.what {
            PageEvent::Alloc { pfn: Some(pfn), order, gfp, .. } => (pfn, order, 1, gfp),
            PageEvent::Free(block) => (block.pfn, block.order, 0, GfpFlags(0)),
            _ => return Ok(()),
        };
        let first_us = *self.first_us.get_or_insert(event.time_us);
        let refuse = |what: &str| TraceError::Export(format!("LLFree's format cannot hold {what}: {event:?}"));
        if pfn.0 == 0 || event.cpu.0 >= MOST_CPUS || gfp.0 >= PAGE_CACHE {
            return Err(refuse("frame 0, a CPU from 65536 on or unknown flags"));
        }
        let time_us = event.time_us.checked_sub(first_us).ok_or_else(|| refuse("a time before the first event"))?;
        let fields = [
            set(time_us, field::TIME),
            set(pfn.0, field::PFN),
            set(alloc, field::ALLOC),
            set(u64::from(order.0), field::ORDER),
            set(u64::from(gfp.0), field::FLAGS),
            set(u64::from(event.pid), field::PID),
        ];
        let entry: Option<u128> = fields.into_iter().sum();
        let entry = entry.ok_or_else(|| refuse("so high a frame or so late a time"))?;
        let page = self.pages.entry(event.cpu.0).or_insert_with(|| new_page(event.cpu));
        page.extend(entry.to_le_bytes());
        if page.len() == PAGE {
            self.out.write_all(page)?;
            self.written += 1;
            *page = new_page(event.cpu);
        }
        self.highest = self.highest.max(pfn.0 + order.pages().0 - 1);
        self.events += 1;
        Ok(())
    }

    /// Writes the rest and the header. Returns the number of events written.
    ///
    /// # Errors
    ///
    /// Those of the output.
    pub fn finish(mut self) -> Result<u64, TraceError> {
        let cpus = self.pages.keys().next_back().map_or(1, |cpu| cpu + 1);
        for page in self.pages.values_mut().filter(|page| page.len() > HEAD) {
            page.resize(PAGE, 0);
            self.out.write_all(page)?;
            self.written += 1;
        }
        self.out.seek(io::SeekFrom::Start(0))?;
        for number in [self.written, cpus, self.highest as u32] {
            self.out.write_all(&number.to_le_bytes())?;
        }
        self.out.flush()?;
        Ok(self.events)
    }
}

fn new_page(cpu: CpuId) -> Vec<u8> {
    let mut page = Vec::with_capacity(PAGE);
    page.extend(cpu.0.to_le_bytes());
    page.resize(HEAD, 0);
    page
}
