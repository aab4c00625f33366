//! Two address spaces and two files against plain bytes: actions, and what they do to all of them.

use std::cell::RefCell;
use std::num::NonZeroUsize;

use frameyard::{ByteSize, PageCount};
use frameyard_vm::{
    ExitOutcome, FaultError, File, HugeAdvice, MapError, MapRequest, MemoryAccess, PatternStore, PinnedPage, Sharing,
    ThpMode, VirtAddr,
};

use crate::fixture::{HUGE, PAGE, TestPlatform, TestSpace, TestVm, at, in_small_yard, range};

/// The model's range: four huge pages.
pub(crate) const WINDOW: u64 = 4 * HUGE;
pub(crate) const PAGES: u64 = WINDOW / PAGE;

/// Pages of each file: of shared memory, and of a file with a store.
pub(crate) const FILE_PAGES: u64 = 64;
const FILE_KEY: u64 = 7;

#[derive(Clone, Copy, Debug)]
pub(crate) enum Action {
    Map { page: u64, pages: u64, huge: HugeAdvice },
    MapFile { page: u64, pages: u64, file: usize, first: u64, sharing: Sharing },
    WriteFile { file: usize, offset: u64, len: u64, byte: u8 },
    DropClean { file: usize },
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
            0..16 => Self::Map { page, pages, huge: HugeAdvice::ALL[chosen % HugeAdvice::ALL.len()] },
            16..24 => {
                let first = u64::from(bytes[5]) % FILE_PAGES;
                let pages = pages.min(FILE_PAGES - first);
                let sharing = Sharing::ALL[chosen / 2 % Sharing::ALL.len()];
                Self::MapFile { page, pages, file: chosen % 2, first, sharing }
            }
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
            108..115 => Self::Pin { page },
            115..120 => Self::Unpin,
            120..123 => {
                let offset = offset % (FILE_PAGES * PAGE);
                let len = len.min(FILE_PAGES * PAGE - offset);
                Self::WriteFile { file: chosen % 2, offset, len, byte: bytes[7] }
            }
            123..125 => Self::DropClean { file: chosen % 2 },
            _ => Self::Mode(ThpMode::ALL[chosen % ThpMode::ALL.len()]),
        };
        (usize::from(bytes[0] >> 7), action)
    }
}

/// The expected source of a mapped page's bytes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Source {
    /// The space's own page.
    Own,
    /// A page of a file.
    File { file: usize, page: u64, sharing: Sharing },
}

/// The expected contents of a space.
struct Model<'a> {
    /// Of its own pages.
    bytes: Vec<u8>,
    mapped: Vec<Option<Source>>,
    /// The contents of the files, which both spaces see.
    files: &'a RefCell<[Vec<u8>; 2]>,
}

impl<'a> Model<'a> {
    fn new(files: &'a RefCell<[Vec<u8>; 2]>) -> Self {
        Self { bytes: vec![0; WINDOW as usize], mapped: vec![None; PAGES as usize], files }
    }

    /// The first page of a range that is mapped or not.
    fn first(&self, page: u64, pages: u64, mapped: bool) -> Option<VirtAddr> {
        let is = |page: &u64| self.mapped[*page as usize].is_some() == mapped;
        (page..page + pages).find(is).map(|page| at(page * PAGE))
    }

    /// The bytes of a mapped page.
    fn page(&self, page: u64) -> Vec<u8> {
        match self.mapped[page as usize] {
            Some(Source::File { file, page, .. }) => {
                self.files.borrow()[file][(page * PAGE) as usize..][..PAGE as usize].to_vec()
            }
            _ => self.bytes[(page * PAGE) as usize..][..PAGE as usize].to_vec(),
        }
    }

    /// A mapped page is about to be written: a private page of a file becomes the space's own.
    fn written(&mut self, page: u64) {
        if let Some(Source::File { sharing: Sharing::Private, .. }) = self.mapped[page as usize] {
            let bytes = self.page(page);
            self.bytes[(page * PAGE) as usize..][..PAGE as usize].copy_from_slice(&bytes);
            self.mapped[page as usize] = Some(Source::Own);
        }
    }

    /// Writes the bytes of mapped pages.
    fn write(&mut self, offset: u64, bytes: &[u8]) {
        for (at, byte) in (offset..).zip(bytes) {
            self.written(at / PAGE);
            match self.mapped[(at / PAGE) as usize] {
                Some(Source::File { file, page, .. }) => {
                    self.files.borrow_mut()[file][(page * PAGE + at % PAGE) as usize] = *byte;
                }
                _ => self.bytes[at as usize] = *byte,
            }
        }
    }

    /// The bytes of mapped pages.
    fn read(&self, offset: u64, len: usize) -> Vec<u8> {
        let (first, last) = (offset / PAGE, (offset + len as u64).div_ceil(PAGE));
        let all: Vec<u8> = (first..last).flat_map(|page| self.page(page)).collect();
        all[(offset % PAGE) as usize..][..len].to_vec()
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
    files: &'a [File<'y, TestPlatform>; 2],
    model: Model<'a>,
    pins: Vec<PinnedPage<'y, TestPlatform>>,
}

impl Run<'_, '_> {
    fn act(&mut self, action: Action) {
        match action {
            Action::Map { page, pages, huge } => {
                let asked = range(page * PAGE, pages * PAGE);
                let request = MapRequest::anonymous(asked.size()).at(asked.start).advised(huge);
                if self.map(page, pages, request) {
                    self.model.mapped[page as usize..][..pages as usize].fill(Some(Source::Own));
                    self.model.bytes[(page * PAGE) as usize..][..asked.size().0 as usize].fill(0);
                }
            }
            Action::MapFile { page, pages, file, first, sharing } => {
                let size = ByteSize(pages * PAGE);
                let request = MapRequest::file(self.files[file].id(), first, size, sharing).at(at(page * PAGE));
                if self.map(page, pages, request) {
                    for nth in 0..pages {
                        let source = Source::File { file, page: first + nth, sharing };
                        self.model.mapped[(page + nth) as usize] = Some(source);
                    }
                }
            }
            Action::WriteFile { file, offset, len, byte } => {
                let written: Vec<u8> = (0..len).map(|at| byte.wrapping_sub(at as u8)).collect();
                self.files[file].write(offset, &written).unwrap();
                self.model.files.borrow_mut()[file][offset as usize..][..len as usize].copy_from_slice(&written);
            }
            Action::DropClean { file } => _ = self.files[file].drop_clean(),
            Action::Unmap { page, pages } => self.unmap(page, pages),
            Action::Write { offset, len, byte } => {
                let (usable, expected) = self.model.usable(offset, len);
                let written: Vec<u8> = (0..len).map(|at| byte.wrapping_add(at as u8)).collect();
                assert_eq!(self.space.write(at(offset), &written), expected);
                self.model.write(offset, &written[..usable]);
            }
            Action::Read { offset, len } => {
                let (usable, expected) = self.model.usable(offset, len);
                let mut read = vec![0; len as usize];
                assert_eq!(self.space.read(at(offset), &mut read), expected);
                assert!(read[..usable] == self.model.read(offset, usable), "{len} bytes at {offset}");
            }
            Action::Touch { page, access } => {
                let addr = at(page * PAGE);
                let (_, expected) = self.model.usable(page * PAGE, 1);
                assert_eq!(self.space.touch(addr, access), expected);
                if access == MemoryAccess::Write {
                    self.model.written(page);
                }
                let seen = self.space.translate(addr);
                assert_eq!(seen.is_some(), expected.is_ok());
                assert!(access == MemoryAccess::Read || seen.is_none_or(|seen| seen.flags.is_dirty()));
            }
            Action::Pin { page } => {
                let (_, expected) = self.model.usable(page * PAGE, 1);
                match self.space.pin(at(page * PAGE)) {
                    Ok(pin) => {
                        // It pins for writing.
                        self.model.written(page);
                        self.pins.push(pin);
                    }
                    Err(problem) => assert_eq!(Err(problem), expected),
                }
            }
            Action::Unpin => drop(self.pins.pop()),
            Action::Mode(mode) => self.vm.set_thp_mode(mode),
        }
    }

    /// Maps as requested; whether that succeeded.
    fn map(&mut self, page: u64, pages: u64, request: MapRequest) -> bool {
        match self.model.first(page, pages, true) {
            Some(first) => {
                let found = self.space.map(request);
                assert!(matches!(found, Err(MapError::Overlap(there)) if there.start == first), "{found:?}");
                false
            }
            None => {
                assert_eq!(self.space.map(request), Ok(range(page * PAGE, pages * PAGE)));
                true
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
                let found = found.unwrap();
                assert!(found.pages + found.file <= PageCount(pages));
                self.model.mapped[page as usize..][..pages as usize].fill(None);
            }
        }
    }

    fn check(&self) {
        let mapped = self.model.mapped.iter().filter(|mapped| mapped.is_some()).count() as u64;
        assert_eq!(self.space.statistics().mapped, ByteSize(mapped * PAGE));
        let mut read = vec![0; PAGE as usize];
        for page in (0..PAGES).filter(|page| self.model.mapped[*page as usize].is_some()) {
            self.space.read(at(page * PAGE), &mut read).unwrap();
            assert!(read == self.model.page(page), "page {page}");
        }
    }
}

/// Takes the actions on two spaces of a small yard. Both must be what the model says, and the yard valid and empty at the end.
pub(crate) fn run(actions: &[(usize, Action)], workers: NonZeroUsize) {
    in_small_yard(|vm| {
        let spaces = [vm.create_space().unwrap(), vm.create_space().unwrap()];
        let [first, second] = &spaces;
        let size = ByteSize(FILE_PAGES * PAGE);
        let files = [vm.create_shared_memory(size).unwrap(), vm.create_file(FILE_KEY, size).unwrap()];
        let stored = (0..size.0).map(|at| PatternStore::expected(FILE_KEY, at / PAGE, at % PAGE));
        let contents = RefCell::new([vec![0; size.0 as usize], stored.collect()]);
        let run = |space| Run { vm, space, files: &files, model: Model::new(&contents), pins: Vec::new() };
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
        drop(files);
        vm.validate().expect("the state is valid while pinned pages outlive their files");
        drop(pins);
    });
}
