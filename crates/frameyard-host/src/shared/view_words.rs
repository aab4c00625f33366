//! The words of a memory file that coordinate the views of the memory map's part for devices.
//!
//! # Protocol
//!
//! | step | words |
//! |---|---|
//! | A changing process takes the right to change views. | `LOCK` |
//! | It makes the change in its own view and publishes it under the next even number. | `MESSAGE`, `CHANGE` |
//! | Every keeper makes the change and answers with the number, or with an error. | its slot, `ANSWERS` |
//! | The changing process waits for all slots, then releases the right. | `LOCK` |
//!
//! A keeper that missed a change sets its whole view up anew from the records. A process that died while it held
//! the right is succeeded by the next one, which makes all views set up anew.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::process::{Attachment, Process};
use super::word_store::{FileWords, WordStore};
use crate::device_problem::DeviceMapProblem;
use crate::region::Region;
use crate::sys::mapping::Piece;

/// The holder of the right to change views: a [`Process`], or 0.
const LOCK: usize = 0;
/// Twice the number of changes made so far; odd while the message is being written. Keepers wait on this word.
const CHANGE: usize = 8;
/// The number of answers given so far. Changing processes wait on this word.
const ANSWERS: usize = 16;
/// The last change: kind, offset, length, stride.
const MESSAGE: usize = 24;
/// The last change that was undone, or that some views may not have made, or 0. A view that has not answered it may
/// still show something else.
const UNSETTLED: usize = 28;
/// Devices with deduplicated tails: in use, offset, length, stride.
const RECORDS: usize = 32;
/// Views: [`Process`] or 0, the change answered last, error number.
const fn slots<B: WordStore>() -> usize {
    RECORDS + 4 * B::RECORDS
}

/// The number of words.
pub(super) const fn words<B: WordStore>() -> usize {
    slots::<B>() + 4 * B::VIEWS
}

/// The size of the words in a memory file.
pub(super) const BYTES: u64 = (words::<FileWords>() * size_of::<AtomicU64>()) as u64;

/// How long a process may take to answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);
/// How often a waiter checks that the processes it waits for are alive.
const ALIVE_CHECK: Duration = Duration::from_millis(20);

/// A change to a piece of the window.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Change {
    /// Show the file, readable and writable.
    File(Piece),
    /// Show private zeroes, without memory.
    Zeros(Piece),
    /// Show private zeroes, except for the first page of each `stride` bytes, which shows the file.
    ZeroTails(Piece, usize),
}

impl Change {
    fn words(self) -> [u64; 4] {
        let (kind, piece, stride) = match self {
            Self::File(piece) => (1, piece, 0),
            Self::Zeros(piece) => (2, piece, 0),
            Self::ZeroTails(piece, stride) => (3, piece, stride),
        };
        [kind, piece.offset as u64, piece.len as u64, stride as u64]
    }

    /// Decodes a change; `None` if the words encode none.
    fn from_words([kind, offset, len, stride]: [u64; 4]) -> Option<Self> {
        let piece = Piece { offset: usize::try_from(offset).ok()?, len: usize::try_from(len).ok()? };
        piece.offset.checked_add(piece.len)?;
        match kind {
            1 => Some(Self::File(piece)),
            2 => Some(Self::Zeros(piece)),
            3 if stride > 0 => Some(Self::ZeroTails(piece, usize::try_from(stride).ok()?)),
            _ => None,
        }
    }
}

/// What a keeper has to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Work {
    /// Nothing.
    Nothing,
    /// Make one change, the only one since its last answer.
    One { number: u64, change: Change },
    /// Set the view up anew: it missed a change, or the message cannot be decoded.
    Several { number: u64 },
}

/// The place of a view in the list of views.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Slot(usize);

/// A view of a process.
pub(super) trait Show {
    /// Makes a change.
    fn apply(&self, change: Change) -> io::Result<()>;
    /// Maps everything as the records say.
    fn set_up(&self) -> io::Result<()>;
}

/// The words, as mapped by this process.
#[derive(Debug)]
pub(super) struct ViewWords<B = FileWords> {
    store: B,
}

/// The right to change views. Dropping it releases the right.
#[derive(Debug)]
pub(super) struct Changing<'a, B: WordStore = FileWords> {
    words: &'a ViewWords<B>,
}

/// A word of a store.
#[derive(Clone, Copy)]
struct Word<'a, B>(&'a B, usize);

impl<B: WordStore> Word<'_, B> {
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
    /// A wait for the right to change views ends after `lock_limit`.
    pub(super) fn new(region: Region, attachment: Arc<Attachment>, lock_limit: Duration) -> Self {
        assert!(region.size().0 >= BYTES, "room for the words");
        Self { store: FileWords { region, attachment, lock_limit } }
    }
}

impl<B: WordStore> ViewWords<B> {
    /// The maximum numbers of views, and of devices with deduplicated tails.
    pub(super) const MAX_VIEWS: usize = B::VIEWS;
    const MAX_RECORDS: usize = B::RECORDS;

    fn word(&self, index: usize) -> Word<'_, B> {
        Word(&self.store, index)
    }

    fn four(&self, first: usize) -> [u64; 4] {
        [0, 1, 2, 3].map(|index| self.word(first + index).load(Ordering::Relaxed))
    }

    fn slot(&self, slot: Slot, word: usize) -> Word<'_, B> {
        self.word(slots::<B>() + 4 * slot.0 + word)
    }

    /// Takes the right to change views. Succeeds a holder that has died.
    pub(super) fn lock(&self) -> Result<Changing<'_, B>, DeviceMapProblem> {
        let (me, begin) = (self.store.this(), Instant::now());
        let mut nap = Duration::from_micros(20);
        loop {
            // Acquire: pairs with the Release in `Changing::drop`.
            let Err(holder) = self.word(LOCK).compare_exchange(0, me.0, Ordering::Acquire) else {
                return Ok(Changing { words: self });
            };
            let holder = Process(holder);
            // Acquire: pairs with the Release in `Changing::drop` of the holder before the dead one. The dead one's own
            // writes need no partner, since all views are set up anew.
            let take_over = || self.word(LOCK).compare_exchange(holder.0, me.0, Ordering::Acquire);
            if self.store.has_ended(holder) && take_over().is_ok() {
                let changing = Changing { words: self };
                changing.after_dead_holder();
                return Ok(changing);
            }
            let waited = self.store.since(begin);
            if waited > self.store.lock_limit() {
                return Err(DeviceMapProblem::Changing { process: holder.id(), waited });
            }
            self.store.pause(nap);
            nap = (nap * 2).min(Duration::from_millis(2));
        }
    }

    /// Devices with deduplicated tails: their pieces and strides.
    pub(super) fn records(&self) -> impl Iterator<Item = (Piece, usize)> {
        (0..B::RECORDS).filter_map(|index| {
            let first = RECORDS + 4 * index;
            // Acquire: pairs with the Release in `add_record`.
            if self.word(first).load(Ordering::Acquire) == 0 {
                return None;
            }
            match Change::from_words([3, self.four(first)[1], self.four(first)[2], self.four(first)[3]]) {
                Some(Change::ZeroTails(piece, stride)) => Some((piece, stride)),
                _ => None,
            }
        })
    }

    /// What the keeper of a view has to do.
    fn pending_work(&self, slot: Slot) -> Work {
        let number = self.change();
        let answered = self.slot(slot, 1).load(Ordering::Relaxed);
        if number == answered || number % 2 == 1 {
            return Work::Nothing;
        }
        let message = self.four(MESSAGE);
        // Acquire fence: pairs with the Release in `publish`. It orders the loads of the message before the second
        // load of the number, which tells whether the message belongs to that number.
        self.store.fence(Ordering::Acquire);
        let is_whole = self.word(CHANGE).load(Ordering::Relaxed) == number;
        // A change that failed may have been made in part.
        let has_failed = self.slot(slot, 2).load(Ordering::Relaxed) != 0;
        match Change::from_words(message) {
            Some(change) if is_whole && !has_failed && number == answered.wrapping_add(2) => {
                Work::One { number, change }
            }
            _ => Work::Several { number },
        }
    }

    /// Makes the change that a view has not made yet and answers it. `false` if there is none.
    pub(super) fn follow(&self, slot: Slot, show: &impl Show) -> bool {
        let (number, made) = match self.pending_work(slot) {
            Work::Nothing => return false,
            Work::One { number, change } => (number, show.apply(change)),
            Work::Several { number } => (number, show.set_up()),
        };
        let error = made.err().map_or(0, |error| error.raw_os_error().unwrap_or(libc::EINVAL));
        self.answer(slot, number, error);
        true
    }

    /// Whether some views may not have made the last change. A process that maps a device calls this before it takes the
    /// right.
    pub(super) fn is_unsettled(&self) -> bool {
        self.word(UNSETTLED).load(Ordering::Relaxed) != 0
    }

    /// The number of the last change.
    pub(super) fn change(&self) -> u64 {
        // Acquire: pairs with the Release in `publish`.
        self.word(CHANGE).load(Ordering::Acquire)
    }

    /// Sleeps until there may be a change after `seen`.
    pub(super) fn wait_for_change(&self, seen: u64, longest: Duration) {
        self.store.sleep_on(CHANGE, seen, longest);
    }

    /// Wakes all keepers.
    pub(super) fn wake(&self) {
        self.store.wake(CHANGE);
    }

    /// Reports that a view shows a change, or failed to.
    fn answer(&self, slot: Slot, number: u64, error: i32) {
        self.slot(slot, 2).store(u64::from(error.unsigned_abs()), Ordering::Relaxed);
        // Release: pairs with the Acquire in `wait_for_answers`, which then sees the error and relies on the view.
        self.slot(slot, 1).store(number, Ordering::Release);
        // Release: pairs with the Acquire in `wait_for_answers`, which sees the slot above if it sees the new count.
        self.store.fetch_add(ANSWERS, 1, Ordering::Release);
        self.store.wake(ANSWERS);
    }

    /// Frees the place of a view. Changing processes no longer wait for it.
    pub(super) fn leave(&self, slot: Slot) {
        // Release: pairs with the Acquire in `other_views`.
        self.slot(slot, 0).store(0, Ordering::Release);
        self.store.wake(ANSWERS);
    }

    /// All views but one, with their processes.
    fn other_views(&self, own: Slot) -> impl Iterator<Item = (Slot, Process)> {
        let slots = (0..B::VIEWS).map(Slot).filter(move |slot| *slot != own);
        // Acquire: pairs with the Release in `join`.
        let with_owner = slots.map(|slot| (slot, self.slot(slot, 0).load(Ordering::Acquire)));
        with_owner.filter(|(_, owner)| *owner != 0).map(|(slot, owner)| (slot, Process(owner)))
    }

    /// The processes that have other views and have not ended, each once.
    pub(super) fn other_processes(&self, own: Slot) -> Vec<Process> {
        let mut processes: Vec<Process> = self.other_views(own).map(|(_, process)| process).collect();
        processes.sort_by_key(|process| process.0);
        processes.dedup();
        processes.retain(|process| !self.store.has_ended(*process));
        processes
    }
}

impl<B: WordStore> Changing<'_, B> {
    /// Takes a place for a view of this process that shows the last change.
    pub(super) fn join(&self) -> Option<Slot> {
        let words = self.words;
        // Acquire: pairs with the Release in `leave`.
        let is_free = |slot: &Slot| match words.slot(*slot, 0).load(Ordering::Acquire) {
            0 => true,
            owner => words.store.has_ended(Process(owner)),
        };
        let slot = (0..B::VIEWS).map(Slot).find(is_free)?;
        words.slot(slot, 1).store(words.change(), Ordering::Relaxed);
        words.slot(slot, 2).store(0, Ordering::Relaxed);
        // Release: pairs with the Acquire in `other_views`.
        words.slot(slot, 0).store(words.store.this().0, Ordering::Release);
        Some(slot)
    }

    /// Records a device with deduplicated tails.
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

    /// Removes the records of devices inside a piece. Returns whether there were any.
    pub(super) fn remove_records(&self, piece: Piece) -> bool {
        let mut removed = false;
        for first in (0..B::RECORDS).map(|index| RECORDS + 4 * index) {
            let [used, offset, len, _] = self.words.four(first);
            let is_inside = offset >= piece.offset as u64 && offset.saturating_add(len) <= piece.end() as u64;
            if used != 0 && is_inside {
                // Release: pairs with the Acquire in `records`.
                self.words.word(first).store(0, Ordering::Release);
                removed = true;
            }
        }
        removed
    }

    /// Publishes a change that this process's own view has made. Returns its number.
    pub(super) fn publish(&self, own: Slot, change: Change) -> u64 {
        let words = self.words;
        let number = words.change();
        words.word(CHANGE).store(number.wrapping_add(1), Ordering::Relaxed);
        // Release fence: pairs with the Acquire in `pending_work`. It orders the odd number before the message.
        words.store.fence(Ordering::Release);
        for (index, word) in change.words().into_iter().enumerate() {
            words.word(MESSAGE + index).store(word, Ordering::Relaxed);
        }
        words.slot(own, 1).store(number.wrapping_add(2), Ordering::Relaxed);
        // Release: pairs with the Acquire in `change`.
        words.word(CHANGE).store(number.wrapping_add(2), Ordering::Release);
        words.wake();
        number.wrapping_add(2)
    }

    /// Waits until all other views show a change. Frees the places of views whose process has ended.
    pub(super) fn wait_for_answers(&self, own: Slot, number: u64) -> Result<(), DeviceMapProblem> {
        let (words, begin) = (self.words, Instant::now());
        loop {
            // Acquire: pairs with the Release in `answer`.
            let answers = words.word(ANSWERS).load(Ordering::Acquire);
            let mut missing = None;
            for (slot, process) in words.other_views(own) {
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
            let waited = words.store.since(begin);
            if waited > ANSWER_TIMEOUT {
                return Err(DeviceMapProblem::NoAnswer { process: process.id(), waited });
            }
            if waited > ALIVE_CHECK && words.store.has_ended(process) {
                let owner = words.slot(slot, 0);
                // AcqRel: pairs with the Acquire and the Release in `join`. If the exchange fails, another view has
                // taken the place since, and shows the change.
                let _ = owner.compare_exchange(process.0, 0, Ordering::AcqRel);
                continue;
            }
            words.store.sleep_on(ANSWERS, answers, ALIVE_CHECK);
        }
    }

    /// Notes a change that some views may not have made.
    pub(super) fn mark_unsettled(&self, number: u64) {
        self.words.word(UNSETTLED).store(number, Ordering::Relaxed);
    }

    /// Notes that all views have made the last change.
    pub(super) fn mark_settled(&self) {
        self.words.word(UNSETTLED).store(0, Ordering::Relaxed);
    }

    /// Waits for the answers to an unsettled change.
    pub(super) fn settle(&self, own: Slot) -> Result<(), DeviceMapProblem> {
        let number = self.words.word(UNSETTLED).load(Ordering::Relaxed);
        if number != 0 {
            self.wait_for_answers(own, number)?;
            self.mark_settled();
        }
        Ok(())
    }

    /// Makes the number even again after a holder that died in the middle of a change. All views set up anew.
    fn after_dead_holder(&self) {
        let number = self.words.change();
        // Release: pairs with the Acquire in `change`.
        self.words.word(CHANGE).store((number | 1).wrapping_add(3), Ordering::Release);
        self.mark_unsettled((number | 1).wrapping_add(3));
        self.words.wake();
    }
}

impl<B: WordStore> Drop for Changing<'_, B> {
    fn drop(&mut self) {
        // Release: pairs with the Acquire in `lock`.
        self.words.word(LOCK).store(0, Ordering::Release);
    }
}

#[cfg(test)]
mod loom_models;
