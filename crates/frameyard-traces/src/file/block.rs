//! A block of events as columns, each compressed on its own.
//!
//! | column | for each event |
//! |---|---|
//! | classes | nothing: lists the classes, 9 bytes each |
//! | class | the number of its class |
//! | time | the difference to the event before, in µs; the first one's to 0 |
//! | place | its CPU exclusive-or that of the event before, times two; plus one if the CPU has another process than at its last event |
//! | process | that process |
//! | one for each [`Kind`] | the frame, as [`Lists`] code it |

use std::collections::HashMap;

use frameyard::CpuId;

use super::classes::{Class, Classes};
use super::lists::{Kind, Lists};
use super::packed;
use super::varint::{put, put_difference, take, take_difference};
use crate::TraceEvent;

/// The most events of a block.
pub(super) const EVENTS: usize = 1 << 16;
/// Columns before those of the kinds.
const FIRST: usize = 5;
const COLUMNS: usize = FIRST + Kind::ALL.len();
/// The most bytes of a column: an event has at most two numbers of ten bytes in one.
const MOST_BYTES: usize = EVENTS * 20;

/// Encodes up to [`EVENTS`] events.
pub(super) fn encode(events: &[TraceEvent]) -> Vec<u8> {
    let mut classes = Classes::default();
    let mut columns: [Vec<u8>; COLUMNS] = Default::default();
    let (mut time_us, mut cpu) = (0, CpuId(0));
    let mut processes = HashMap::<CpuId, u32>::new();
    let mut lists = Lists::default();
    for event in events {
        let (class, frame) = Class::of(&event.what);
        put(&mut columns[1], classes.number(class));
        put_difference(&mut columns[2], event.time_us, time_us);
        let is_other = processes.insert(event.cpu, event.pid) != Some(event.pid);
        put(&mut columns[3], u64::from(event.cpu.0 ^ cpu.0) << 1 | u64::from(is_other));
        if is_other {
            put(&mut columns[4], u64::from(event.pid));
        }
        let kind = class.kind();
        lists.put(&mut columns[FIRST + kind as usize], (event.cpu, class.order(), kind), frame);
        (time_us, cpu) = (event.time_us, event.cpu);
    }
    columns[0] = classes.into_bytes();
    let mut out = Vec::new();
    put(&mut out, events.len() as u64);
    columns.iter().for_each(|column| packed::put(&mut out, column));
    out
}

/// Decodes a block; `None` if it is none that [`encode`] returned.
pub(super) fn decode(mut bytes: &[u8]) -> Option<Vec<TraceEvent>> {
    let count = usize::try_from(take(&mut bytes)?).ok().filter(|count| *count <= EVENTS)?;
    let mut columns: [Vec<u8>; COLUMNS] = Default::default();
    for column in &mut columns {
        *column = packed::take(&mut bytes, MOST_BYTES)?;
    }
    let classes = Classes::read(&columns[0])?;
    let mut columns = columns.each_ref().map(|column| &column[..]);
    let (mut time_us, mut cpu) = (0, CpuId(0));
    let mut processes = HashMap::<CpuId, u32>::new();
    let mut lists = Lists::default();
    let mut events = Vec::with_capacity(count);
    for _ in 0..count {
        let class = *classes.get(usize::try_from(take(&mut columns[1])?).ok()?)?;
        time_us = take_difference(&mut columns[2], time_us)?;
        let place = take(&mut columns[3])?;
        cpu = CpuId(cpu.0 ^ u32::try_from(place >> 1).ok()?);
        if place & 1 != 0 {
            processes.insert(cpu, u32::try_from(take(&mut columns[4])?).ok()?);
        }
        let kind = class.kind();
        let frame = lists.take(&mut columns[FIRST + kind as usize], (cpu, class.order(), kind))?;
        events.push(TraceEvent { time_us, pid: *processes.get(&cpu)?, cpu, what: class.event(frame)? });
    }
    Some(events)
}
