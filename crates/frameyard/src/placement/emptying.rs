//! Emptying: the emptiest pageblocks become whole, because no CPU takes frames from them while their frames in use are
//! freed one by one.
//!
//! If each freed frame is the next to be handed out, half-empty pageblocks stay half empty for ever. So the zone
//! empties as many pageblocks as its free frames could fill, minus 1 %, and chooses those with the most free frames. A
//! frame that is freed there becomes a bit instead of going onto a per-CPU list. So the list runs dry sooner, and its
//! refills take from the fullest pageblocks.
//!
//! # Steps
//!
//! Each refill and each overflow of a list looks at one or a few lines. A pass over all lines counts them by their
//! number of free frames. From these counts the zone computes the least number of free frames with which a pageblock is
//! emptied, and the next pass marks pageblocks accordingly. A step also relists lines that are emptier than their list
//! says. The counts are only hints: races lose or repeat some.
//!
//! CPUs share a pass: each claims a range of lines and looks at them step by step. What a CPU leaves undone is done in
//! the next pass.

use crate::platform::{Access, Platform};
use crate::store::bits::bitmap::Standing;
use crate::sync::{AtomicU32, Ordering, all_atomic};
use crate::units::{CpuId, MigrateType};
use crate::zone::view::ZoneView;

/// The blocks that move for each line that a step looks at.
const BLOCKS: usize = 64;
/// The lines that a step looks at, at most.
const MOST: usize = if cfg!(loom) { 1 } else { 4 };
/// The lines that a CPU takes at once, at most.
const PART: usize = if cfg!(loom) { 1 } else { 64 };
/// The parts of a pass, at least.
const PARTS: usize = 16;
/// A pass counts this many lines at least, evenly spread, if the zone has as many.
const COUNTED: usize = 1 << 12;
/// The steps of fullness that lines are counted in: four frames each.
const STEPS: usize = if cfg!(loom) { 2 } else { 128 };
/// A pageblock goes on being emptied until it is this many steps below the threshold.
const SLACK: usize = 2;

/// How a zone is emptied.
#[derive(Default)]
pub(crate) struct State {
    /// Pageblocks are emptied from this step of fullness on; 0: none are yet.
    threshold: AtomicU32,
    pass: Pass,
}

all_atomic!(State { threshold, pass });

/// What a pass over the lines of a zone counts. Apart from what CPUs only read.
#[repr(align(64))]
struct Pass {
    /// Lines that CPUs have taken, over all passes. Wraps.
    cursor: AtomicU32,
    /// The lines of this pass, by their free frames.
    lines: [AtomicU32; STEPS],
}

all_atomic!(Pass { cursor, lines });

impl Default for Pass {
    fn default() -> Self {
        Self { cursor: AtomicU32::new(0), lines: core::array::from_fn(|_| AtomicU32::new(0)) }
    }
}

/// The part of a pass that a CPU has taken. Threads on one CPU that race look at lines twice, or at none.
#[derive(Default)]
pub(crate) struct Part {
    /// The next line: one of the zone's lines, counted from its first.
    next: AtomicU32,
    /// The lines that are left.
    left: AtomicU32,
    /// The last lines, which had the same step of fullness and are not in the zone's counts yet: their step, less 1, and their number.
    step: AtomicU32,
    lines: AtomicU32,
}

all_atomic!(Part { next, left, step, lines });

impl Part {
    /// Counts a line. Neighbours are often alike, so that few words of the zone change.
    fn count<P: Platform>(&self, view: ZoneView<'_, P>, state: &State, step: usize) {
        let (last, lines) = (self.step.load(Ordering::Relaxed), self.lines.load(Ordering::Relaxed));
        if last == step as u32 {
            return self.lines.store(lines.wrapping_add(1), Ordering::Relaxed);
        }
        if let Some(counter) = state.pass.lines.get(last as usize).filter(|_| lines > 0) {
            view.touch_bits(counter, Access::ReadModifyWrite);
            counter.fetch_add(lines, Ordering::Relaxed);
        }
        self.step.store(step as u32, Ordering::Relaxed);
        self.lines.store(1, Ordering::Relaxed);
    }
}

impl State {
    /// Begins a pass. The threshold becomes what the last pass has counted.
    #[cold]
    fn begin_pass(&self) {
        let counts: [u64; STEPS] = core::array::from_fn(|step| self.pass.lines[step].swap(0, Ordering::Relaxed).into());
        let free: u64 = counts.iter().zip(1..).map(|(lines, step)| lines * step).sum();
        let (mut step, mut left) = (STEPS, free / STEPS as u64 * 99 / 100);
        while step > 1 && counts[step - 1] <= left {
            step -= 1;
            left -= counts[step];
        }
        self.threshold.store(step as u32, Ordering::Relaxed);
    }
}

/// Looks at the next lines of a zone, while a CPU moves that many blocks between a list and the bits.
pub(crate) fn step<P: Platform>(view: ZoneView<'_, P>, cpu: CpuId, blocks: usize) {
    let (Some(of_zone), Some(of_cpu)) = (view.bits_of_zone(), view.bits_of_cpu(cpu)) else {
        return;
    };
    let (state, part_of_cpu) = (&of_zone.placement, &of_cpu.placement.emptying);
    let all = view.count_lines();
    if all == 0 || view.free_bits().line_order() != view.geometry.pageblock_order() {
        return;
    }
    let Part { next, left, .. } = part_of_cpu;
    let (mut at, mut part) = (next.load(Ordering::Relaxed) as usize, left.load(Ordering::Relaxed) as usize);
    if part == 0 {
        part = (all / PARTS).clamp(1, PART);
        view.touch_bits(&state.pass.cursor, Access::ReadModifyWrite);
        at = state.pass.cursor.fetch_add(part as u32, Ordering::Relaxed) as usize % all;
        if at < part {
            state.begin_pass();
        }
    }
    let most = (blocks / BLOCKS).clamp(1, MOST).min(part);
    next.store((at + most) as u32, Ordering::Relaxed);
    left.store((part - most) as u32, Ordering::Relaxed);
    let counted = (all / COUNTED).max(1);
    for lines in view.lines() {
        if at < lines.len() {
            for line in (lines.start + at..lines.end).take(most) {
                if let Some(step) = look_at(view, line).filter(|_| line.is_multiple_of(counted)) {
                    part_of_cpu.count(view, state, step);
                }
            }
            return;
        }
        at -= lines.len();
    }
}

/// Begins or ends the emptying of a line. Returns its step of fullness, less 1, if it has free frames and no CPU has it.
fn look_at<P: Platform>(view: ZoneView<'_, P>, line: usize) -> Option<usize> {
    let (bits, state) = (view.free_bits(), &view.bits_of_zone()?.placement);
    match bits.standing_racy(view.platform, line) {
        Standing::Unlisted | Standing::Reserved => return None,
        Standing::Whole => {
            view.end_emptying(line);
            view.release_whole_line(line);
            return Some(STEPS - 1);
        }
        Standing::Partial => {}
    }
    let list_type = view.type_of_line(line)?;
    let free = bits.free_frames_racy(line) as usize;
    let step = (free * STEPS) >> bits.line_order().0;
    if step == 0 {
        return None;
    }
    bits.list_anew(view.platform, line, list_type, free as u32);
    let threshold = state.threshold.load(Ordering::Relaxed) as usize;
    let may_empty = list_type == MigrateType::Movable && step < STEPS;
    if may_empty && threshold > 0 && step >= threshold {
        view.begin_emptying(line);
    } else if !may_empty || step + SLACK < threshold {
        view.end_emptying(line);
    }
    Some(step.min(STEPS) - 1)
}
