//! What a builder of `highalloc` does: reads files, writes a few pages of them, and holds unmovable frames and, for a short
//! while, others. All of it has contents that can be worked out, and is checked.

use std::collections::{BTreeSet, VecDeque};

use fastrand::Rng;
use frameyard::{AllocError, Frames, Gfp, Order, Platform};
use frameyard_vm::{File, FileError, PatternStore, Vm, VmError};
use serde::{Deserialize, Serialize};

use crate::workload::course::Course;
use crate::workload::task::{Site, TaskOrder, TaskProblem, TaskReport, WrongContents};

/// How many files a builder has.
const FILES: u64 = 8;
/// Pages that are read at a time.
const CHUNK: u64 = 16;
/// One page in so many is written to, and cannot be dropped any more.
const WRITTEN_EACH: u64 = 64;
/// How many short-lived blocks a builder has at a time.
const SHORT_LIVED: usize = 64;
/// The largest order of unmovable and short-lived blocks, which builders take as kernels do: small ones by far the most.
const LARGEST: u8 = 3;
/// The bytes of a page.
const PAGE: usize = 4096;

/// A builder's share.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Build {
    /// Pages of all its files.
    pub(crate) file_pages: u64,
    /// Frames that it holds unmovable.
    pub(crate) unmovable_pages: u64,
}

impl Build {
    /// The share of one of so many builders, which together read as many pages as the yard has.
    pub(crate) fn share_of<P: Platform>(vm: &Vm<'_, P>, builders: u32, unmovable_percent: u8) -> Self {
        let pages = vm.yard().managed_pages().0 / u64::from(builders);
        let unmovable_pages = pages * u64::from(unmovable_percent) / 100;
        Self { file_pages: pages - unmovable_pages, unmovable_pages }
    }

    /// Fills memory, goes on until told to stop, and checks everything; an iteration is a page read.
    pub(crate) fn run<P: Platform, C: Course>(
        &self,
        site: &Site<'_, '_, P, C>,
        order: &TaskOrder,
    ) -> Result<TaskReport, TaskProblem> {
        let mut builder = Builder::new(site, self, order)?;
        builder.fill(self)?;
        let begin = site.begin()?;
        let mut iterations = 0;
        while !site.is_over() {
            let (file, chunk) = (builder.random.usize(..builder.files.len()), builder.random.u64(..builder.chunks));
            iterations += builder.read_chunk(file, chunk)?;
            builder.replace_unmovable()?;
            builder.take_short_lived()?;
        }
        let elapsed_ns = site.course.elapsed_ns(begin);
        let checked = builder.check_all()?;
        Ok(TaskReport { iterations, elapsed_ns, checked, ..TaskReport::default() })
    }
}

/// A block and what its contents follow from.
struct Stamped<'y, P: Platform> {
    frames: Frames<'y, P>,
    stamp: u64,
}

/// A builder at work.
struct Builder<'s, 'a, 'y, P: Platform, C> {
    site: &'s Site<'a, 'y, P, C>,
    random: Rng,
    files: Vec<File<'y, P>>,
    /// Chunks of a file.
    chunks: u64,
    /// Pages of all files that are written to: file and page.
    written: BTreeSet<(usize, u64)>,
    unmovable: Vec<Stamped<'y, P>>,
    short_lived: VecDeque<Frames<'y, P>>,
    stamps: u64,
    buffer: Vec<u8>,
}

impl<'s, 'a, 'y, P: Platform, C: Course> Builder<'s, 'a, 'y, P, C> {
    fn new(site: &'s Site<'a, 'y, P, C>, share: &Build, order: &TaskOrder) -> Result<Self, TaskProblem> {
        let chunks = (share.file_pages / FILES / CHUNK).max(1);
        let size = frameyard::ByteSize(chunks * CHUNK * PAGE as u64);
        let key = |file| u64::from(order.number) << 32 | file;
        let files = (0..FILES).map(|file| site.vm.create_file(key(file), size)).collect::<Result<_, _>>()?;
        Ok(Self {
            site,
            random: Rng::with_seed(order.seed),
            files,
            chunks,
            written: BTreeSet::new(),
            unmovable: Vec::new(),
            short_lived: VecDeque::new(),
            stamps: u64::from(order.number) << 32,
            buffer: vec![0; CHUNK as usize * PAGE],
        })
    }

    /// Reads all files once, side by side, and takes unmovable frames on the way.
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

    /// Reads pages of a file and checks them; how many.
    fn read_chunk(&mut self, file: usize, chunk: u64) -> Result<u64, TaskProblem> {
        let first = chunk * CHUNK;
        match self.files[file].read(first * PAGE as u64, &mut self.buffer) {
            Ok(_) => {}
            Err(error) if is_passing(&error) => return Ok(0),
            Err(error) => return Err(error.into()),
        }
        for (page, bytes) in (first..).zip(self.buffer.chunks_exact(PAGE)) {
            let key = self.key_of(file, page);
            check(bytes, key, page, "a file")?;
        }
        Ok(CHUNK)
    }

    /// What the contents of a page follow from: for a page written to something else than the store says.
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
            Err(error) if is_passing(&error) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Orders as kernels ask for: each half as often as the one below.
    fn random_order(&mut self) -> Order {
        Order((self.random.u64(..).trailing_zeros() as u8).min(LARGEST))
    }

    /// An unmovable block with contents; `None` where there is no memory just now.
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
        match vm.yard().frames_with(order, gfp | Gfp::NOWARN, &vm.owners()) {
            Ok(frames) => Ok(Some(frames)),
            Err(AllocError::OutOfMemory { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Gives up one of the unmovable blocks and takes another one.
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

    /// Takes a short-lived block and gives the oldest up.
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

    /// Checks all blocks and all pages, those first that cannot have been dropped; how many.
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
    /// How many frames hold what they should.
    fn check(&self) -> Result<u64, TaskProblem> {
        let bytes = self.frames.bytes().ok_or("a frame has no bytes")?;
        check(bytes, self.stamp, 0, "an unmovable block")?;
        Ok(self.frames.count().0)
    }
}

/// Whether memory was short, or somebody was slow: the next one may do better.
fn is_passing(error: &FileError) -> bool {
    matches!(error, FileError::Vm(VmError::OutOfMemory(_) | VmError::Stalled))
}

/// Fills bytes with words that follow from a key and a page.
fn stamp(bytes: &mut [u8], key: u64, page: u64) {
    for (word, bytes) in (0..).zip(bytes.chunks_exact_mut(8)) {
        bytes.copy_from_slice(&PatternStore::expected_word(key, page, word).to_le_bytes());
    }
}

fn check(bytes: &[u8], key: u64, page: u64, what: &'static str) -> Result<(), WrongContents> {
    let mut words = (0..).zip(bytes.chunks_exact(8));
    if words.all(|(word, bytes)| bytes == PatternStore::expected_word(key, page, word).to_le_bytes()) {
        return Ok(());
    }
    Err(WrongContents { what, page })
}
