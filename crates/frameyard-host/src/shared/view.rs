//! This process's view of the part of a shared memory map for devices.
//!
//! # Tails
//!
//! A memory file has no zero page: reading one of its holes allocates a page. So the tails behind the heads of compound
//! pages are not pages of the file. They are private memory of each process, behind which the host shows its
//! zero page or its huge zero page. A compound page of any size takes two mappings: its head and its tails.
//!
//! No yard writes to tails. Another process that writes at random to the shared memory can mislead this process to: with a forged link,
//! a forged row of a device, or a forged change that makes tails of a page in use. The write then takes a page of private memory
//! that no other process sees, until the next change there.
//!
//! # Changes
//!
//! Each process has its own mappings, so every process has to make each change. A thread per process, the *keeper*,
//! waits for changes in words of the file ([`ViewWords`]), makes them and answers. The process that changes something
//! waits for all answers, so no process uses page structures before its own view shows them. A process that has ended
//! needs no answer.
//!
//! # Speculative gets
//!
//! Tails replace pages of the file. A thread that read a count there before the change may still try to exchange it. That fails,
//! but is a write to the processor: it would take memory, up to a huge page, for a tail that needs none. So each process waits for
//! its speculative gets before it maps tails ([`speculation`]), for 50 ms at most. The counts are already zero then, so a later get
//! fails without writing.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use frameyard::ByteSize;

use super::process::Attachment;
use super::view_words::{Change, Changing, Show, Slot, ViewWords};
use crate::device_problem::DeviceMapProblem;
use crate::memory_use::MappingLimit;
use crate::region::Region;
use crate::speculation;
use crate::sys::descriptor;
use crate::sys::host_page_size;
use crate::sys::lock::lock_past_forks;
use crate::sys::mapping::{Advice, Piece, Source};
use crate::sys::window::MapWindow;

/// The longest sleep of a keeper. If it misses a wake-up, its answer comes no later than that.
const MAX_SLEEP: Duration = Duration::from_secs(1);
/// How long a speculative get, which takes a few instructions, may delay a change. After that the change is made: the thread was
/// stopped, or the process is a forked child without it. A keeper that waits this long still answers in time.
const GET_TIMEOUT: Duration = Duration::from_millis(50);

/// The view of this process and its keeper.
#[derive(Debug)]
pub(crate) struct SharedView {
    state: Arc<ViewState>,
    /// Serialises the threads of this process that change the view.
    changing: Mutex<()>,
    keeper: Option<JoinHandle<()>>,
}

/// State that the keeper and the changing threads share.
#[derive(Debug)]
struct ViewState {
    words: Arc<ViewWords>,
    attachment: Arc<Attachment>,
    slot: Slot,
    window: Arc<MapWindow>,
    file: File,
    /// Where the window begins in the file.
    file_offset: u64,
    /// Serialises changes to the mappings.
    applying: Mutex<()>,
    ended: AtomicBool,
}

impl SharedView {
    /// Sets the view up as the words say and starts its keeper. The window shows the file so far.
    pub(crate) fn attach(
        window: Arc<MapWindow>,
        (file, file_offset): (File, u64),
        words: Region,
        attachment: Arc<Attachment>,
        lock_limit: Duration,
    ) -> Result<Self, DeviceMapProblem> {
        let host = |action| move |source| DeviceMapProblem::host(action, ByteSize(0), source);
        let words = Arc::new(ViewWords::new(words, Arc::clone(&attachment), lock_limit));
        speculation::prepare();
        // Held until the view is set up, so that no process waits for the answer of a view without a keeper.
        let changing = words.lock()?;
        let slot = changing.join().ok_or(DeviceMapProblem::TooManyViews(<ViewWords>::MAX_VIEWS))?;
        let (applying, ended, words) = (Mutex::new(()), AtomicBool::new(false), Arc::clone(&words));
        let state = Arc::new(ViewState { words, attachment, slot, window, file, file_offset, applying, ended });
        // From here on dropping the view frees its slot.
        let mut view = Self { state: Arc::clone(&state), changing: Mutex::new(()), keeper: None };
        state.set_up().map_err(host("map the memory map"))?;
        drop(changing);
        let keeper = thread::Builder::new().name("frameyard-keeper".to_owned());
        let keeper = keeper.spawn(move || state.keep()).map_err(host("start a thread that keeps the view"))?;
        view.keeper = Some(keeper);
        Ok(view)
    }

    /// A device with deduplicated tails that overlaps a piece.
    fn record_of(&self, piece: Piece) -> Option<(Piece, usize)> {
        let has = |(record, _): &(Piece, usize)| piece.offset < record.end() && record.offset < piece.end();
        self.state.words.records().find(has)
    }

    /// Makes the tails of a device read as zero in all views. The device starts with the piece and has a head every
    /// `stride` bytes.
    pub(crate) fn share_tails(&self, piece: Piece, stride: usize) -> Result<(), DeviceMapProblem> {
        let page = host_page_size();
        if stride <= page || !stride.is_multiple_of(page) || !piece.len.is_multiple_of(stride) {
            // A page of the host contains several heads, so no page consists of tails only.
            return Ok(());
        }
        self.check_mappings(2 * (piece.len / stride) as u64 + 1)?;
        let _exclusive = lock_past_forks(&self.changing);
        let changing = self.state.words.lock()?;
        // Earlier reads of these pages have allocated memory.
        self.state.punch(piece);
        // A record is left over if the removal of an earlier device could not take the lock.
        changing.remove_records(piece);
        changing.add_record(piece, stride)?;
        let changed = self.change_all_views(&changing, Change::ZeroTails(piece, stride));
        // Exchanges that were tried meanwhile have allocated memory too.
        self.state.punch(piece);
        if changed.is_err() {
            changing.remove_records(piece);
            self.undo(&changing, Change::File(piece));
        }
        changed
    }

    /// Makes a piece of a device with deduplicated tails writable in all views.
    ///
    /// Heads, and everything outside such devices, are writable as soon as all views have made the last change.
    pub(crate) fn make_writable(&self, piece: Piece) -> Result<(), DeviceMapProblem> {
        if self.state.words.is_unsettled() {
            let _exclusive = lock_past_forks(&self.changing);
            self.state.words.lock()?.settle(self.state.slot)?;
        }
        let Some((record, stride)) = self.record_of(piece) else { return Ok(()) };
        if piece.len == host_page_size() && piece.offset.abs_diff(record.offset).is_multiple_of(stride) {
            return Ok(());
        }
        let _exclusive = lock_past_forks(&self.changing);
        let changing = self.state.words.lock()?;
        // Memory first: a process that sets its view up recognises writable tails by it.
        let size = ByteSize(piece.len as u64);
        let host = |source| DeviceMapProblem::host("provide memory for page structures", size, source);
        let changed = self
            .state
            .provide(piece)
            .map_err(host)
            .and_then(|()| self.change_all_views(&changing, Change::File(piece)));
        if changed.is_err() {
            self.undo(&changing, Change::Zeros(piece));
            self.state.punch(piece);
        }
        changed
    }

    /// Frees the memory of a piece that contains zeroes, in all views. Afterwards a whole device is writable, tails are
    /// not.
    pub(crate) fn release(&self, piece: Piece) {
        let _exclusive = lock_past_forks(&self.changing);
        // Without the lock the memory stays allocated until the next device is mapped there, which makes it writable.
        let Ok(changing) = self.state.words.lock() else { return };
        let change = match changing.remove_records(piece) {
            true => Some(Change::File(piece)),
            false => self.record_of(piece).map(|_| Change::Zeros(piece)),
        };
        if let Some(change) = change
            && self.change_all_views(&changing, change).is_err()
        {
            // A view that has not answered shows zeroes as well, and the next change waits for its answer.
            changing.mark_unsettled(self.state.words.change());
        }
        self.state.punch(piece);
    }

    /// Makes a change in this view, then in all other views.
    fn change_all_views(&self, changing: &Changing<'_>, change: Change) -> Result<(), DeviceMapProblem> {
        let state = &*self.state;
        let number = {
            let _applying = lock_past_forks(&state.applying);
            let this = state.attachment.process().id();
            state.apply(change).map_err(|source| DeviceMapProblem::Refused { process: this, source })?;
            changing.publish(state.slot, change)
        };
        changing.wait_for_answers(state.slot, number)?;
        changing.mark_settled();
        Ok(())
    }

    /// Undoes a change that not all views could make.
    fn undo(&self, changing: &Changing<'_>, change: Change) {
        let _applying = lock_past_forks(&self.state.applying);
        // This needs fewer mappings. A view that fails to follow is set up anew later.
        let _ = self.state.apply(change);
        let number = changing.publish(self.state.slot, change);
        changing.mark_unsettled(number);
    }

    /// Checks that every process may have `needed` more mappings.
    fn check_mappings(&self, needed: u64) -> Result<(), DeviceMapProblem> {
        let words = &self.state.words;
        for process in words.other_processes(self.state.slot).into_iter().chain([self.state.attachment.process()]) {
            let id = process.id();
            // If /proc hides the process, a mapping that fails there reports the shortage.
            let Ok(limit) = MappingLimit::of_process(&id.to_string()) else { continue };
            if limit.left() < needed {
                let MappingLimit { limit, used } = limit;
                return Err(DeviceMapProblem::Mappings { process: id, limit, used, needed });
            }
        }
        Ok(())
    }
}

impl Drop for SharedView {
    fn drop(&mut self) {
        if !self.state.attachment.is_own() {
            // A forked child: slot and keeper belong to its parent.
            std::mem::forget(self.keeper.take());
            return;
        }
        // Release: pairs with the Acquire in `ViewState::keep`.
        self.state.ended.store(true, Ordering::Release);
        if let Some(keeper) = self.keeper.take() {
            // The keeper may have read `ended` just before the store and be about to sleep.
            while !keeper.is_finished() {
                self.state.words.wake();
                thread::sleep(Duration::from_micros(50));
            }
            // A keeper that panicked is gone too.
            let _ = keeper.join();
        }
        self.state.words.leave(self.state.slot);
        // The region may outlive the view. It shows the whole file then.
        let _ = self.state.apply(Change::File(self.state.window.whole()));
    }
}

impl ViewState {
    fn offset_of(&self, piece: Piece) -> u64 {
        self.file_offset + piece.offset as u64
    }

    /// Frees the memory behind zeroes of the file.
    fn punch(&self, piece: Piece) {
        // If this fails, the memory still contains zeroes.
        let _ = descriptor::punch_hole(&self.file, self.offset_of(piece), piece.len as u64);
    }

    /// The keeper: makes changes until the view ends.
    fn keep(&self) {
        // Acquire: pairs with the Release in `SharedView::drop`.
        while !self.ended.load(Ordering::Acquire) {
            let seen = self.words.change();
            let applying = lock_past_forks(&self.applying);
            let followed = self.words.follow(self.slot, self);
            drop(applying);
            if !followed {
                self.words.wait_for_change(seen, MAX_SLEEP);
            }
        }
    }

    /// Maps a piece of the file and allocates its memory.
    fn provide(&self, piece: Piece) -> io::Result<()> {
        let _applying = lock_past_forks(&self.applying);
        self.apply(Change::File(piece))?;
        match self.window.populate(piece) {
            // A kernel without `MADV_POPULATE_WRITE`: writing allocates the memory too. The piece contains zeroes.
            Err(error) if matches!(error.kind(), io::ErrorKind::InvalidInput | io::ErrorKind::Unsupported) => {
                self.window.zero(piece);
                Ok(())
            }
            populated => populated,
        }
    }

    fn show_file(&self, piece: Piece) -> io::Result<()> {
        let offset = self.offset_of(piece);
        self.window.replace(piece, Source::Shared { file: self.file.as_fd(), offset })
    }

    fn show_zeros(&self, piece: Piece) -> io::Result<()> {
        self.window.replace(piece, Source::Anonymous)?;
        // With this advice a read maps the host's huge zero page, one fault for 2 MiB instead of 512. The piece is
        // not written, so no huge page is allocated.
        let _ = self.window.advise(piece, Advice::HugePages);
        Ok(())
    }
}

impl ViewState {
    /// Checks that a change consists of whole pages inside the window.
    fn check(&self, change: Change) -> io::Result<()> {
        let (whole, page) = (self.window.whole(), host_page_size());
        let (piece, stride) = match change {
            Change::File(piece) | Change::Zeros(piece) => (piece, 2 * page),
            Change::ZeroTails(piece, stride) => (piece, stride),
        };
        let fits = piece.len > 0 && piece.offset < whole.len && piece.len <= whole.len - piece.offset;
        let is_whole = [piece.offset, piece.len, stride].iter().all(|bytes| bytes.is_multiple_of(page));
        if fits && is_whole && stride > page { Ok(()) } else { Err(io::ErrorKind::InvalidInput.into()) }
    }

    /// Maps the bytes from one offset to another with `what`, if there are any.
    fn show(&self, from: usize, to: usize, what: impl Fn(&Self, Piece) -> io::Result<()>) -> io::Result<()> {
        if from < to { what(self, Piece { offset: from, len: to - from }) } else { Ok(()) }
    }

    /// Maps heads and tails that have memory from the file, and all other tails as zeroes.
    fn set_up_device(&self, piece: Piece, stride: usize) -> io::Result<()> {
        let mut backed: Vec<Piece> = heads(piece, stride).collect();
        let page = host_page_size() as u64;
        let (mut at, end) = (self.offset_of(piece), self.file_offset + piece.end() as u64);
        while let Some(data) = descriptor::next_data(&self.file, at)?.filter(|data| *data < end) {
            // Another process may make holes meanwhile.
            at = descriptor::next_hole(&self.file, data)?.max((data / page + 1) * page).min(end);
            let offset = ((data - self.file_offset) / page * page) as usize;
            let past = (at - self.file_offset).next_multiple_of(page) as usize;
            backed.push(Piece { offset, len: past - offset });
        }
        backed.sort_by_key(|piece| piece.offset);
        let mut at = piece.offset;
        for backed in backed {
            self.show(at, backed.offset, Self::show_zeros)?;
            self.show(at.max(backed.offset), backed.end(), Self::show_file)?;
            at = at.max(backed.end());
        }
        self.show(at, piece.end(), Self::show_zeros)
    }
}

impl Show for ViewState {
    /// Changes the mappings of this process.
    fn apply(&self, change: Change) -> io::Result<()> {
        self.check(change)?;
        if !matches!(change, Change::File(_)) {
            wait_for_gets();
        }
        match change {
            Change::File(piece) => self.show_file(piece),
            Change::Zeros(piece) => self.show_zeros(piece),
            Change::ZeroTails(piece, stride) => {
                self.show_zeros(piece)?;
                heads(piece, stride).try_for_each(|head| self.show_file(head))
            }
        }
    }

    /// Tails with memory belong to split pages that may be in use, so they are mapped from the file throughout.
    fn set_up(&self) -> io::Result<()> {
        let mut records: Vec<(Piece, usize)> = self.words.records().collect();
        records.sort_by_key(|(piece, _)| piece.offset);
        if !records.is_empty() {
            wait_for_gets();
        }
        let mut at = 0;
        for (piece, stride) in records {
            self.check(Change::ZeroTails(piece, stride))?;
            self.show(at, piece.offset, Self::show_file)?;
            self.set_up_device(piece, stride)?;
            at = piece.end();
        }
        self.show(at, self.window.whole().len, Self::show_file)
    }
}

/// Waits for the gets of this process, with a bound. The counts of the pages that become tails are zero by now: a get that starts later
/// tries no exchange.
fn wait_for_gets() {
    // A get that goes on afterwards takes memory for a tail at most.
    let _ = speculation::wait_for_gets(GET_TIMEOUT);
}

/// The host pages that start with a head.
fn heads(piece: Piece, stride: usize) -> impl Iterator<Item = Piece> {
    (piece.offset..piece.end()).step_by(stride).map(|offset| Piece { offset, len: host_page_size() })
}
