//! Two address spaces against plain bytes: actions, and what they do to both.

use std::num::NonZeroUsize;

use frameyard::{ByteSize, PageCount};
use frameyard_vm::{
    ExitOutcome, FaultError, HugeAdvice, MapError, MapRequest, MemoryAccess, PinnedPage, ThpMode, VirtAddr,
};

use crate::fixture::{HUGE, PAGE, TestPlatform, TestSpace, TestVm, at, in_small_yard, range};

/// The model's range: four huge pages.
pub(crate) const WINDOW: u64 = 4 * HUGE;
pub(crate) const PAGES: u64 = WINDOW / PAGE;

#[derive(Clone, Copy, Debug)]
pub(crate) enum Action {
    Map { page: u64, pages: u64, huge: HugeAdvice },
    Unmap { page: u64, pages: u64 },
    Write { offset: u64, len: u64, byte: u8 },
    Read { offset: u64, len: u64 },
    Touch { page: u64, access: MemoryAccess },
    Pin { page: u64 },
    Unpin,
    Mode(ThpMode),
}

/// The bytes of an action and its space.
pub(crate) const BYTES_PER_ACTION: usize = 8;

impl Action {
    /// An action, whatever the bytes are, and the space that it is for.
    pub(crate) fn from_bytes(bytes: [u8; BYTES_PER_ACTION]) -> (usize, Self) {
        let half = |at: usize| u64::from(u16::from_le_bytes([bytes[at], bytes[at + 1]]));
        let page = half(1) % PAGES;
        // A few pages, or many.
        let pages = (1 + if bytes[3] < 192 { u64::from(bytes[3]) % 40 } else { half(3) % PAGES }).min(PAGES - page);
        let offset = page * PAGE + half(5) % PAGE;
        let len = (1 + half(3) % (5 * PAGE)).min(WINDOW - offset);
        let chosen = usize::from(bytes[7]);
        let action = match bytes[0] & 0x7f {
            0..24 => Self::Map { page, pages, huge: HugeAdvice::ALL[chosen % HugeAdvice::ALL.len()] },
            24..30 => {
                let (first, huge) = (page / (HUGE / PAGE), HUGE / PAGE);
                let pages = (1 + half(3) % 4).min(4 - first) * huge;
                Self::Map { page: first * huge, pages, huge: HugeAdvice::ALL[chosen % HugeAdvice::ALL.len()] }
            }
            30..50 => Self::Unmap { page, pages },
            50..80 => Self::Write { offset, len, byte: bytes[7] },
            80..100 => Self::Read { offset, len },
            100..108 => {
                let access = if bytes[7] & 1 == 0 { MemoryAccess::Read } else { MemoryAccess::Write };
                Self::Touch { page, access }
            }
            108..116 => Self::Pin { page },
            116..122 => Self::Unpin,
            _ => Self::Mode(ThpMode::ALL[chosen % ThpMode::ALL.len()]),
        };
        (usize::from(bytes[0] >> 7), action)
    }
}

/// The expected contents of a space.
struct Model {
    bytes: Vec<u8>,
    mapped: Vec<bool>,
}

impl Model {
    fn new() -> Self {
        Self { bytes: vec![0; WINDOW as usize], mapped: vec![false; PAGES as usize] }
    }

    /// The first page of a range that is mapped or not.
    fn first(&self, page: u64, pages: u64, mapped: bool) -> Option<VirtAddr> {
        (page..page + pages).find(|page| self.mapped[*page as usize] == mapped).map(|page| at(page * PAGE))
    }

    /// The number of usable bytes from an offset, and the first unusable address if that is fewer than requested.
    fn usable(&self, offset: u64, len: u64) -> (usize, Result<(), FaultError>) {
        let pages = (offset + len - 1) / PAGE - offset / PAGE + 1;
        match self.first(offset / PAGE, pages, false) {
            Some(hole) => {
                let hole = hole.max(at(offset));
                ((hole.0 - at(offset).0) as usize, Err(FaultError::NotMapped(hole)))
            }
            None => (len as usize, Ok(())),
        }
    }
}

struct Run<'a, 'y> {
    vm: TestVm<'y>,
    space: &'a TestSpace<'y>,
    model: Model,
    pins: Vec<PinnedPage<'y, TestPlatform>>,
}

impl Run<'_, '_> {
    fn act(&mut self, action: Action) {
        match action {
            Action::Map { page, pages, huge } => self.map(page, pages, huge),
            Action::Unmap { page, pages } => self.unmap(page, pages),
            Action::Write { offset, len, byte } => {
                let (usable, expected) = self.model.usable(offset, len);
                let written: Vec<u8> = (0..len).map(|at| byte.wrapping_add(at as u8)).collect();
                assert_eq!(self.space.write(at(offset), &written), expected);
                self.model.bytes[offset as usize..][..usable].copy_from_slice(&written[..usable]);
            }
            Action::Read { offset, len } => {
                let (usable, expected) = self.model.usable(offset, len);
                let mut read = vec![0; len as usize];
                assert_eq!(self.space.read(at(offset), &mut read), expected);
                assert!(read[..usable] == self.model.bytes[offset as usize..][..usable], "{len} bytes at {offset}");
            }
            Action::Touch { page, access } => {
                let addr = at(page * PAGE);
                let (_, expected) = self.model.usable(page * PAGE, 1);
                assert_eq!(self.space.touch(addr, access), expected);
                let seen = self.space.translate(addr);
                assert_eq!(seen.is_some(), expected.is_ok());
                assert!(access == MemoryAccess::Read || seen.is_none_or(|seen| seen.flags.is_dirty()));
            }
            Action::Pin { page } => {
                let (_, expected) = self.model.usable(page * PAGE, 1);
                match self.space.pin(at(page * PAGE)) {
                    Ok(pin) => self.pins.push(pin),
                    Err(problem) => assert_eq!(Err(problem), expected),
                }
            }
            Action::Unpin => drop(self.pins.pop()),
            Action::Mode(mode) => self.vm.set_thp_mode(mode),
        }
    }

    fn map(&mut self, page: u64, pages: u64, huge: HugeAdvice) {
        let asked = range(page * PAGE, pages * PAGE);
        let request = MapRequest::anonymous(asked.size()).at(asked.start).advised(huge);
        match self.model.first(page, pages, true) {
            Some(first) => {
                let found = self.space.map(request);
                assert!(matches!(found, Err(MapError::Overlap(there)) if there.start == first), "{found:?}");
            }
            None => {
                assert_eq!(self.space.map(request), Ok(asked));
                self.model.mapped[page as usize..][..pages as usize].fill(true);
                self.model.bytes[(page * PAGE) as usize..][..asked.size().0 as usize].fill(0);
            }
        }
    }

    fn unmap(&mut self, page: u64, pages: u64) {
        let asked = range(page * PAGE, pages * PAGE);
        let found = self.space.unmap(asked);
        match self.model.first(page, pages, false) {
            Some(first) => {
                assert!(matches!(found, Err(MapError::NotMapped(hole)) if hole.start == first), "{found:?}");
            }
            None => {
                assert!(found.unwrap().pages <= PageCount(pages));
                self.model.mapped[page as usize..][..pages as usize].fill(false);
            }
        }
    }

    fn check(&self) {
        let mapped = self.model.mapped.iter().filter(|mapped| **mapped).count() as u64;
        assert_eq!(self.space.statistics().mapped, ByteSize(mapped * PAGE));
        let mut read = vec![0; PAGE as usize];
        for page in (0..PAGES).filter(|page| self.model.mapped[*page as usize]) {
            self.space.read(at(page * PAGE), &mut read).unwrap();
            assert!(read == self.model.bytes[(page * PAGE) as usize..][..PAGE as usize], "page {page}");
        }
    }
}

/// Takes the actions on two spaces of a small yard. Both must be what the model says, and the yard valid and empty at the end.
pub(crate) fn run(actions: &[(usize, Action)], workers: NonZeroUsize) {
    in_small_yard(|vm| {
        let spaces = [vm.create_space().unwrap(), vm.create_space().unwrap()];
        let [first, second] = &spaces;
        let run = |space| Run { vm, space, model: Model::new(), pins: Vec::new() };
        let mut runs = [run(first), run(second)];
        for (which, action) in actions {
            runs[*which].act(*action);
        }
        vm.validate().expect("the state is valid before the exit");
        runs.iter().for_each(Run::check);
        let pins: Vec<_> = runs.into_iter().flat_map(|run| run.pins).collect();
        for space in spaces {
            assert!(matches!(space.exit(workers).unwrap(), ExitOutcome::Gone(_)));
        }
        vm.validate().expect("the state is valid while pinned pages outlive their spaces");
        drop(pins);
    });
}
