//! State that the tasks and the controller of a run share, as threads or as processes: the holder of each frame, blocks
//! that one task leaves for another, the progress of the run, and tallies. It lies in separate memory, not in frames of
//! the yard.
//!
//! | words | content |
//! |---|---|
//! | [`COUNTERS`], each on a line of its own | see [`Word`] |
//! | [`SLOTS`] | a block left for another task, or 0 |
//! | [`TASK_WORDS`] per task | its [`Tally`] |
//! | one per frame | its holder and the order of its block, or 0 |

use std::fmt;
use std::path::PathBuf;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use frameyard::{Order, PageCount, Pfn, PfnRange};
use frameyard_host::{SharedFileError, SharedWords};
use serde::{Deserialize, Serialize};

/// The most tasks of a run. The controller is not one.
pub const MOST_TASKS: u32 = 1000;
/// Blocks that can wait for another task.
const SLOTS: usize = 512;
/// Words between two counters: two cache lines, because processors prefetch lines in pairs.
const STRIDE: usize = 16;
const TASK_WORDS: usize = 16;
const COUNTERS: usize = 8;

/// The counters.
#[derive(Clone, Copy)]
enum Word {
    /// Operations that tasks have reserved.
    Begun = 0,
    /// Number of halt requests.
    Halts = 1,
    /// Number of resumes.
    Resumes = 2,
    /// Tasks that have halted.
    Halted = 3,
    /// Tasks that have ended their work.
    Done = 4,
}

/// The location of a shared state.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Place {
    path: PathBuf,
    first: u64,
    end: u64,
    tasks: u32,
}

/// The holder of a block: a task, as its number plus one, or the controller.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Holder(pub(crate) u16);

impl Holder {
    /// The controller.
    pub(crate) const CONTROLLER: Self = Self(u16::MAX);

    /// A task.
    pub(crate) fn task(number: u32) -> Self {
        Self(number as u16 + 1)
    }
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::CONTROLLER => f.write_str("the controller"),
            Self(number) => write!(f, "task {}", number - 1),
        }
    }
}

/// An allocated block, and the task that holds it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Block {
    pub(crate) pfn: Pfn,
    pub(crate) order: Order,
    pub(crate) holder: Holder,
}

impl Block {
    /// The mark of each of its frames, never 0. Together with the frame number it is a block in a slot.
    fn mark(self) -> u64 {
        u64::from(self.holder.0) << 8 | u64::from(self.order.0)
    }

    fn pack(self) -> u64 {
        debug_assert!(self.pfn.0 < 1 << 40, "a frame number of 52 address bits");
        self.pfn.0 << 24 | self.mark()
    }

    fn unpack(word: u64) -> Option<Self> {
        let (pfn, order) = (Pfn(word >> 24), Order(word as u8));
        (word != 0).then_some(Self { pfn, order, holder: Holder((word >> 8) as u16) })
    }
}

/// A frame with a wrong mark: the yard has allocated it twice, or freed it by itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Conflict {
    pfn: Pfn,
    block: Block,
    /// The correct mark: 0 for a frame that was just allocated.
    expected: u64,
    found: u64,
}

impl fmt::Display for Conflict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { pfn, block: Block { pfn: head, order, holder }, expected, found } = self;
        let (by, other) = (Holder((found >> 8) as u16), Order(*found as u8));
        match (expected, found) {
            (0, _) => write!(
                f,
                "{pfn} was allocated twice: to {holder} in the block at {head}, {order}, while {by} holds it in one of {other}"
            ),
            (_, 0) => {
                write!(f, "{pfn} of the block at {head}, {order}, of {holder} is no longer marked as held")
            }
            _ => write!(f, "{pfn} of the block at {head}, {order}, of {holder} is held by {by} in one of {other}"),
        }
    }
}

impl std::error::Error for Conflict {}

/// What one task, or all together, did.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Tally {
    /// Allocated blocks.
    pub allocations: u64,
    /// Freed blocks.
    pub frees: u64,
    /// Freed blocks that another task had allocated.
    pub freed_for_others: u64,
    /// Requests that found no memory.
    pub out_of_memory: u64,
    /// Ranges of any length that were allocated.
    pub exact: u64,
    /// Given ranges that were allocated.
    pub ranges: u64,
    /// Given ranges that were refused, mostly because they were in use.
    pub ranges_refused: u64,
    /// Pages faulted in and unmapped.
    pub mapped: u64,
    /// Requests for any single frame that found no memory although a quarter of it was free a moment later.
    pub out_of_memory_early: u64,
}

/// Words of a tally.
const TALLY_WORDS: usize = 9;

impl Tally {
    /// Allocations and frees together.
    #[must_use]
    pub fn ops(&self) -> u64 {
        self.allocations + self.frees + 2 * self.mapped
    }

    fn words(&self) -> [u64; TALLY_WORDS] {
        [
            self.allocations,
            self.frees,
            self.freed_for_others,
            self.out_of_memory,
            self.exact,
            self.ranges,
            self.ranges_refused,
            self.mapped,
            self.out_of_memory_early,
        ]
    }

    fn of(words: [u64; TALLY_WORDS]) -> Self {
        let [allocations, frees, freed_for_others, out_of_memory, exact, ranges, ranges_refused, mapped, early] = words;
        Self {
            allocations,
            frees,
            freed_for_others,
            out_of_memory,
            exact,
            ranges,
            ranges_refused,
            mapped,
            out_of_memory_early: early,
        }
    }
}

/// The shared state, as one thread or process maps it.
#[derive(Debug)]
pub(crate) struct SharedState {
    words: SharedWords,
    frames: PfnRange,
    tasks: u32,
}

impl SharedState {
    /// Creates a state for the frames of a range.
    pub(crate) fn create(frames: PfnRange, tasks: u32) -> Result<Self, SharedFileError> {
        let words = Self::first_mark(tasks) + frames.count().0 as usize;
        Ok(Self { words: SharedWords::create(words)?, frames, tasks })
    }

    /// Opens a state that another thread or process has created.
    pub(crate) fn open(place: &Place) -> Result<Self, SharedFileError> {
        let frames = PfnRange { start: Pfn(place.first), end: Pfn(place.end) };
        Ok(Self { words: SharedWords::open(&place.path)?, frames, tasks: place.tasks })
    }

    /// Its location.
    pub(crate) fn place(&self) -> Place {
        let PfnRange { start, end } = self.frames;
        Place { path: self.words.path(), first: start.0, end: end.0, tasks: self.tasks }
    }

    fn first_mark(tasks: u32) -> usize {
        COUNTERS * STRIDE + SLOTS + tasks as usize * TASK_WORDS
    }

    fn counter(&self, word: Word) -> &AtomicU64 {
        &self.words.words()[word as usize * STRIDE]
    }

    fn task_words(&self, task: u32) -> &[AtomicU64] {
        &self.words.words()[COUNTERS * STRIDE + SLOTS + task as usize * TASK_WORDS..][..TASK_WORDS]
    }

    fn marks(&self) -> &[AtomicU64] {
        &self.words.words()[Self::first_mark(self.tasks)..][..self.frames.count().0 as usize]
    }

    /// The marks of a block's frames.
    fn marks_of(&self, block: Block) -> impl Iterator<Item = (Pfn, &AtomicU64)> {
        let first = (block.pfn - self.frames.start).0 as usize;
        let frames = (0..).map(move |offset| block.pfn + PageCount(offset));
        frames.zip(&self.marks()[first..first + block.order.pages().0 as usize])
    }

    /// Marks the frames of a block that the yard has just allocated.
    pub(crate) fn claim(&self, block: Block) -> Result<(), Conflict> {
        let mark = block.mark();
        for (pfn, word) in self.marks_of(block) {
            // Relaxed: the yard orders a free before the next allocation of the frame.
            if let Err(found) = word.compare_exchange(0, mark, Relaxed, Relaxed) {
                return Err(Conflict { pfn, block, expected: 0, found });
            }
        }
        Ok(())
    }

    /// Clears the marks of a block that is about to be freed.
    pub(crate) fn release(&self, block: Block) -> Result<(), Conflict> {
        let mark = block.mark();
        for (pfn, word) in self.marks_of(block) {
            if let Err(found) = word.compare_exchange(mark, 0, Relaxed, Relaxed) {
                return Err(Conflict { pfn, block, expected: mark, found });
            }
        }
        Ok(())
    }

    /// Checks the marks of a block.
    pub(crate) fn check(&self, block: Block) -> Result<(), Conflict> {
        let expected = block.mark();
        let wrong = |(pfn, word): (Pfn, &AtomicU64)| {
            let found = word.load(Relaxed);
            (found != expected).then_some(Conflict { pfn, block, expected, found })
        };
        self.marks_of(block).find_map(wrong).map_or(Ok(()), Err)
    }

    /// Number of marked frames.
    pub(crate) fn held_frames(&self) -> u64 {
        self.marks().iter().filter(|word| word.load(Relaxed) != 0).count() as u64
    }

    /// Leaves a block in a slot, and takes the one that was there.
    pub(crate) fn swap_slot(&self, slot: usize, block: Block) -> Option<Block> {
        // AcqRel: pairs with itself and with `take_leftovers`, so that accesses to a block precede those of its next holder.
        Block::unpack(self.slots()[slot % SLOTS].swap(block.pack(), AcqRel))
    }

    /// Takes all blocks from the slots.
    pub(crate) fn take_leftovers(&self) -> impl Iterator<Item = Block> {
        // AcqRel: pairs with the AcqRel in `swap_slot`.
        self.slots().iter().filter_map(|slot| Block::unpack(slot.swap(0, AcqRel)))
    }

    fn slots(&self) -> &[AtomicU64] {
        &self.words.words()[COUNTERS * STRIDE..][..SLOTS]
    }

    /// Reserves `ops` operations; `false` if all are reserved.
    pub(crate) fn reserve_ops(&self, ops: u64, total: u64) -> bool {
        self.counter(Word::Begun).fetch_add(ops, Relaxed) < total
    }

    /// Returns reserved operations that were not done.
    pub(crate) fn return_ops(&self, ops: u64) {
        self.counter(Word::Begun).fetch_sub(ops, Relaxed);
    }

    /// Reserved operations.
    pub(crate) fn begun(&self) -> u64 {
        self.counter(Word::Begun).load(Relaxed)
    }

    /// Publishes the tally of a task.
    pub(crate) fn write_tally(&self, task: u32, tally: &Tally) {
        self.task_words(task).iter().zip(tally.words()).for_each(|(word, value)| word.store(value, Relaxed));
    }

    /// The latest tally of a task.
    pub(crate) fn tally_of(&self, task: u32) -> Tally {
        let words = self.task_words(task);
        Tally::of(std::array::from_fn(|at| words[at].load(Relaxed)))
    }

    /// The sum of all tallies.
    pub(crate) fn tally(&self, tasks: u32) -> Tally {
        let all = (0..tasks).map(|task| self.tally_of(task).words());
        Tally::of(all.fold([0; TALLY_WORDS], |sum, words| std::array::from_fn(|at| sum[at] + words[at])))
    }

    /// The number of the present halt request, if there is one.
    pub(crate) fn halt_requested(&self) -> Option<u64> {
        // Acquire: pairs with the Release in `request_halt` and `resume`.
        let halts = self.counter(Word::Halts).load(Acquire);
        (halts > self.counter(Word::Resumes).load(Acquire)).then_some(halts)
    }

    /// Records that a task has halted. It must not be inside an operation of the yard.
    pub(crate) fn halt(&self) {
        // Release: pairs with the Acquire in `all_halted`, so that the inspector sees all that the task did.
        self.counter(Word::Halted).fetch_add(1, Release);
    }

    /// Records that a task has ended its work.
    pub(crate) fn done(&self) {
        // Release: pairs with the Acquire in `all_halted` and `all_done`.
        self.counter(Word::Done).fetch_add(1, Release);
    }

    /// Whether a task that has halted for a request may continue.
    pub(crate) fn may_go_on(&self, halt: u64) -> bool {
        // Acquire: pairs with the Release in `resume`.
        self.counter(Word::Resumes).load(Acquire) >= halt
    }

    /// Requests all tasks to halt.
    pub(crate) fn request_halt(&self) {
        self.counter(Word::Halted).store(0, Relaxed);
        // Release: pairs with the Acquire in `halt_requested`.
        self.counter(Word::Halts).fetch_add(1, Release);
    }

    /// Whether all tasks have halted or ended.
    pub(crate) fn all_halted(&self, tasks: u32) -> bool {
        // Acquire: pairs with the Release in `done` and `halt`.
        let done = self.counter(Word::Done).load(Acquire);
        self.counter(Word::Halted).load(Acquire) + done >= u64::from(tasks)
    }

    /// Lets halted tasks continue.
    pub(crate) fn resume(&self) {
        // Release: pairs with the Acquire in `halt_requested` and `may_go_on`.
        self.counter(Word::Resumes).fetch_add(1, Release);
    }

    /// Whether all tasks have ended their work.
    pub(crate) fn all_done(&self, tasks: u32) -> bool {
        // Acquire: pairs with the Release in `done`.
        self.counter(Word::Done).load(Acquire) >= u64::from(tasks)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state() -> SharedState {
        SharedState::create(PfnRange { start: Pfn(100), end: Pfn(200) }, 2).unwrap()
    }

    fn block(pfn: u64, order: u8, task: u32) -> Block {
        Block { pfn: Pfn(pfn), order: Order(order), holder: Holder::task(task) }
    }

    #[test]
    fn detects_a_frame_that_is_allocated_twice() {
        let state = state();
        state.claim(block(104, 2, 0)).unwrap();
        let error = SharedState::open(&state.place()).unwrap().claim(block(107, 0, 1)).unwrap_err();
        assert_eq!(
            error.to_string(),
            "pfn 0x6b was allocated twice: to task 1 in the block at pfn 0x6b, order 0, while task 0 holds it in one of order 2"
        );
        assert_eq!(state.held_frames(), 4);
        state.release(block(104, 2, 0)).unwrap();
        assert_eq!(state.held_frames(), 0);
    }

    #[test]
    fn detects_a_block_with_wrong_marks() {
        let state = state();
        state.claim(block(104, 0, 0)).unwrap();
        assert!(state.check(block(104, 0, 0)).is_ok());
        assert!(state.check(block(104, 1, 0)).unwrap_err().to_string().contains("is held by task 0 in one of order 0"));
        assert!(state.release(block(105, 0, 0)).unwrap_err().to_string().contains("no longer marked"));
    }

    #[test]
    fn slots_hand_blocks_over_unchanged() {
        let state = state();
        let (one, other) = (block((1 << 40) - 1, 10, MOST_TASKS), block(5, 0, 1));
        assert_eq!(state.swap_slot(3, one), None);
        assert_eq!(state.swap_slot(3, other), Some(one));
        assert_eq!(state.take_leftovers().collect::<Vec<_>>(), [other]);
        assert_eq!(state.take_leftovers().count(), 0);
    }

    #[test]
    fn all_have_halted_when_every_task_has_halted_or_is_done() {
        let state = state();
        assert_eq!(state.halt_requested(), None);
        state.request_halt();
        let halt = state.halt_requested().unwrap();
        state.halt();
        assert!(!state.all_halted(2));
        state.done();
        assert!(state.all_halted(2) && !state.may_go_on(halt) && !state.all_done(2));
        state.resume();
        assert!(state.may_go_on(halt) && state.halt_requested().is_none());
    }
}
