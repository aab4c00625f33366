//! The words of a memory file by which processes agree on what the memory map's part for devices shows.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::board::Board;
use super::process::Process;
use crate::device_problem::DeviceMapProblem;
use crate::region::Region;
use crate::sys::mapping::Piece;

/// Who changes views now: a [`Process`], or 0.
const LOCK: usize = 0;
/// How often views were changed, times 2; odd while the words below are written. Who waits for a change waits here.
const CHANGE: usize = 8;
/// How often somebody has answered. Who waits for answers waits here.
const ANSWERS: usize = 16;
/// The last change: kind, offset, length, stride.
const MESSAGE: usize = 24;
/// The last change that was undone, or is not known to be made everywhere, or 0. Until all have answered it somebody may be
/// about to show something else.
const UNSETTLED: usize = 28;
/// Devices with shared tails: in use, offset, length, stride.
const RECORDS: usize = 32;
/// Views: [`Process`] or 0, change answered, error number.
const fn slots<B: Board>() -> usize {
    RECORDS + 4 * B::RECORDS
}

/// How many words there are.
pub(super) const fn words<B: Board>() -> usize {
    slots::<B>() + 4 * B::VIEWS
}

/// How many bytes of a memory file they take.
pub(super) const BYTES: u64 = (words::<Region>() * size_of::<AtomicU64>()) as u64;

/// How long a process may take to change its view.
const ANSWER_TIME: Duration = Duration::from_secs(2);
/// How long another process may take to change all views: several that do not answer.
const LOCK_TIME: Duration = Duration::from_secs(10);
/// How often who waits looks whether those he waits for are alive.
const LOOK: Duration = Duration::from_millis(20);

/// What becomes of a piece of the window.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Change {
    /// The file, readable and writable.
    File(Piece),
    /// Zeroes that cannot be written, and no memory.
    Zeros(Piece),
    /// Zeroes as well, but for the first page of each stretch of `stride` bytes, which is the file's.
    SharedTails(Piece, usize),
}

impl Change {
    fn words(self) -> [u64; 4] {
        let (kind, piece, stride) = match self {
            Self::File(piece) => (1, piece, 0),
            Self::Zeros(piece) => (2, piece, 0),
            Self::SharedTails(piece, stride) => (3, piece, stride),
        };
        [kind, piece.offset as u64, piece.len as u64, stride as u64]
    }

    /// The change that words say; `None` where no yard wrote them.
    fn from_words([kind, offset, len, stride]: [u64; 4]) -> Option<Self> {
        let piece = Piece { offset: usize::try_from(offset).ok()?, len: usize::try_from(len).ok()? };
        match kind {
            1 => Some(Self::File(piece)),
            2 => Some(Self::Zeros(piece)),
            3 if stride > 0 => Some(Self::SharedTails(piece, usize::try_from(stride).ok()?)),
            _ => None,
        }
    }
}

/// What a keeper finds when it looks whether there is something to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Found {
    /// Nothing.
    Nothing,
    /// One change since the last answer.
    One { number: u64, change: Change },
    /// Several, or one that cannot be read: all is to be set up anew.
    Several { number: u64 },
}

/// A view among those of all processes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Slot(usize);

/// What shows a view.
pub(super) trait Show {
    /// Changes it.
    fn apply(&self, change: Change) -> io::Result<()>;
    /// Shows all as the records say.
    fn set_up(&self) -> io::Result<()>;
}

/// The words, mapped by this process.
#[derive(Debug)]
pub(super) struct ViewWords<B = Region> {
    board: B,
}

/// The right to change views, given back when dropped.
#[derive(Debug)]
pub(super) struct Changing<'a, B: Board = Region> {
    words: &'a ViewWords<B>,
}

/// A word of a board.
#[derive(Clone, Copy)]
struct Word<'a, B>(&'a B, usize);

impl<B: Board> Word<'_, B> {
    fn load(self, ordering: Ordering) -> u64 {
        self.0.load(self.1, ordering)
    }

    fn store(self, value: u64, ordering: Ordering) {
        self.0.store(self.1, value, ordering);
    }

    fn compare_exchange(self, current: u64, new: u64, success: Ordering) -> Result<u64, u64> {
        self.0.compare_exchange(self.1, current, new, success)
    }
}

impl ViewWords {
    pub(super) fn new(region: Region) -> Self {
        assert!(region.size().0 >= BYTES, "room for the words");
        Self { board: region }
    }
}

impl<B: Board> ViewWords<B> {
    /// How many views, and devices with shared tails, there can be.
    pub(super) const MAX_VIEWS: usize = B::VIEWS;
    const MAX_RECORDS: usize = B::RECORDS;

    fn word(&self, index: usize) -> Word<'_, B> {
        Word(&self.board, index)
    }

    fn four(&self, first: usize) -> [u64; 4] {
        [0, 1, 2, 3].map(|index| self.word(first + index).load(Ordering::Relaxed))
    }

    fn slot(&self, slot: Slot, word: usize) -> Word<'_, B> {
        self.word(slots::<B>() + 4 * slot.0 + word)
    }

    /// Takes the right to change views, from a process that has ended too.
    pub(super) fn lock(&self) -> Result<Changing<'_, B>, DeviceMapProblem> {
        let (me, begin) = (self.board.this(), Instant::now());
        let mut nap = Duration::from_micros(20);
        loop {
            // Acquire: sees what the last holder wrote; pairs with `drop` of `Changing`.
            let Err(holder) = self.word(LOCK).compare_exchange(0, me.0, Ordering::Acquire) else {
                return Ok(Changing { words: self });
            };
            let holder = Process(holder);
            let take_over = || self.word(LOCK).compare_exchange(holder.0, me.0, Ordering::Acquire);
            if !self.board.is_alive(holder) && take_over().is_ok() {
                let changing = Changing { words: self };
                changing.after_a_dead_one();
                return Ok(changing);
            }
            let waited = self.board.since(begin);
            if waited > LOCK_TIME {
                return Err(DeviceMapProblem::Changing { process: holder.id(), waited });
            }
            self.board.pause(nap);
            nap = (nap * 2).min(Duration::from_millis(2));
        }
    }

    /// Devices with shared tails: their pieces and strides.
    pub(super) fn records(&self) -> impl Iterator<Item = (Piece, usize)> {
        (0..B::RECORDS).filter_map(|index| {
            let first = RECORDS + 4 * index;
            // Acquire: pairs with the Release in `add_record`.
            if self.word(first).load(Ordering::Acquire) == 0 {
                return None;
            }
            match Change::from_words([3, self.four(first)[1], self.four(first)[2], self.four(first)[3]]) {
                Some(Change::SharedTails(piece, stride)) => Some((piece, stride)),
                _ => None,
            }
        })
    }

    /// What there is to do for a view.
    fn look(&self, slot: Slot) -> Found {
        let number = self.change();
        let answered = self.slot(slot, 1).load(Ordering::Relaxed);
        if number == answered || number % 2 == 1 {
            return Found::Nothing;
        }
        let message = self.four(MESSAGE);
        // Keeps the look at the message before the one at the number, which says whether it is that change's.
        self.board.fence(Ordering::Acquire);
        let is_whole = self.word(CHANGE).load(Ordering::Relaxed) == number;
        // Of a change that was not made nobody knows how much was.
        let has_failed = self.slot(slot, 2).load(Ordering::Relaxed) != 0;
        match Change::from_words(message) {
            Some(change) if is_whole && !has_failed && number == answered + 2 => Found::One { number, change },
            _ => Found::Several { number },
        }
    }

    /// Makes the change that a view has not made yet, and answers; `false` where there is none.
    pub(super) fn follow(&self, slot: Slot, show: &impl Show) -> bool {
        let (number, made) = match self.look(slot) {
            Found::Nothing => return false,
            Found::One { number, change } => (number, show.apply(change)),
            Found::Several { number } => (number, show.set_up()),
        };
        let error = made.err().map_or(0, |error| error.raw_os_error().unwrap_or(libc::EINVAL));
        self.answer(slot, number, error);
        true
    }

    /// Whether a change was left open: a look that who maps a device takes, after whoever left it open.
    pub(super) fn is_unsettled(&self) -> bool {
        self.word(UNSETTLED).load(Ordering::Relaxed) != 0
    }

    /// The number of the last change.
    pub(super) fn change(&self) -> u64 {
        // Acquire: pairs with the Release in `publish`.
        self.word(CHANGE).load(Ordering::Acquire)
    }

    /// Sleeps until there may be another change than `seen`.
    pub(super) fn wait_for_change(&self, seen: u64, longest: Duration) {
        self.board.sleep_on(CHANGE, seen, longest);
    }

    /// Wakes all that wait for a change, to look for something else.
    pub(super) fn wake(&self) {
        self.board.wake(CHANGE);
    }

    /// Says that a view is as a change wants it, or that it cannot be.
    fn answer(&self, slot: Slot, number: u64, error: i32) {
        self.slot(slot, 2).store(u64::from(error.unsigned_abs()), Ordering::Relaxed);
        // Release: pairs with the Acquire in `wait_for_answers`; the view is changed and the error written.
        self.slot(slot, 1).store(number, Ordering::Release);
        self.board.fetch_add(ANSWERS, 1, Ordering::Release);
        self.board.wake(ANSWERS);
    }

    /// Takes a view out of the list of those that are waited for.
    pub(super) fn leave(&self, slot: Slot) {
        self.slot(slot, 0).store(0, Ordering::Release);
        self.board.wake(ANSWERS);
    }

    /// All views but one, and whose they are.
    fn others(&self, own: Slot) -> impl Iterator<Item = (Slot, Process)> {
        let slots = (0..B::VIEWS).map(Slot).filter(move |slot| *slot != own);
        let with_owner = slots.map(|slot| (slot, self.slot(slot, 0).load(Ordering::Acquire)));
        with_owner.filter(|(_, owner)| *owner != 0).map(|(slot, owner)| (slot, Process(owner)))
    }

    /// The processes that have other views, each once, without those that have ended.
    pub(super) fn other_processes(&self, own: Slot) -> Vec<Process> {
        let mut processes: Vec<Process> = self.others(own).map(|(_, process)| process).collect();
        processes.sort_by_key(|process| process.0);
        processes.dedup();
        processes.retain(|process| self.board.is_alive(*process));
        processes
    }
}

impl<B: Board> Changing<'_, B> {
    /// Takes a place for a view of this process that shows what the last change made.
    pub(super) fn join(&self) -> Option<Slot> {
        let words = self.words;
        let is_free = |slot: &Slot| match words.slot(*slot, 0).load(Ordering::Acquire) {
            0 => true,
            owner => !words.board.is_alive(Process(owner)),
        };
        let slot = (0..B::VIEWS).map(Slot).find(is_free)?;
        words.slot(slot, 1).store(words.change(), Ordering::Relaxed);
        words.slot(slot, 2).store(0, Ordering::Relaxed);
        words.slot(slot, 0).store(words.board.this().0, Ordering::Release);
        Some(slot)
    }

    /// Notes a device with shared tails.
    pub(super) fn add_record(&self, piece: Piece, stride: usize) -> Result<(), DeviceMapProblem> {
        let words = self.words;
        let first = (0..B::RECORDS).map(|index| RECORDS + 4 * index);
        let mut free = first.filter(|first| words.word(*first).load(Ordering::Relaxed) == 0);
        let first = free.next().ok_or(DeviceMapProblem::TooManyDevices(ViewWords::<B>::MAX_RECORDS))?;
        words.word(first + 1).store(piece.offset as u64, Ordering::Relaxed);
        words.word(first + 2).store(piece.len as u64, Ordering::Relaxed);
        words.word(first + 3).store(stride as u64, Ordering::Relaxed);
        // Release: pairs with the Acquire in `records`.
        words.word(first).store(1, Ordering::Release);
        Ok(())
    }

    /// Forgets the devices inside a piece, and says whether there were any.
    pub(super) fn remove_records(&self, piece: Piece) -> bool {
        let mut removed = false;
        for first in (0..B::RECORDS).map(|index| RECORDS + 4 * index) {
            let [used, offset, len, _] = self.words.four(first);
            let is_inside = offset >= piece.offset as u64 && offset.saturating_add(len) <= piece.end() as u64;
            if used != 0 && is_inside {
                self.words.word(first).store(0, Ordering::Release);
                removed = true;
            }
        }
        removed
    }

    /// Tells all views of a change, this one's being answered already.
    pub(super) fn publish(&self, own: Slot, change: Change) -> u64 {
        let words = self.words;
        let number = words.change();
        words.word(CHANGE).store(number + 1, Ordering::Relaxed);
        // Keeps the odd number before the message: pairs with the fence in `look`.
        words.board.fence(Ordering::Release);
        for (index, word) in change.words().into_iter().enumerate() {
            words.word(MESSAGE + index).store(word, Ordering::Relaxed);
        }
        words.slot(own, 1).store(number + 2, Ordering::Relaxed);
        // Release: pairs with the Acquire in `change`.
        words.word(CHANGE).store(number + 2, Ordering::Release);
        words.wake();
        number + 2
    }

    /// Waits until all other views show a change. Strikes off those whose process has ended.
    pub(super) fn wait_for_answers(&self, own: Slot, number: u64) -> Result<(), DeviceMapProblem> {
        let (words, begin) = (self.words, Instant::now());
        loop {
            let answers = words.word(ANSWERS).load(Ordering::Acquire);
            let mut missing = None;
            for (slot, process) in words.others(own) {
                // Acquire: pairs with the Release in `answer`.
                if words.slot(slot, 1).load(Ordering::Acquire) < number {
                    missing = Some((slot, process));
                    break;
                }
                let error = words.slot(slot, 2).load(Ordering::Relaxed);
                if error != 0 {
                    let source = std::io::Error::from_raw_os_error(error as i32);
                    return Err(DeviceMapProblem::Refused { process: process.id(), source });
                }
            }
            let Some((slot, process)) = missing else { return Ok(()) };
            let waited = words.board.since(begin);
            if waited > LOOK && !words.board.is_alive(process) {
                let owner = words.slot(slot, 0);
                // Whoever has the place by now joined after the change.
                let _ = owner.compare_exchange(process.0, 0, Ordering::AcqRel);
                continue;
            }
            if waited > ANSWER_TIME {
                return Err(DeviceMapProblem::NoAnswer { process: process.id(), waited });
            }
            words.board.sleep_on(ANSWERS, answers, LOOK);
        }
    }

    /// Notes a change that was not waited for.
    pub(super) fn leave_open(&self, number: u64) {
        self.words.word(UNSETTLED).store(number, Ordering::Relaxed);
    }

    /// Notes that all have answered, the last change too.
    pub(super) fn settled(&self) {
        self.words.word(UNSETTLED).store(0, Ordering::Relaxed);
    }

    /// Waits for the answers to a change that was left open.
    pub(super) fn settle(&self, own: Slot) -> Result<(), DeviceMapProblem> {
        let number = self.words.word(UNSETTLED).load(Ordering::Relaxed);
        if number != 0 {
            self.wait_for_answers(own, number)?;
            self.settled();
        }
        Ok(())
    }

    /// Makes the number even again where its holder ended in the middle of a change, such that all views are set up anew.
    fn after_a_dead_one(&self) {
        let number = self.words.change();
        self.words.word(CHANGE).store((number | 1) + 3, Ordering::Release);
        self.leave_open((number | 1) + 3);
        self.words.wake();
    }
}

impl<B: Board> Drop for Changing<'_, B> {
    fn drop(&mut self) {
        // Release: pairs with the Acquire in `lock`.
        self.words.word(LOCK).store(0, Ordering::Release);
    }
}

#[cfg(test)]
mod loom_models;
