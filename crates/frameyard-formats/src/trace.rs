//! Lines of a kernel's page-allocator trace, as ftrace prints them.
//!
//! ```text
//!            cargo-3368    [001] ...2.  2470.144200: mm_page_free: page=00000000ca9b14ed pfn=0x248d9f order=0
//! ```
//!
//! The fields before the event are task and process, CPU, flags and seconds. Source: the kernel's `include/trace/events/kmem.h` and
//! `trace_output.c`.

use core::fmt;

use frameyard::{CpuId, MigrateType, Order, Pfn};

/// The tracepoints of the page allocator that [`PageEvent`] describes.
pub const PAGE_TRACEPOINTS: [&str; 6] = [
    "mm_page_alloc",
    "mm_page_free",
    "mm_page_free_batched",
    "mm_page_alloc_zone_locked",
    "mm_page_pcpu_drain",
    "mm_page_alloc_extfrag",
];

/// A block that an event is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TracedBlock {
    /// Its first frame.
    pub pfn: Pfn,
    /// Its order.
    pub order: Order,
}

/// What the page allocator did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PageEvent<'a> {
    /// `mm_page_alloc`: a request was served, or failed (no block).
    Alloc {
        /// The block; `None` if the request failed.
        block: Option<TracedBlock>,
        /// The type of the request.
        migrate_type: MigrateType,
        /// The flags of the request, as the kernel names them.
        gfp: &'a str,
    },
    /// `mm_page_free`: a block was freed.
    Free(TracedBlock),
    /// `mm_page_free_batched`: a frame was freed in a batch. A `mm_page_free` of the same frame comes before it.
    FreeBatched(TracedBlock),
    /// `mm_page_alloc_zone_locked`: a block left the free lists under the zone lock.
    AllocZoneLocked {
        /// The block.
        block: TracedBlock,
        /// Whether it went to a per-CPU list; `None` where the kernel does not print it (before 5.19).
        percpu_refill: Option<bool>,
    },
    /// `mm_page_pcpu_drain`: a block left a per-CPU list for the free lists.
    PcpuDrain(TracedBlock),
    /// `mm_page_alloc_extfrag`: a request was served from pageblocks of another type.
    ExtFrag,
}

/// An event, and where and when it happened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TraceEvent<'a> {
    /// The process.
    pub pid: u32,
    /// The CPU.
    pub cpu: CpuId,
    /// Microseconds of the trace's clock.
    pub time_us: u64,
    /// What happened.
    pub event: PageEvent<'a>,
}

/// A line of a trace.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TraceLine<'a> {
    /// A comment, without its `#`.
    Comment(&'a str),
    /// `CPU:n [LOST m EVENTS]`: the CPU's buffer was full.
    Lost(u64),
    /// An event of another tracepoint, by its name.
    Other(&'a str),
    /// An event of the page allocator.
    Event(TraceEvent<'a>),
}

/// Error of parsing a [`TraceLine`]: what the line lacks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BadTraceLine(&'static str);

impl fmt::Display for BadTraceLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "no line of an ftrace text: {} expected", self.0)
    }
}

impl core::error::Error for BadTraceLine {}

impl<'a> TraceLine<'a> {
    /// Parses a line, without its line break.
    ///
    /// # Errors
    ///
    /// [`BadTraceLine`] names the first field that is missing or wrong.
    pub fn parse(line: &'a str) -> Result<Self, BadTraceLine> {
        if let Some(comment) = line.strip_prefix('#') {
            return Ok(Self::Comment(comment.trim()));
        }
        if let Some(lost) = lost(line) {
            return Ok(Self::Lost(lost));
        }
        let (task, rest) = split_cpu(line).ok_or(BadTraceLine("[CPU]"))?;
        let (cpu, rest) = rest.split_once(']').ok_or(BadTraceLine("[CPU]"))?;
        let cpu = CpuId(cpu.parse().map_err(|_| BadTraceLine("[CPU]"))?);
        let pid = task.trim_end().rsplit_once('-').and_then(|(_, pid)| pid.parse().ok());
        let pid = pid.ok_or(BadTraceLine("task-PID before [CPU]"))?;
        let (head, fields) = rest.split_once(": ").ok_or(BadTraceLine("time and ':'"))?;
        let time = head.split_ascii_whitespace().next_back().and_then(microseconds);
        let time_us = time.ok_or(BadTraceLine("seconds with 6 decimals"))?;
        let (name, fields) = fields.split_once(':').ok_or(BadTraceLine("event and ':'"))?;
        match event(name, Fields(fields))? {
            Some(event) => Ok(Self::Event(TraceEvent { pid, cpu, time_us, event })),
            None => Ok(Self::Other(name)),
        }
    }
}

/// The number in `CPU:1 [LOST 3 EVENTS]`.
fn lost(line: &str) -> Option<u64> {
    let (_, rest) = line.strip_prefix("CPU:")?.split_once(" [LOST ")?;
    rest.strip_suffix(" EVENTS]")?.parse().ok()
}

/// The parts before and after the bracket of the CPU. A task's name may have brackets, too, with no number between them.
fn split_cpu(line: &str) -> Option<(&str, &str)> {
    let is_cpu = |at: &usize| line[at + 1..].split(']').next().is_some_and(is_number);
    let at = line.match_indices(" [").map(|(at, _)| at + 1).find(is_cpu)?;
    Some((&line[..at], &line[at + 1..]))
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// Microseconds of `2470.141196`.
fn microseconds(text: &str) -> Option<u64> {
    let (seconds, micros) = text.split_once('.')?;
    if micros.len() != 6 || !is_number(micros) {
        return None;
    }
    seconds.parse::<u64>().ok()?.checked_mul(1_000_000)?.checked_add(micros.parse().ok()?)
}

/// `name=value` fields, parted by spaces. The last value may have spaces around its bars.
#[derive(Clone, Copy)]
struct Fields<'a>(&'a str);

impl<'a> Fields<'a> {
    fn get(self, name: &str) -> Option<&'a str> {
        self.0.split_ascii_whitespace().find_map(|field| field.strip_prefix(name)?.strip_prefix('='))
    }

    fn pfn(self) -> Result<Pfn, BadTraceLine> {
        let digits = self.get("pfn").map(|value| value.strip_prefix("0x").unwrap_or(value));
        let pfn = digits.and_then(|digits| u64::from_str_radix(digits, 16).ok());
        pfn.map(Pfn).ok_or(BadTraceLine("pfn=0x…"))
    }

    fn order(self) -> Result<Order, BadTraceLine> {
        let order = self.get("order").and_then(|value| value.parse().ok()).filter(|order| *order < 16);
        order.map(Order).ok_or(BadTraceLine("order= below 16"))
    }

    fn block(self) -> Result<TracedBlock, BadTraceLine> {
        Ok(TracedBlock { pfn: self.pfn()?, order: self.order()? })
    }

    fn migrate_type(self) -> Result<MigrateType, BadTraceLine> {
        let bits = self.get("migratetype").and_then(|value| value.parse().ok());
        bits.and_then(MigrateType::from_bits).ok_or(BadTraceLine("migratetype= from 0 to 5"))
    }
}

/// The event of that name; `None` if it is none of the page allocator.
fn event<'a>(name: &str, fields: Fields<'a>) -> Result<Option<PageEvent<'a>>, BadTraceLine> {
    Ok(Some(match name {
        "mm_page_alloc" => PageEvent::Alloc {
            // A failed request has frame 0, which no kernel hands out.
            block: Some(fields.block()?).filter(|block| block.pfn.0 != 0),
            migrate_type: fields.migrate_type()?,
            gfp: fields.get("gfp_flags").ok_or(BadTraceLine("gfp_flags="))?,
        },
        "mm_page_free" => PageEvent::Free(fields.block()?),
        "mm_page_free_batched" => PageEvent::FreeBatched(fields.block()?),
        "mm_page_alloc_zone_locked" => PageEvent::AllocZoneLocked {
            block: fields.block()?,
            percpu_refill: fields.get("percpu_refill").map(|value| value != "0"),
        },
        "mm_page_pcpu_drain" => PageEvent::PcpuDrain(fields.block()?),
        "mm_page_alloc_extfrag" => PageEvent::ExtFrag,
        _ => return Ok(None),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALLOC: &str = "          rec.sh-3364    [000] .....  2470.141196: mm_page_alloc: page=00000000e462e5a3 pfn=0x27c8a2 order=3 migratetype=1 gfp_flags=GFP_KERNEL|__GFP_ZERO";

    #[test]
    fn an_allocation_has_its_process_cpu_time_block_and_flags() {
        let block = Some(TracedBlock { pfn: Pfn(0x0027_c8a2), order: Order(3) });
        let event = PageEvent::Alloc { block, migrate_type: MigrateType::Movable, gfp: "GFP_KERNEL|__GFP_ZERO" };
        let expected = TraceEvent { pid: 3364, cpu: CpuId(0), time_us: 2_470_141_196, event };
        assert_eq!(TraceLine::parse(ALLOC), Ok(TraceLine::Event(expected)));
    }

    #[test]
    fn a_failed_request_has_no_block() {
        let line = ALLOC.replace("pfn=0x27c8a2", "pfn=0x0");
        let Ok(TraceLine::Event(TraceEvent { event: PageEvent::Alloc { block, .. }, .. })) = TraceLine::parse(&line)
        else {
            panic!("{line}");
        };
        assert_eq!(block, None);
    }

    #[test]
    fn tasks_may_have_spaces_hyphens_and_brackets_in_their_names() {
        for task in ["kworker/1:0-ev [x]-8043", "a b-c-8043", "[7z-8043", "<...>-8043"] {
            let line = std::format!(
                "  {task}  [001] d..3. 1.000002: mm_page_pcpu_drain: page=0 pfn=0x10 order=0 migratetype=1"
            );
            let Ok(TraceLine::Event(event)) = TraceLine::parse(&line) else { panic!("{line}") };
            let block = TracedBlock { pfn: Pfn(16), order: Order(0) };
            assert_eq!((event.pid, event.cpu, event.time_us), (8043, CpuId(1), 1_000_002));
            assert_eq!(event.event, PageEvent::PcpuDrain(block));
        }
    }

    #[test]
    fn comments_lost_events_and_other_tracepoints_are_no_errors() {
        assert_eq!(TraceLine::parse("# tracer: nop"), Ok(TraceLine::Comment("tracer: nop")));
        assert_eq!(TraceLine::parse("CPU:1 [LOST 37 EVENTS]"), Ok(TraceLine::Lost(37)));
        let other = "  x-1  [000] ..... 0.000001: sched_switch: prev_comm=x prev_pid=1";
        assert_eq!(TraceLine::parse(other), Ok(TraceLine::Other("sched_switch")));
    }

    #[test]
    fn a_wrong_line_names_the_field_that_is_wrong() {
        let of = |line: &str| TraceLine::parse(line).unwrap_err().0;
        assert_eq!(of(""), "[CPU]");
        assert_eq!(of("hello world"), "[CPU]");
        assert_eq!(of(&ALLOC.replace("-3364", "")), "task-PID before [CPU]");
        assert_eq!(of(&ALLOC.replace("2470.141196", "now")), "seconds with 6 decimals");
        assert_eq!(of(&ALLOC.replace("0x27c8a2", "0xyz")), "pfn=0x…");
        assert_eq!(of(&ALLOC.replace("order=3", "order=16")), "order= below 16");
        assert_eq!(of(&ALLOC.replace("migratetype=1", "migratetype=9")), "migratetype= from 0 to 5");
        assert_eq!(of(ALLOC.split(" gfp_flags").next().unwrap()), "gfp_flags=");
    }

    #[test]
    fn no_prefix_of_a_line_panics() {
        let line = ALLOC.replace("rec.sh", "ré [é]");
        for (at, _) in line.char_indices() {
            let _ = TraceLine::parse(&line[..at]);
        }
    }
}
