//! The builder of `highalloc`: reads files, writes some of their pages, and holds unmovable and short-lived blocks. It checks
//! all contents.

use std::collections::{BTreeSet, VecDeque};

use fastrand::Rng;
use frameyard::{AllocError, Frames, Gfp, Order, Platform};
use frameyard_vm::{File, Vm};
use serde::{Deserialize, Serialize};

use crate::cpu_work::CpuWork;
use crate::report::{TaskProblem, TaskReport};
use crate::retry::{MayPass, Passing};
use crate::runtime::Runtime;
use crate::site::Site;
use crate::stamp::{PAGE, check, stamp};

/// Files of a builder.
const FILES: u64 = 8;
/// Pages read at a time.
const CHUNK: u64 = 16;
/// One page in this number is written, after which it cannot be dropped.
const WRITTEN_EACH: u64 = 64;
/// Short-lived blocks that a builder holds at a time.
const SHORT_LIVED: usize = 64;
/// The largest order of unmovable and short-lived blocks. As in a kernel, most are small.
const LARGEST: u8 = 3;

/// A builder's share.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Build {
    /// Pages of all its files.
    pub(crate) file_pages: u64,
    /// Unmovable frames that it holds.
    pub(crate) unmovable_pages: u64,
    /// Cycles that it computes for each page that it reads.
    pub(crate) compute: u64,
}

impl Build {
    /// The share of one builder. Together the builders read as many pages as the yard has.
    pub(crate) fn share_of<P: Platform>(vm: &Vm<'_, P>, builders: u32, unmovable_percent: u8) -> Self {
        let pages = vm.yard().stats().managed_pages().0 / u64::from(builders);
        let unmovable_pages = pages * u64::from(unmovable_percent) / 100;
        Self { file_pages: pages - unmovable_pages, unmovable_pages, compute: 0 }
    }

    /// Fills memory, continues until told to stop, then checks everything. An iteration is one page read. Filling and checking take
    /// no `compute`.
    pub(crate) fn run<P: Platform, R: Runtime>(&self, site: &Site<'_, '_, P, R>) -> Result<TaskReport, TaskProblem> {
        let mut builder = Builder::new(site, self)?;
        builder.fill(self)?;
        let begin = site.begin()?;
        let mut iterations = 0;
        while !site.is_over() {
            let (file, chunk) = (builder.random.usize(..builder.files.len()), builder.random.u64(..builder.chunks));
            let pages = builder.read_chunk(file, chunk)?;
            iterations += pages;
            site.runtime.spend(CpuWork::Compute, pages * self.compute);
            builder.replace_unmovable()?;
            builder.take_short_lived()?;
        }
        let elapsed_ns = site.runtime.elapsed_ns(begin);
        let checked = builder.check_all()?;
        Ok(TaskReport { iterations, elapsed_ns, checked, ..TaskReport::default() })
    }
}

/// A block and the key of its contents.
struct Stamped<'y, P: Platform> {
    frames: Frames<'y, P>,
    stamp: u64,
}

/// The state of a builder.
struct Builder<'s, 'a, 'y, P: Platform, R> {
    site: &'s Site<'a, 'y, P, R>,
    random: Rng,
    files: Vec<File<'y, P>>,
    /// Chunks of a file.
    chunks: u64,
    /// Written pages: file and page.
    written: BTreeSet<(usize, u64)>,
    unmovable: Vec<Stamped<'y, P>>,
    short_lived: VecDeque<Frames<'y, P>>,
    stamps: u64,
    buffer: Vec<u8>,
}

impl<'s, 'a, 'y, P: Platform, R: Runtime> Builder<'s, 'a, 'y, P, R> {
    fn new(site: &'s Site<'a, 'y, P, R>, share: &Build) -> Result<Self, TaskProblem> {
        let chunks = (share.file_pages / FILES / CHUNK).max(1);
        let size = frameyard::ByteSize(chunks * CHUNK * PAGE as u64);
        let key = |file| u64::from(site.number) << 32 | file;
        let files = (0..FILES).map(|file| site.vm.create_file(key(file), size)).collect::<Result<_, _>>()?;
        Ok(Self {
            site,
            random: Rng::with_seed(site.seed),
            files,
            chunks,
            written: BTreeSet::new(),
            unmovable: Vec::new(),
            short_lived: VecDeque::new(),
            stamps: u64::from(site.number) << 32,
            buffer: vec![0; CHUNK as usize * PAGE],
        })
    }

    /// Reads all files once, interleaved, and allocates unmovable frames on the way.
    fn fill(&mut self, share: &Build) -> Result<(), TaskProblem> {
        let mut held = 0;
        for chunk in 0..self.chunks {
            for file in 0..self.files.len() {
                self.read_chunk(file, chunk)?;
                if (chunk * CHUNK) % WRITTEN_EACH < CHUNK {
                    self.write_page(file, chunk * CHUNK)?;
                }
                self.take_short_lived()?;
                if self.site.is_over() {
                    return Ok(());
                }
            }
            while held * self.chunks < share.unmovable_pages * (chunk + 1) {
                let order = self.random_order();
                held += order.pages().0;
                if let Some(block) = self.take_unmovable(order)? {
                    self.unmovable.push(block);
                }
            }
        }
        Ok(())
    }

    /// Reads and checks a chunk of a file. Returns the number of pages.
    fn read_chunk(&mut self, file: usize, chunk: u64) -> Result<u64, TaskProblem> {
        let first = chunk * CHUNK;
        match self.files[file].read(first * PAGE as u64, &mut self.buffer) {
            Ok(_) => {}
            Err(error) if !matches!(error.passing(), Passing::Never) => return Ok(0),
            Err(error) => return Err(error.into()),
        }
        for (page, bytes) in (first..).zip(self.buffer.chunks_exact(PAGE)) {
            let key = self.key_of(file, page);
            check(bytes, key, page, "a file")?;
        }
        Ok(CHUNK)
    }

    /// The key of a page. Written pages have another one than those of the store.
    fn key_of(&self, file: usize, page: u64) -> u64 {
        let key = self.files[file].key();
        if self.written.contains(&(file, page)) { !key } else { key }
    }

    fn write_page(&mut self, file: usize, page: u64) -> Result<(), TaskProblem> {
        let mut bytes = vec![0; PAGE];
        stamp(&mut bytes, !self.files[file].key(), page);
        match self.files[file].write(page * PAGE as u64, &bytes) {
            Ok(_) => {
                self.written.insert((file, page));
                Ok(())
            }
            Err(error) if !matches!(error.passing(), Passing::Never) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// A random order: each half as often as the one below, as in a kernel.
    fn random_order(&mut self) -> Order {
        Order((self.random.u64(..).trailing_zeros() as u8).min(LARGEST))
    }

    /// Allocates an unmovable block and writes it. `None` if there is no memory at present.
    fn take_unmovable(&mut self, order: Order) -> Result<Option<Stamped<'y, P>>, TaskProblem> {
        let gfp = if self.random.u8(..4) == 0 { Gfp::KERNEL | Gfp::RECLAIMABLE } else { Gfp::KERNEL };
        let Some(mut frames) = self.allocate(order, gfp)? else { return Ok(None) };
        self.stamps += 1;
        let bytes = frames.bytes_mut().ok_or("a frame has no bytes")?;
        stamp(bytes, self.stamps, 0);
        Ok(Some(Stamped { frames, stamp: self.stamps }))
    }

    fn allocate(&self, order: Order, gfp: Gfp) -> Result<Option<Frames<'y, P>>, AllocError> {
        let vm = self.site.vm;
        match vm.yard().request(order, gfp | Gfp::NOWARN).owners(&vm.owners()).guard() {
            Ok(frames) => Ok(Some(frames)),
            Err(AllocError::OutOfMemory { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Frees one of the unmovable blocks and allocates another.
    fn replace_unmovable(&mut self) -> Result<(), TaskProblem> {
        if self.unmovable.is_empty() {
            return Ok(());
        }
        let block = self.unmovable.swap_remove(self.random.usize(..self.unmovable.len()));
        block.check()?;
        drop(block);
        let order = self.random_order();
        let block = self.take_unmovable(order)?;
        self.unmovable.extend(block);
        Ok(())
    }

    /// Allocates a short-lived block and frees the oldest.
    fn take_short_lived(&mut self) -> Result<(), TaskProblem> {
        let kinds = [Gfp::KERNEL, Gfp::KERNEL | Gfp::RECLAIMABLE, Gfp::HIGHUSER_MOVABLE];
        let (order, gfp) = (self.random_order(), kinds[self.random.usize(..kinds.len())]);
        let block = self.allocate(order, gfp)?;
        self.short_lived.extend(block);
        if self.short_lived.len() > SHORT_LIVED {
            self.short_lived.pop_front();
        }
        Ok(())
    }

    /// Checks all blocks and all pages, written pages first. Returns their number.
    fn check_all(&mut self) -> Result<u64, TaskProblem> {
        let mut checked = 0;
        for block in &self.unmovable {
            checked += block.check()?;
        }
        let mut bytes = vec![0; PAGE];
        for &(file, page) in &self.written {
            self.files[file].read(page * PAGE as u64, &mut bytes)?;
            check(&bytes, !self.files[file].key(), page, "a file that was written to")?;
        }
        for file in 0..self.files.len() {
            for chunk in 0..self.chunks {
                checked += self.read_chunk(file, chunk)?;
            }
        }
        Ok(checked)
    }
}

impl<P: Platform> Stamped<'_, P> {
    /// Checks the contents. Returns the number of frames.
    fn check(&self) -> Result<u64, TaskProblem> {
        let bytes = self.frames.bytes().ok_or("a frame has no bytes")?;
        check(bytes, self.stamp, 0, "an unmovable block")?;
        Ok(self.frames.count().0)
    }
}
