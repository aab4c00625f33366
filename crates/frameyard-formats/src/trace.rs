//! Lines of a kernel's page-allocator trace, as ftrace, `trace-cmd report` and `perf script` print them.
//!
//! ```text
//!            cargo-3368    [001] ...2.  2470.144200: mm_page_free: page=00000000ca9b14ed pfn=0x248d9f order=0
//!            cargo-3368  [001]  2470.144200: mm_page_free:         page=0x248d9f pfn=0x248d9f order=0
//!            cargo  3368 [001]  2470.144200:         kmem:mm_page_free: page=0x248d9f pfn=0x248d9f order=0
//! ```
//!
//! The fields before the event are task and process, CPU, flags, and time in seconds. Sources: the kernel's
//! `include/trace/events/kmem.h` and `trace_output.c`, trace-cmd's `trace-read.c`, perf's `builtin-script.c`.

use core::fmt;

use frameyard::{CpuId, MigrateType, Order, Pfn};

use crate::GfpFlags;

/// The tracepoints of the page allocator that [`PageEvent`] describes.
pub const PAGE_TRACEPOINTS: [&str; 6] = [
    "mm_page_alloc",
    "mm_page_free",
    "mm_page_free_batched",
    "mm_page_alloc_zone_locked",
    "mm_page_pcpu_drain",
    "mm_page_alloc_extfrag",
];

/// The block of an event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TracedBlock {
    /// Its first frame.
    pub pfn: Pfn,
    /// Its order.
    pub order: Order,
}

/// What the page allocator did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PageEvent {
    /// `mm_page_alloc`: a request was served, or failed (then there is no frame).
    Alloc {
        /// The first frame; `None` if the request failed.
        pfn: Option<Pfn>,
        /// The order of the request.
        order: Order,
        /// The type of the request.
        migrate_type: MigrateType,
        /// The flags of the request.
        gfp: GfpFlags,
    },
    /// `mm_page_free`: a block was freed.
    Free(TracedBlock),
    /// `mm_page_free_batched`: a frame was freed in a batch. It is preceded by an `mm_page_free` of the same frame.
    FreeBatched(TracedBlock),
    /// `mm_page_alloc_zone_locked`: a block left the free lists under the zone lock.
    AllocZoneLocked {
        /// The block.
        block: TracedBlock,
        /// The type of the request.
        migrate_type: MigrateType,
        /// Whether the block went to a per-CPU list; `None` if the kernel does not print that (before 5.19).
        percpu_refill: Option<bool>,
    },
    /// `mm_page_pcpu_drain`: a block went from a per-CPU list to the free lists.
    PcpuDrain {
        /// The block.
        block: TracedBlock,
        /// The migration type of the per-CPU list.
        migrate_type: MigrateType,
    },
    /// `mm_page_alloc_extfrag`: a request was served from pageblocks of another type.
    ExtFrag(ExtFrag),
    /// The recorder lost this many events here. [`TraceLine::parse`] never returns it: such a line has no time, so it
    /// is a [`TraceLine::Lost`].
    Lost(u64),
}

impl PageEvent {
    /// The name of the tracepoint; `lost` for lost events.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Alloc { .. } => "mm_page_alloc",
            Self::Free(_) => "mm_page_free",
            Self::FreeBatched(_) => "mm_page_free_batched",
            Self::AllocZoneLocked { .. } => "mm_page_alloc_zone_locked",
            Self::PcpuDrain { .. } => "mm_page_pcpu_drain",
            Self::ExtFrag(_) => "mm_page_alloc_extfrag",
            Self::Lost(_) => "lost",
        }
    }
}

/// A request that was served from pageblocks of another type.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ExtFrag {
    /// The first frame of the block that was taken.
    pub pfn: Pfn,
    /// The order of the request.
    pub order: Order,
    /// The order of the block that was taken.
    pub fallback_order: Order,
    /// The type of the request.
    pub migrate_type: MigrateType,
    /// The type of the block that was taken.
    pub fallback_type: MigrateType,
    /// Whether the pageblock changed to the type of the request.
    pub changes_pageblock: bool,
}

/// An event, and where and when it happened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TraceEvent {
    /// The time in microseconds of the trace's clock. A later event may have an earlier time, because the clocks of
    /// CPUs differ.
    pub time_us: u64,
    /// The process.
    pub pid: u32,
    /// The CPU.
    pub cpu: CpuId,
    /// What happened.
    pub what: PageEvent,
}

/// A line of a trace.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TraceLine<'a> {
    /// A comment, without its `#`; an empty line; or one of the lines that `trace-cmd report` prints before the events.
    Comment(&'a str),
    /// `CPU:n [LOST m EVENTS]`: m events were lost because the CPU's buffer was full.
    Lost(u64),
    /// An event of another tracepoint, with its name.
    Other(&'a str),
    /// An event of the page allocator.
    Event(TraceEvent),
}

/// Error of parsing a [`TraceLine`]. It says what the line lacks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BadTraceLine(&'static str);

impl BadTraceLine {
    /// The error for a line that lacks this.
    #[must_use]
    pub const fn new(lacks: &'static str) -> Self {
        Self(lacks)
    }
}

impl fmt::Display for BadTraceLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "no line of a trace: {} expected", self.0)
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
        if let Some(comment) = comment(line) {
            return Ok(Self::Comment(comment));
        }
        if let Some(lost) = lost(line) {
            return Ok(Self::Lost(lost));
        }
        let RawTraceLine { time_us, pid, cpu, text } = RawTraceLine::parse(line)?;
        let (name, fields) =
            text.strip_prefix("kmem:").unwrap_or(text).split_once(':').ok_or(BadTraceLine("event and ':'"))?;
        match event(name, Fields(fields))? {
            Some(what) => Ok(Self::Event(TraceEvent { time_us, pid, cpu, what })),
            None => Ok(Self::Other(name)),
        }
    }
}

/// A line with any event: where and when it happened, and what the tracepoint printed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RawTraceLine<'a> {
    /// Microseconds of the trace's clock.
    pub time_us: u64,
    /// The process or the thread.
    pub pid: u32,
    /// The CPU.
    pub cpu: CpuId,
    /// The text after the time: the name of the event and its fields.
    pub text: &'a str,
}

impl<'a> RawTraceLine<'a> {
    /// Parses a line that is neither a comment nor a report of lost events.
    ///
    /// # Errors
    ///
    /// [`BadTraceLine`] names the first field that is missing or wrong.
    pub fn parse(line: &'a str) -> Result<Self, BadTraceLine> {
        let (task, rest) = split_cpu(line).ok_or(BadTraceLine("[CPU]"))?;
        let (cpu, rest) = rest.split_once(']').ok_or(BadTraceLine("[CPU]"))?;
        let cpu = CpuId(cpu.parse().map_err(|_| BadTraceLine("[CPU]"))?);
        let pid = task.trim_end().rsplit_once(['-', ' ']).and_then(|(_, pid)| process(pid));
        let pid = pid.ok_or(BadTraceLine("task-PID before [CPU]"))?;
        let (head, text) = rest.split_once(": ").ok_or(BadTraceLine("time and ':'"))?;
        let time = head.split_ascii_whitespace().next_back().and_then(microseconds);
        let time_us = time.ok_or(BadTraceLine("seconds with 6 decimals"))?;
        Ok(Self { time_us, pid, cpu, text: text.trim_ascii_start() })
    }
}

/// The text of a comment: after `#`, an empty line, or a line that `trace-cmd report` prints before the events.
fn comment(line: &str) -> Option<&str> {
    let head = ["cpus=", "version = ", "CPU "];
    match line.strip_prefix('#') {
        Some(comment) => Some(comment.trim()),
        None if line.trim_ascii().is_empty() || head.iter().any(|head| line.starts_with(head)) => Some(line.trim()),
        None => None,
    }
}

/// The number of `3368`, or of `3367/3368`, a process and its thread.
fn process(text: &str) -> Option<u32> {
    text.rsplit_once('/').map_or(text, |(_, thread)| thread).parse().ok()
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

/// Microseconds of `2470.141196`, or of nanoseconds, rounded down.
fn microseconds(text: &str) -> Option<u64> {
    let (seconds, micros) = text.split_once('.')?;
    if !matches!(micros.len(), 6 | 9) || !is_number(micros) {
        return None;
    }
    seconds.parse::<u64>().ok()?.checked_mul(1_000_000)?.checked_add(micros[..6].parse().ok()?)
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
        self.order_of("order").ok_or(BadTraceLine("order= below 16"))
    }

    fn order_of(self, name: &str) -> Option<Order> {
        self.get(name).and_then(|value| value.parse().ok()).filter(|order| *order < 16).map(Order)
    }

    fn block(self) -> Result<TracedBlock, BadTraceLine> {
        Ok(TracedBlock { pfn: self.pfn()?, order: self.order()? })
    }

    fn migrate_type(self) -> Result<MigrateType, BadTraceLine> {
        self.type_of("migratetype").ok_or(BadTraceLine("migratetype= from 0 to 5"))
    }

    fn type_of(self, name: &str) -> Option<MigrateType> {
        self.get(name)
            .and_then(|value| value.parse().ok())
            .and_then(MigrateType::from_bits)
            .filter(|of| MigrateType::ALL.contains(of))
    }

    fn extfrag(self) -> Option<ExtFrag> {
        Some(ExtFrag {
            pfn: self.pfn().ok()?,
            order: self.order_of("alloc_order")?,
            fallback_order: self.order_of("fallback_order")?,
            migrate_type: self.type_of("alloc_migratetype")?,
            fallback_type: self.type_of("fallback_migratetype")?,
            changes_pageblock: self.get("change_ownership")? != "0",
        })
    }
}

/// The event of that name; `None` if it is none of the page allocator.
fn event(name: &str, fields: Fields<'_>) -> Result<Option<PageEvent>, BadTraceLine> {
    Ok(Some(match name {
        "mm_page_alloc" => PageEvent::Alloc {
            // A failed request has frame 0, which no kernel hands out.
            pfn: Some(fields.pfn()?).filter(|pfn| pfn.0 != 0),
            order: fields.order()?,
            migrate_type: fields.migrate_type()?,
            gfp: fields.get("gfp_flags").map(GfpFlags::parse).ok_or(BadTraceLine("gfp_flags="))?,
        },
        "mm_page_free" => PageEvent::Free(fields.block()?),
        "mm_page_free_batched" => PageEvent::FreeBatched(fields.block()?),
        "mm_page_alloc_zone_locked" => PageEvent::AllocZoneLocked {
            block: fields.block()?,
            migrate_type: fields.migrate_type()?,
            percpu_refill: fields.get("percpu_refill").map(|value| value != "0"),
        },
        "mm_page_pcpu_drain" => PageEvent::PcpuDrain { block: fields.block()?, migrate_type: fields.migrate_type()? },
        "mm_page_alloc_extfrag" => {
            PageEvent::ExtFrag(fields.extfrag().ok_or(BadTraceLine("the orders and types of a fallback"))?)
        }
        _ => return Ok(None),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALLOC: &str = "          rec.sh-3364    [000] .....  2470.141196: mm_page_alloc: page=00000000e462e5a3 pfn=0x27c8a2 order=3 migratetype=1 gfp_flags=GFP_KERNEL|__GFP_ZERO";

    #[test]
    fn an_allocation_has_its_process_cpu_time_block_and_flags() {
        let (pfn, migrate_type) = (Some(Pfn(0x0027_c8a2)), MigrateType::Movable);
        let what =
            PageEvent::Alloc { pfn, order: Order(3), migrate_type, gfp: GfpFlags::parse("GFP_KERNEL|__GFP_ZERO") };
        let expected = TraceEvent { pid: 3364, cpu: CpuId(0), time_us: 2_470_141_196, what };
        assert_eq!(TraceLine::parse(ALLOC), Ok(TraceLine::Event(expected)));
    }

    #[test]
    fn a_failed_request_has_no_block() {
        let line = ALLOC.replace("pfn=0x27c8a2", "pfn=0x0");
        let Ok(TraceLine::Event(TraceEvent { what: PageEvent::Alloc { pfn, order, .. }, .. })) =
            TraceLine::parse(&line)
        else {
            panic!("{line}");
        };
        assert_eq!((pfn, order), (None, Order(3)));
    }

    #[test]
    fn the_three_programs_print_the_same_event() {
        let ftrace = "           cargo-3368    [001] ...2.  2470.144200: mm_page_free: page=00000000ca9b14ed pfn=0x248d9f order=0";
        let trace_cmd =
            "           cargo-3368  [001]  2470.144200: mm_page_free:         page=0x248d9f pfn=0x248d9f order=0";
        let perf = "           cargo  3368 [001]  2470.144200:                kmem:mm_page_free: page=0x248d9f pfn=0x248d9f order=0";
        let threads = perf.replace("3368", "3367/3368").replace("144200:", "144200999:");
        let what = PageEvent::Free(TracedBlock { pfn: Pfn(0x0024_8d9f), order: Order(0) });
        let expected = TraceEvent { pid: 3368, cpu: CpuId(1), time_us: 2_470_144_200, what };
        for line in [ftrace, trace_cmd, perf, &threads] {
            assert_eq!(TraceLine::parse(line), Ok(TraceLine::Event(expected)), "{line}");
        }
        assert_eq!(TraceLine::parse("cpus=2"), Ok(TraceLine::Comment("cpus=2")));
        assert_eq!(TraceLine::parse(""), Ok(TraceLine::Comment("")));
    }

    #[test]
    fn a_fallback_has_both_orders_and_types() {
        let line = "x-1  [000] ..... 0.000001: mm_page_alloc_extfrag: page=0 pfn=0x4000 alloc_order=1 fallback_order=9 pageblock_order=9 alloc_migratetype=0 fallback_migratetype=1 fragmenting=0 change_ownership=1";
        let expected = ExtFrag {
            pfn: Pfn(0x4000),
            order: Order(1),
            fallback_order: Order(9),
            migrate_type: MigrateType::Unmovable,
            fallback_type: MigrateType::Movable,
            changes_pageblock: true,
        };
        let Ok(TraceLine::Event(event)) = TraceLine::parse(line) else { panic!("{line}") };
        assert_eq!(event.what, PageEvent::ExtFrag(expected));
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
            assert_eq!(event.what, PageEvent::PcpuDrain { block, migrate_type: MigrateType::Movable });
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
