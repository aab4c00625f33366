//! The words of a memory file by which processes agree on what the memory map's part for devices shows.

use std::sync::atomic::{AtomicU64, Ordering, fence};
use std::time::{Duration, Instant};

use super::process::Process;
use crate::device_problem::DeviceMapProblem;
use crate::region::Region;
use crate::sys::futex;
use crate::sys::mapping::Piece;

/// Who changes views now: a [`Process`], or 0.
const LOCK: usize = 0;
/// How often views were changed, times 2; odd while the words below are written. Who waits for a change waits here.
const CHANGE: usize = 8;
/// How often somebody has answered. Who waits for answers waits here.
const ANSWERS: usize = 16;
/// The last change: kind, offset, length, stride.
const MESSAGE: usize = 24;
/// Devices with shared tails: in use, offset, length, stride.
const RECORDS: usize = 32;
/// Views: [`Process`] or 0, change answered, error number.
const SLOTS: usize = RECORDS + 4 * MAX_RECORDS;
pub(super) const MAX_RECORDS: usize = 256;
pub(super) const MAX_VIEWS: usize = 1024;

/// How many bytes of a memory file they take.
pub(super) const BYTES: u64 = ((SLOTS + 4 * MAX_VIEWS) * size_of::<AtomicU64>()) as u64;

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
pub(super) enum Found {
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

/// The words, mapped by this process.
#[derive(Debug)]
pub(super) struct ViewWords {
    region: Region,
}

/// The right to change views, given back when dropped.
#[derive(Debug)]
pub(super) struct Changing<'a> {
    words: &'a ViewWords,
}

impl ViewWords {
    pub(super) fn new(region: Region) -> Self {
        assert!(region.size().0 >= BYTES, "room for the words");
        Self { region }
    }

    fn word(&self, index: usize) -> &AtomicU64 {
        &self.region.atomics()[index]
    }

    fn four(&self, first: usize) -> [u64; 4] {
        [0, 1, 2, 3].map(|index| self.word(first + index).load(Ordering::Relaxed))
    }

    fn slot(&self, slot: Slot, word: usize) -> &AtomicU64 {
        self.word(SLOTS + 4 * slot.0 + word)
    }

    /// Takes the right to change views, from a process that has ended too.
    pub(super) fn lock(&self) -> Result<Changing<'_>, DeviceMapProblem> {
        let (me, begin) = (Process::this(), Instant::now());
        let mut nap = Duration::from_micros(20);
        loop {
            // Acquire: sees what the last holder wrote; pairs with `drop` of `Changing`.
            let Err(holder) = self.word(LOCK).compare_exchange(0, me.0, Ordering::Acquire, Ordering::Relaxed) else {
                return Ok(Changing { words: self });
            };
            let holder = Process(holder);
            let take_over = || self.word(LOCK).compare_exchange(holder.0, me.0, Ordering::Acquire, Ordering::Relaxed);
            if !holder.is_alive() && take_over().is_ok() {
                let changing = Changing { words: self };
                changing.after_a_dead_one();
                return Ok(changing);
            }
            let waited = begin.elapsed();
            if waited > LOCK_TIME {
                return Err(DeviceMapProblem::Changing { process: holder.id(), waited });
            }
            std::thread::sleep(nap);
            nap = (nap * 2).min(Duration::from_millis(2));
        }
    }

    /// Devices with shared tails: their pieces and strides.
    pub(super) fn records(&self) -> impl Iterator<Item = (Piece, usize)> {
        (0..MAX_RECORDS).filter_map(|index| {
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
    pub(super) fn look(&self, slot: Slot) -> Found {
        let number = self.change();
        let answered = self.slot(slot, 1).load(Ordering::Relaxed);
        if number == answered || number % 2 == 1 {
            return Found::Nothing;
        }
        let message = self.four(MESSAGE);
        // Keeps the look at the message before the one at the number, which says whether it is that change's.
        fence(Ordering::Acquire);
        let is_whole = self.word(CHANGE).load(Ordering::Relaxed) == number;
        match Change::from_words(message) {
            Some(change) if is_whole && number == answered + 2 => Found::One { number, change },
            _ => Found::Several { number },
        }
    }

    /// The number of the last change.
    pub(super) fn change(&self) -> u64 {
        // Acquire: pairs with the Release in `publish`.
        self.word(CHANGE).load(Ordering::Acquire)
    }

    /// Sleeps until there may be another change than `seen`.
    pub(super) fn wait_for_change(&self, seen: u64, longest: Duration) {
        futex::wait(self.word(CHANGE), seen, longest);
    }

    /// Wakes all that wait for a change, to look for something else.
    pub(super) fn wake(&self) {
        // Who is not woken looks by himself, if later.
        let _ = futex::wake_all(self.word(CHANGE));
    }

    /// Says that a view is as a change wants it, or that it cannot be.
    pub(super) fn answer(&self, slot: Slot, number: u64, error: i32) {
        self.slot(slot, 2).store(u64::from(error.unsigned_abs()), Ordering::Relaxed);
        // Release: pairs with the Acquire in `wait_for_answers`; the view is changed and the error written.
        self.slot(slot, 1).store(number, Ordering::Release);
        self.word(ANSWERS).fetch_add(1, Ordering::Release);
        let _ = futex::wake_all(self.word(ANSWERS));
    }

    /// Takes a view out of the list of those that are waited for.
    pub(super) fn leave(&self, slot: Slot) {
        self.slot(slot, 0).store(0, Ordering::Release);
        let _ = futex::wake_all(self.word(ANSWERS));
    }

    /// All views but one, and whose they are.
    fn others(&self, own: Slot) -> impl Iterator<Item = (Slot, Process)> {
        let slots = (0..MAX_VIEWS).map(Slot).filter(move |slot| *slot != own);
        let with_owner = slots.map(|slot| (slot, self.slot(slot, 0).load(Ordering::Acquire)));
        with_owner.filter(|(_, owner)| *owner != 0).map(|(slot, owner)| (slot, Process(owner)))
    }

    /// The processes that have other views, each once, without those that have ended.
    pub(super) fn other_processes(&self, own: Slot) -> Vec<Process> {
        let mut processes: Vec<Process> = self.others(own).map(|(_, process)| process).collect();
        processes.sort_by_key(|process| process.0);
        processes.dedup();
        processes.retain(|process| process.is_alive());
        processes
    }
}

impl Changing<'_> {
    /// Takes a place for a view of this process that shows what the last change made.
    pub(super) fn join(&self) -> Option<Slot> {
        let words = self.words;
        let is_free = |slot: &Slot| match words.slot(*slot, 0).load(Ordering::Acquire) {
            0 => true,
            owner => !Process(owner).is_alive(),
        };
        let slot = (0..MAX_VIEWS).map(Slot).find(is_free)?;
        words.slot(slot, 1).store(words.change(), Ordering::Relaxed);
        words.slot(slot, 2).store(0, Ordering::Relaxed);
        words.slot(slot, 0).store(Process::this().0, Ordering::Release);
        Some(slot)
    }

    /// Notes a device with shared tails.
    pub(super) fn add_record(&self, piece: Piece, stride: usize) -> Result<(), DeviceMapProblem> {
        let words = self.words;
        let first = (0..MAX_RECORDS).map(|index| RECORDS + 4 * index);
        let mut free = first.filter(|first| words.word(*first).load(Ordering::Relaxed) == 0);
        let first = free.next().ok_or(DeviceMapProblem::TooManyDevices(MAX_RECORDS))?;
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
        for first in (0..MAX_RECORDS).map(|index| RECORDS + 4 * index) {
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
        fence(Ordering::Release);
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
            let waited = begin.elapsed();
            if waited > LOOK && !process.is_alive() {
                let owner = words.slot(slot, 0);
                // Whoever has the place by now joined after the change.
                let _ = owner.compare_exchange(process.0, 0, Ordering::AcqRel, Ordering::Relaxed);
                continue;
            }
            if waited > ANSWER_TIME {
                return Err(DeviceMapProblem::NoAnswer { process: process.id(), waited });
            }
            futex::wait(words.word(ANSWERS), answers, LOOK);
        }
    }

    /// Makes the number even again where its holder ended in the middle of a change, such that all views are set up anew.
    fn after_a_dead_one(&self) {
        let number = self.words.change();
        self.words.word(CHANGE).store((number | 1) + 3, Ordering::Release);
        self.words.wake();
    }
}

impl Drop for Changing<'_> {
    fn drop(&mut self) {
        // Release: pairs with the Acquire in `lock`.
        self.words.word(LOCK).store(0, Ordering::Release);
    }
}
