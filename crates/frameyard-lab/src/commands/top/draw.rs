//! Draws a sample. What is drawn depends on the picture and the size of the screen alone.

use anstyle::{AnsiColor, Style};
use frameyard::{ByteSize, MigrateType};

use super::line::{Line, Size};
use super::sample::{BlockMap, Cell, Fill, Rates, Sample, ZoneSample};
use crate::output::RoundedSize;

/// The smallest screen.
pub(super) const LEAST: Size = Size { width: 60, height: 20 };
/// The screen of plain frames.
pub(super) const PLAIN: Size = Size { width: 80, height: 24 };
/// From this height on, empty lines part the sections.
const ROOMY: u16 = 24;
/// Lines of the map of pageblocks at most.
const MAP_LINES: usize = 6;
/// Characters of a table's first column, of an order's column, and of the last two.
const NAME: usize = 11;
const COLUMN: usize = 5;
const LAST: usize = 8;
const SHARE: usize = 6;

const BOLD: Style = Style::new().bold();
const DIM: Style = Style::new().dimmed();

/// What a screen shows.
#[derive(Clone, Debug)]
pub(super) struct Picture<'a> {
    pub(super) yard: &'a str,
    pub(super) now: &'a Sample,
    /// The sample before, from which rates are.
    pub(super) before: Option<&'a Sample>,
    pub(super) map: &'a BlockMap,
    pub(super) view: View,
}

/// What of it is chosen.
#[derive(Clone, Debug)]
pub(super) struct View {
    /// The number of a zone; all zones without it.
    pub(super) zone: Option<usize>,
    /// The first CPU of the list.
    pub(super) first_cpu: usize,
    pub(super) is_paused: bool,
    pub(super) interval_ms: u64,
}

/// How many pageblocks the map of a screen has room for.
pub(super) fn map_room(size: Size) -> usize {
    let lines = if size.height < ROOMY { 1 } else { 2 + usize::from(size.height - ROOMY) / 2 };
    lines.min(MAP_LINES) * usize::from(size.width)
}

/// The lines of a picture, as many as the screen has.
pub(super) fn draw(picture: &Picture<'_>, size: Size) -> Vec<Line> {
    let mut lines = if size.width < LEAST.width || size.height < LEAST.height {
        vec![Line::from(format!("{size}: too small")), Line::from(format!("needs {LEAST}"))]
    } else {
        picture.lines(size)
    };
    lines.resize(usize::from(size.height), Line::default());
    lines.into_iter().map(|line| line.cut(size.width)).collect()
}

impl Picture<'_> {
    fn lines(&self, size: Size) -> Vec<Line> {
        let zone = self.now.zone(self.view.zone);
        let gap = (size.height >= ROOMY).then(Line::default);
        let mut lines =
            vec![self.title(usize::from(size.width)), self.facts(&zone), memory(&zone, self.now.page_bytes)];
        lines.extend(gap.clone());
        lines.extend(self.rates());
        lines.extend(gap.clone());
        lines.extend(self.blocks(&zone, usize::from(size.width)));
        lines.extend(gap.clone());
        lines.extend(self.map(size));
        lines.extend(gap);
        let keys = 1;
        let room = usize::from(size.height).saturating_sub(lines.len() + keys);
        lines.extend(self.lists(&zone, usize::from(size.width), room));
        lines.resize(usize::from(size.height) - keys, Line::default());
        lines.push(keys_line());
        lines
    }

    fn title(&self, width: usize) -> Line {
        let state = if self.view.is_paused { "paused" } else { "every" };
        let right = format!("{state} {:.1} s", self.view.interval_ms as f64 / 1000.0);
        let left = format!("frameyard top: {}", self.yard);
        let room = width.saturating_sub(right.len() + 1);
        let left: String = left.chars().take(room).collect();
        let mut line = Line::styled(format!("{left:<room$} "), BOLD);
        line.push(&right, Style::new());
        line
    }

    fn facts(&self, zone: &ZoneSample) -> Line {
        let entries = match self.now.processes {
            1 => "1 process".to_owned(),
            number => format!("{number} processes"),
        };
        Line::from(format!(
            "{}, {}, {} CPUs, {entries}, {} requests failed",
            zone.name,
            self.now.policy,
            zone.lists.len(),
            short(self.now.failures)
        ))
    }

    fn rates(&self) -> [Line; 3] {
        let rates = self.before.and_then(|before| Rates::between(before, self.now, self.view.zone));
        let of = |value: fn(&Rates) -> u64| rates.as_ref().map_or_else(|| "-".to_owned(), |rates| short(value(rates)));
        let waited = rates.as_ref().filter(|rates| rates.counters.acquisitions > 0).map_or_else(String::new, |rates| {
            format!(" ({})", percent(rates.counters.contended, rates.counters.acquisitions))
        });
        let pages = format!(
            "pages/s: {} allocated, {} freed; faults/s: {}",
            of(|rates| rates.counters.allocated),
            of(|rates| rates.counters.freed),
            of(|rates| rates.faults)
        );
        let lock = format!(
            "zone lock/s: {} taken, {} waited{waited}, {} pages",
            of(|rates| rates.counters.acquisitions),
            of(|rates| rates.counters.contended),
            of(|rates| rates.counters.moved)
        );
        let lists = format!(
            "lists/s: {} refills, {} drains; fallbacks/s: {}",
            of(|rates| rates.counters.refills),
            of(|rates| rates.counters.drains),
            of(|rates| rates.counters.fallbacks)
        );
        [pages, lock, lists].map(Line::from)
    }

    /// Free blocks by type and order, with the number of pageblocks, and the part that is of no use for a whole pageblock.
    fn blocks(&self, zone: &ZoneSample, width: usize) -> Vec<Line> {
        let columns = Columns::new(zone.blocks.len(), width);
        let mut heading = format!("{:<NAME$}", "free blocks");
        for name in columns.names() {
            heading += &format!("{name:>COLUMN$}");
        }
        heading += &format!("{:>LAST$}{:>SHARE$}", "blocks", "free");
        let (free, mut lines) = (zone.free_by_type(), vec![Line::styled(heading, BOLD)]);
        let all: u64 = free.iter().sum();
        for (at, of) in MigrateType::ALL.into_iter().enumerate() {
            let is_rare = matches!(of, MigrateType::Cma | MigrateType::Isolate);
            if is_rare && zone.pageblocks[at] == 0 {
                continue;
            }
            let mut row = format!("{:<NAME$}", of.name());
            for blocks in columns.values(zone.blocks.iter().map(|blocks| blocks[at])) {
                row += &format!("{:>COLUMN$}", short(blocks));
            }
            let share = (free[at] * 100).checked_div(all).map_or_else(|| "-".to_owned(), |share| format!("{share}%"));
            row += &format!("{:>LAST$}{share:>SHARE$}", short(zone.pageblocks[at]));
            lines.push(Line::styled(row, colour(of)));
        }
        lines.push(Line::from(self.fragmentation(zone)));
        lines
    }

    fn fragmentation(&self, zone: &ZoneSample) -> String {
        let order = self.now.pageblock_order;
        let unusable = zone.unusable(order).map_or_else(|| "-".to_owned(), |part| format!("{:.1} %", part * 100.0));
        format!("too small for order {}: {unusable} of free pages", order.0)
    }

    fn map(&self, size: Size) -> Vec<Line> {
        let step = self.map.step;
        let what = if step == 1 { "pageblocks".to_owned() } else { format!("1 pageblock of {step}") };
        let legend = ". free  u m r h part used  U M R H used";
        let mut heading = Line::styled(format!("{what}  "), BOLD);
        heading.push(legend, DIM);
        let row = |cells: &[Cell]| {
            let mut line = Line::default();
            for cell in cells {
                let (letter, style) = sign(*cell);
                line.push(letter, style);
            }
            line
        };
        let width = usize::from(size.width);
        let rows = self.map.cells.chunks(width).take(map_room(size) / width).map(row);
        std::iter::once(heading).chain(rows).collect()
    }

    /// The lists of CPUs, in columns.
    fn lists(&self, zone: &ZoneSample, width: usize, room: usize) -> Vec<Line> {
        const WIDTH: usize = 39;
        const BAR: usize = 16;
        let (columns, rows) = ((width / WIDTH).max(1), room.saturating_sub(1));
        let first = self.view.first_cpu.min(zone.lists.len().saturating_sub(1));
        let shown: Vec<(usize, _)> = zone.lists.iter().enumerate().skip(first).take(columns * rows).collect();
        let hidden = zone.lists.len() - shown.len();
        let more = if hidden > 0 { format!(" ({hidden} CPUs not shown)") } else { String::new() };
        let heading = format!("per-CPU lists: {} pages{more}", short(zone.per_cpu));
        let cell = |(cpu, lists): &(usize, &super::sample::ListFill)| {
            let filled = (lists.pages * BAR as u64).checked_div(lists.high).unwrap_or(0).min(BAR as u64) as usize;
            let bar = format!("{}{}", "#".repeat(filled), "-".repeat(BAR - filled));
            let text = format!("cpu {cpu:<3} [{bar}] {}/{}", short(lists.pages), short(lists.high));
            format!("{text:<WIDTH$}")
        };
        let rows = shown.chunks(columns).map(|cells| Line::from(cells.iter().map(cell).collect::<String>()));
        std::iter::once(Line::styled(heading, BOLD)).chain(rows).collect()
    }
}

/// Free memory as a bar and in numbers.
fn memory(zone: &ZoneSample, page_bytes: u64) -> Line {
    const BAR: usize = 20;
    let free = zone.free + zone.per_cpu;
    let used = zone.managed.saturating_sub(free);
    let filled = (used * BAR as u64).checked_div(zone.managed).unwrap_or(0).min(BAR as u64) as usize;
    Line::from(format!(
        "[{}{}] {} used of {}; {} free",
        "#".repeat(filled),
        "-".repeat(BAR - filled),
        percent(used, zone.managed),
        RoundedSize(ByteSize(zone.managed * page_bytes)),
        RoundedSize(ByteSize(free * page_bytes))
    ))
}

fn keys_line() -> Line {
    let keys = [("q", "quit"), ("space", "pause"), ("z", "zone"), ("+ -", "speed"), ("↑ ↓", "CPUs")];
    let mut line = Line::default();
    for (key, does) in keys {
        line.push(key, BOLD);
        line.push(&format!(" {does}   "), Style::new());
    }
    line
}

/// The columns of orders. Where the screen is too narrow, the last one has all orders from its own on.
struct Columns {
    shown: usize,
    orders: usize,
}

impl Columns {
    fn new(orders: usize, width: usize) -> Self {
        let room = width.saturating_sub(NAME + LAST + SHARE) / COLUMN;
        Self { shown: orders.min(room.max(1)), orders }
    }

    fn names(&self) -> impl Iterator<Item = String> {
        let Self { shown, orders } = *self;
        (0..shown).map(
            move |order| if order + 1 == shown && shown < orders { format!("{order}+") } else { order.to_string() },
        )
    }

    fn values(&self, values: impl Iterator<Item = u64>) -> Vec<u64> {
        let mut shown = vec![0; self.shown];
        for (order, value) in values.enumerate() {
            shown[order.min(self.shown - 1)] += value;
        }
        shown
    }
}

/// The sign of a pageblock: its type in capitals where it is used, in small letters where a part is free.
fn sign(cell: Cell) -> (&'static str, Style) {
    let letters = match cell.migrate_type {
        MigrateType::Unmovable => ["u", "U"],
        MigrateType::Movable => ["m", "M"],
        MigrateType::Reclaimable => ["r", "R"],
        MigrateType::HighAtomic => ["h", "H"],
        MigrateType::Cma => ["c", "C"],
        MigrateType::Isolate => ["i", "I"],
    };
    let letter = match cell.fill {
        Fill::Free => ".",
        Fill::Mixed => letters[0],
        Fill::Used => letters[1],
    };
    (letter, colour(cell.migrate_type))
}

fn colour(of: MigrateType) -> Style {
    let colour = match of {
        MigrateType::Unmovable => AnsiColor::Red,
        MigrateType::Movable => AnsiColor::Green,
        MigrateType::Reclaimable => AnsiColor::Yellow,
        MigrateType::HighAtomic => AnsiColor::Magenta,
        MigrateType::Cma => AnsiColor::Cyan,
        MigrateType::Isolate => AnsiColor::Blue,
    };
    Style::new().fg_color(Some(colour.into()))
}

/// A number in at most four characters: `999`, `1.2k`, `34k`, `5.6M`.
fn short(number: u64) -> String {
    const UNITS: [&str; 6] = ["k", "M", "G", "T", "P", "E"];
    if number < 1000 {
        return number.to_string();
    }
    let (mut value, mut unit) = (number as f64 / 1000.0, 0);
    // A value that would round to 1000 belongs to the next unit.
    while value >= 999.5 && unit + 1 < UNITS.len() {
        (value, unit) = (value / 1000.0, unit + 1);
    }
    let digits = usize::from(value < 9.95);
    format!("{value:.digits$}{}", UNITS[unit])
}

fn percent(part: u64, of: u64) -> String {
    if of == 0 { "-".to_owned() } else { format!("{:.1} %", part as f64 * 100.0 / of as f64) }
}

/// A picture as text, without colours and without spaces at the ends of lines.
pub(super) fn plain(picture: &Picture<'_>, size: Size) -> String {
    draw(picture, size).iter().map(|line| line.plain() + "\n").collect()
}

#[cfg(test)]
mod tests;
