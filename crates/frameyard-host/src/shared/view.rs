//! What a process of a shared yard shows of the memory map's part for devices.
//!
//! A memory file has no zero page: whoever only reads a page of it makes the host allocate one. So the tails behind the
//! heads of compound pages are no pages of the file here, but private memory of each process that cannot be written: behind it
//! is the host's zero page, or its huge zero page, however often it is read. That takes two mappings for a compound page,
//! head and tails, whatever its size. A window of zeroes mapped again and again would take one more file, memory for the
//! window, and a mapping for each time it is repeated; one as long as all tails behind a head comes down to the same two.
//!
//! Mappings are each process's own, so a change has to be made in all of them. Each has a thread, its keeper, that waits for
//! changes in words of the file, makes them, and answers. Who changes something waits for all answers, so that nobody
//! finds pages that his process does not show. Processes that have ended are not waited for.
//!
//! Tails come where other pages were, and a thread may be about to try an exchange on the count of one of those, in vain, which
//! would be its end. So each process waits for such threads of its own before it maps tails ([`speculation`]): all that
//! was there before is zero by then.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use frameyard::ByteSize;

use super::process::Process;
use super::view_words::{Change, Changing, Show, Slot, ViewWords};
use crate::device_problem::DeviceMapProblem;
use crate::memory_use::MappingLimit;
use crate::speculation;
use crate::sys::descriptor;
use crate::sys::host_page_size;
use crate::sys::mapping::{Advice, Piece, Source};
use crate::sys::window::MapWindow;

/// How long a keeper sleeps at most: an answer that a wake-up was missed for comes no later.
const NAP: Duration = Duration::from_secs(1);
/// How long a thread may be at a speculative get, which is a few instructions, before a change is refused for it. A keeper
/// that waits so long has time left to answer.
const GET_TIME: Duration = Duration::from_secs(1);

/// The view of this process, with its keeper.
#[derive(Debug)]
pub(crate) struct SharedView {
    shown: Arc<Shown>,
    /// Threads of this process come one by one.
    changing: Mutex<()>,
    keeper: Option<JoinHandle<()>>,
}

/// What the keeper and those that change something have in common.
#[derive(Debug)]
struct Shown {
    words: Arc<ViewWords>,
    slot: Slot,
    window: Arc<MapWindow>,
    file: File,
    /// Where the window begins in the file.
    file_offset: u64,
    /// Held while mappings are changed.
    applying: Mutex<()>,
    ended: AtomicBool,
}

impl SharedView {
    /// Shows what all others show, and keeps to it from now on. The window shows the file so far.
    pub(super) fn attach(
        window: Arc<MapWindow>,
        (file, file_offset): (File, u64),
        words: ViewWords,
    ) -> Result<Self, DeviceMapProblem> {
        let host = |action| move |source| DeviceMapProblem::host(action, ByteSize(0), source);
        let words = Arc::new(words);
        speculation::prepare();
        // Held until the view is set up: nobody changes anything meanwhile, and waits for who does not answer yet.
        let changing = words.lock()?;
        let slot = changing.join().ok_or(DeviceMapProblem::TooManyViews(<ViewWords>::MAX_VIEWS))?;
        let (applying, ended, words) = (Mutex::new(()), AtomicBool::new(false), Arc::clone(&words));
        let shown = Arc::new(Shown { words, slot, window, file, file_offset, applying, ended });
        // From here on leaving gives the place back.
        let mut view = Self { shown: Arc::clone(&shown), changing: Mutex::new(()), keeper: None };
        shown.set_up().map_err(host("map the memory map"))?;
        drop(changing);
        let keeper = thread::Builder::new().name("frameyard-keeper".to_owned());
        let keeper = keeper.spawn(move || shown.keep()).map_err(host("start a thread that keeps the view"))?;
        view.keeper = Some(keeper);
        Ok(view)
    }

    /// A device with shared tails that has some of a piece.
    fn record_of(&self, piece: Piece) -> Option<(Piece, usize)> {
        let has = |(record, _): &(Piece, usize)| piece.offset < record.end() && record.offset < piece.end();
        self.shown.words.records().find(has)
    }

    /// Makes the tails of a device that begins with the piece, and has a head every `stride` bytes, read as zero everywhere.
    pub(crate) fn share_tails(&self, piece: Piece, stride: usize) -> Result<(), DeviceMapProblem> {
        let page = host_page_size();
        if stride <= page || !stride.is_multiple_of(page) || !piece.len.is_multiple_of(stride) {
            // A page of the host has several heads: all of them are real.
            return Ok(());
        }
        self.check_mappings(2 * (piece.len / stride) as u64 + 1)?;
        let _turn = lock(&self.changing);
        let changing = self.shown.words.lock()?;
        // What others have read there before has taken memory.
        self.shown.punch(piece);
        // Left where a device's part could not be given back, as nobody had the lock.
        changing.remove_records(piece);
        changing.add_record(piece, stride)?;
        let told = self.tell(&changing, Change::SharedTails(piece, stride));
        // So has who tried an exchange there since.
        self.shown.punch(piece);
        if told.is_err() {
            changing.remove_records(piece);
            self.take_back(&changing, Change::File(piece));
        }
        told
    }

    /// Makes pages of a device with shared tails real in all views: memory that is written. Heads are already, and whatever else
    /// there is, once all have made the last change.
    pub(crate) fn make_real(&self, piece: Piece) -> Result<(), DeviceMapProblem> {
        if self.shown.words.is_unsettled() {
            let _turn = lock(&self.changing);
            self.shown.words.lock()?.settle(self.shown.slot)?;
        }
        let Some((record, stride)) = self.record_of(piece) else { return Ok(()) };
        if piece.len == host_page_size() && piece.offset.abs_diff(record.offset).is_multiple_of(stride) {
            return Ok(());
        }
        let _turn = lock(&self.changing);
        let changing = self.shown.words.lock()?;
        // First the memory: whoever sets a view up knows by it which tails are real.
        let size = ByteSize(piece.len as u64);
        let host = |source| DeviceMapProblem::host("provide memory for page structures", size, source);
        let told = self.shown.provide(piece).map_err(host).and_then(|()| self.tell(&changing, Change::File(piece)));
        if told.is_err() {
            self.take_back(&changing, Change::Zeros(piece));
            self.shown.punch(piece);
        }
        told
    }

    /// Gives back the memory of a piece that holds zeroes, in all views. A whole device can be written afterwards, tails not.
    pub(crate) fn give_back(&self, piece: Piece) {
        let _turn = lock(&self.changing);
        // Without the lock memory is lost until the next device comes, which makes real what it writes.
        let Ok(changing) = self.shown.words.lock() else { return };
        let change = match changing.remove_records(piece) {
            true => Some(Change::File(piece)),
            false => self.record_of(piece).map(|_| Change::Zeros(piece)),
        };
        if let Some(change) = change
            && self.tell(&changing, change).is_err()
        {
            // Who does not answer shows zeroes as well. Nothing else comes there before he does.
            changing.leave_open(self.shown.words.change());
        }
        self.shown.punch(piece);
    }

    /// Makes a change in this view, then in all others.
    fn tell(&self, changing: &Changing<'_>, change: Change) -> Result<(), DeviceMapProblem> {
        let shown = &*self.shown;
        let number = {
            let _applying = lock(&shown.applying);
            let this = Process::this().id();
            shown.apply(change).map_err(|source| DeviceMapProblem::Refused { process: this, source })?;
            changing.publish(shown.slot, change)
        };
        changing.wait_for_answers(shown.slot, number)?;
        changing.settled();
        Ok(())
    }

    /// Undoes a change that not all could make.
    fn take_back(&self, changing: &Changing<'_>, change: Change) {
        let _applying = lock(&self.shown.applying);
        // Mappings become fewer; and who cannot follow sets all up anew later.
        let _ = self.shown.apply(change);
        let number = changing.publish(self.shown.slot, change);
        changing.leave_open(number);
    }

    /// Whether every process may have so many more mappings.
    fn check_mappings(&self, needed: u64) -> Result<(), DeviceMapProblem> {
        let words = &self.shown.words;
        for process in words.other_processes(self.shown.slot).into_iter().chain([Process::this()]) {
            let id = process.id();
            // Of a process that may not be looked at, the mappings that fail say it.
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
        self.shown.ended.store(true, Ordering::Release);
        if let Some(keeper) = self.keeper.take() {
            // It may have looked just before the end was said, and be about to sleep.
            while !keeper.is_finished() {
                self.shown.words.wake();
                thread::sleep(Duration::from_micros(50));
            }
            // It panics nowhere; if it did, it is gone too.
            let _ = keeper.join();
        }
        self.shown.words.leave(self.shown.slot);
        // The region may live on, as plain memory of the file.
        let _ = self.shown.apply(Change::File(self.shown.window.whole()));
    }
}

impl Shown {
    fn offset_of(&self, piece: Piece) -> u64 {
        self.file_offset + piece.offset as u64
    }

    /// Takes the memory behind zeroes of the file back.
    fn punch(&self, piece: Piece) {
        // Where this fails there are zeroes all the same.
        let _ = descriptor::punch_hole(&self.file, self.offset_of(piece), piece.len as u64);
    }

    /// Makes changes until the view ends.
    fn keep(&self) {
        while !self.ended.load(Ordering::Acquire) {
            let seen = self.words.change();
            let applying = lock(&self.applying);
            let followed = self.words.follow(self.slot, self);
            drop(applying);
            if !followed {
                self.words.wait_for_change(seen, NAP);
            }
        }
    }

    /// Shows a piece of the file, and gives it memory.
    fn provide(&self, piece: Piece) -> io::Result<()> {
        let _applying = lock(&self.applying);
        self.apply(Change::File(piece))?;
        match self.window.populate(piece) {
            // A kernel without the call. The piece holds zeroes.
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
        self.window.replace(piece, Source::Zeros)?;
        // Reading one shows the host's huge zero page where it has one: a fault for 2 MiB instead of 512. Nothing is ever
        // written there, so no huge page comes of it.
        let _ = self.window.advise(piece, Advice::HugePages);
        Ok(())
    }
}

impl Shown {
    /// Whether a change is one of whole pages in the window.
    fn check(&self, change: Change) -> io::Result<()> {
        let (whole, page) = (self.window.whole(), host_page_size());
        let (piece, stride) = match change {
            Change::File(piece) | Change::Zeros(piece) => (piece, 2 * page),
            Change::SharedTails(piece, stride) => (piece, stride),
        };
        let fits = piece.len > 0 && piece.offset < whole.len && piece.len <= whole.len - piece.offset;
        let is_whole = [piece.offset, piece.len, stride].iter().all(|bytes| bytes.is_multiple_of(page));
        if fits && is_whole && stride > page { Ok(()) } else { Err(io::ErrorKind::InvalidInput.into()) }
    }

    /// Shows something from one offset to another, if there is anything between them.
    fn show(&self, from: usize, to: usize, what: impl Fn(&Self, Piece) -> io::Result<()>) -> io::Result<()> {
        if from < to { what(self, Piece { offset: from, len: to - from }) } else { Ok(()) }
    }

    /// Shows heads and tails that have memory as the file's, all else as zeroes.
    fn set_up_device(&self, piece: Piece, stride: usize) -> io::Result<()> {
        let mut real: Vec<Piece> = heads(piece, stride).collect();
        let page = host_page_size() as u64;
        let (mut at, end) = (self.offset_of(piece), self.file_offset + piece.end() as u64);
        while let Some(data) = descriptor::next_data(&self.file, at)?.filter(|data| *data < end) {
            at = descriptor::next_hole(&self.file, data)?.min(end);
            let offset = ((data - self.file_offset) / page * page) as usize;
            let past = (at - self.file_offset).next_multiple_of(page) as usize;
            real.push(Piece { offset, len: past - offset });
        }
        real.sort_by_key(|piece| piece.offset);
        let mut at = piece.offset;
        for real in real {
            self.show(at, real.offset, Self::show_zeros)?;
            self.show(at.max(real.offset), real.end(), Self::show_file)?;
            at = at.max(real.end());
        }
        self.show(at, piece.end(), Self::show_zeros)
    }
}

impl Show for Shown {
    /// Changes the mappings of this process.
    fn apply(&self, change: Change) -> io::Result<()> {
        self.check(change)?;
        if !matches!(change, Change::File(_)) {
            // What is read there is zero by now: who reads it later tries no exchange.
            speculation::wait_for_gets(GET_TIME)?;
        }
        match change {
            Change::File(piece) => self.show_file(piece),
            Change::Zeros(piece) => self.show_zeros(piece),
            Change::SharedTails(piece, stride) => {
                self.show_zeros(piece)?;
                heads(piece, stride).try_for_each(|head| self.show_file(head))
            }
        }
    }

    /// Tails that have memory are those of split pages: somebody may use them now, so at no time is anything else shown there.
    fn set_up(&self) -> io::Result<()> {
        let mut records: Vec<(Piece, usize)> = self.words.records().collect();
        records.sort_by_key(|(piece, _)| piece.offset);
        if !records.is_empty() {
            speculation::wait_for_gets(GET_TIME)?;
        }
        let mut at = 0;
        for (piece, stride) in records {
            self.check(Change::SharedTails(piece, stride))?;
            self.show(at, piece.offset, Self::show_file)?;
            self.set_up_device(piece, stride)?;
            at = piece.end();
        }
        self.show(at, self.window.whole().len, Self::show_file)
    }
}

/// The pages of the host that begin with a head.
fn heads(piece: Piece, stride: usize) -> impl Iterator<Item = Piece> {
    (piece.offset..piece.end()).step_by(stride).map(|offset| Piece { offset, len: host_page_size() })
}

/// What is locked is whole even where somebody panicked.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
