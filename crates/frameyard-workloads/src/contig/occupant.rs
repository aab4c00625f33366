//! An occupant of the Movable zone: uses pages of an address space and of a file all the time, and checks their contents.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use fastrand::Rng;
use frameyard::ByteSize;
use frameyard_host::HostPlatform;
use frameyard_vm::{AddressSpace, File, HugeAdvice, MapRequest, VirtAddr, VirtRange, Vm};

use crate::report::TaskProblem;
use crate::retry::retry;
use crate::stamp::{PAGE, check, stamp};

/// Pages that are freed or allocated at a time, and read from a file.
const CHUNK: u64 = 32;
/// Tries of an access that other CPUs keep from finishing.
const TRIES: u32 = 1000;

/// An occupant.
pub(crate) struct Occupant<'y> {
    random: Rng,
    space: AddressSpace<'y, HostPlatform>,
    start: VirtAddr,
    /// The key of each page of the space; 0 if nothing was written.
    keys: Vec<u64>,
    /// Chunks of the space: first those with pages, then those without.
    chunks: Vec<u64>,
    /// Number of chunks with pages.
    kept: usize,
    file: File<'y, HostPlatform>,
    /// The key of each page of the file; 0 for the contents of the store.
    file_keys: Vec<u64>,
    next_key: u64,
    buffer: Vec<u8>,
}

impl<'y> Occupant<'y> {
    /// Creates an occupant of `bytes`, half of them in a file. It first allocates `most` and then frees chunks
    /// at random, so that its pages lie all over the zone.
    pub(crate) fn fill(
        vm: Vm<'y, HostPlatform>,
        number: u32,
        seed: u64,
        (bytes, most): (ByteSize, ByteSize),
    ) -> Result<Self, TaskProblem> {
        let chunks_of = |bytes: u64| (bytes / PAGE as u64 / CHUNK).max(1);
        let size_of = |chunks: u64| ByteSize(chunks * CHUNK * PAGE as u64);
        let of_file = chunks_of(bytes.0 / 2);
        let (kept, chunks) = (of_file, chunks_of(most.0).saturating_sub(of_file).max(of_file));
        let space = vm.create_space()?;
        let start = space.map(MapRequest::anonymous(size_of(chunks)).advised(HugeAdvice::Never))?.start;
        let mut occupant = Self {
            random: Rng::with_seed(seed),
            space,
            start,
            keys: vec![0; (chunks * CHUNK) as usize],
            chunks: (0..chunks).collect(),
            kept: chunks as usize,
            file: vm.create_file(u64::from(number), size_of(of_file))?,
            file_keys: vec![0; (of_file * CHUNK) as usize],
            next_key: u64::from(number + 1) << 40,
            buffer: vec![0; CHUNK as usize * PAGE],
        };
        for chunk in 0..chunks {
            occupant.write_chunk(chunk)?;
            if chunk * of_file / chunks != (chunk + 1) * of_file / chunks {
                occupant.read_file(chunk * of_file / chunks)?;
            }
        }
        occupant.random.shuffle(&mut occupant.chunks);
        while occupant.kept as u64 > kept {
            occupant.kept -= 1;
            occupant.free_chunk(occupant.chunks[occupant.kept])?;
        }
        Ok(occupant)
    }

    /// Uses its memory until told to stop, then checks all of it. Returns the number of checked pages.
    pub(crate) fn work(mut self, over: &AtomicBool, steps: &AtomicU64) -> Result<u64, TaskProblem> {
        let (pages, file_pages) = (self.keys.len() as u64, self.file_keys.len() as u64);
        while !over.load(Ordering::Relaxed) {
            let page = self.chunks[self.random.usize(..self.kept)] * CHUNK + self.random.u64(..CHUNK);
            let of_file = self.random.u64(..file_pages);
            let done = match self.random.u8(..16) {
                0 => self.change_chunk()?,
                1..=5 => self.write(page)?,
                6..=10 => self.read(page)?,
                11..=12 => self.write_file(of_file)?,
                _ => self.read_file(of_file / CHUNK)?,
            };
            steps.fetch_add(done, Ordering::Relaxed);
        }
        let mut checked = 0;
        for page in 0..pages {
            checked += self.read(page)?;
        }
        for chunk in 0..file_pages / CHUNK {
            checked += self.read_file(chunk)?;
        }
        Ok(checked)
    }

    fn addr(&self, page: u64) -> VirtAddr {
        VirtAddr(self.start.0 + page * PAGE as u64)
    }

    fn new_key(&mut self) -> u64 {
        self.next_key += 1;
        self.next_key
    }

    /// Rewrites a page of the space.
    fn write(&mut self, page: u64) -> Result<u64, TaskProblem> {
        let key = self.new_key();
        let addr = self.addr(page);
        let bytes = &mut self.buffer[..PAGE];
        stamp(bytes, key, page);
        let written = retry(TRIES, || self.space.write(addr, bytes))?.is_some();
        if written {
            self.keys[page as usize] = key;
        }
        Ok(1)
    }

    /// Reads and checks a page of the space.
    fn read(&mut self, page: u64) -> Result<u64, TaskProblem> {
        let (addr, key) = (self.addr(page), self.keys[page as usize]);
        if key == 0 {
            return Ok(0);
        }
        let bytes = &mut self.buffer[..PAGE];
        if retry(TRIES, || self.space.read(addr, bytes))?.is_some() {
            check(&self.buffer[..PAGE], key, page, "a space in use")?;
        }
        Ok(1)
    }

    fn write_chunk(&mut self, chunk: u64) -> Result<u64, TaskProblem> {
        (chunk * CHUNK..(chunk + 1) * CHUNK).try_fold(0, |done, page| Ok(done + self.write(page)?))
    }

    /// Frees the pages of a chunk: unmaps it and maps it again.
    fn free_chunk(&mut self, chunk: u64) -> Result<u64, TaskProblem> {
        let first = chunk * CHUNK;
        let range = VirtRange { start: self.addr(first), end: self.addr(first + CHUNK) };
        self.space.unmap(range)?;
        self.keys[first as usize..(first + CHUNK) as usize].fill(0);
        self.space.map(MapRequest::anonymous(range.size()).advised(HugeAdvice::Never).at(range.start))?;
        Ok(CHUNK)
    }

    /// Frees a chunk and fills another one, or the same if there is no other.
    fn change_chunk(&mut self) -> Result<u64, TaskProblem> {
        let (out, into) = (self.random.usize(..self.kept), self.random.usize(self.kept - 1..self.chunks.len()));
        let into = if into < self.kept { out } else { into };
        let done = self.free_chunk(self.chunks[out])?;
        self.chunks.swap(out, into);
        Ok(done + self.write_chunk(self.chunks[out])?)
    }

    /// Writes a page of the file.
    fn write_file(&mut self, page: u64) -> Result<u64, TaskProblem> {
        let key = self.new_key();
        let bytes = &mut self.buffer[..PAGE];
        stamp(bytes, key, page);
        if retry(TRIES, || self.file.write(page * PAGE as u64, bytes))?.is_some() {
            self.file_keys[page as usize] = key;
        }
        Ok(1)
    }

    /// Reads and checks a chunk of the file.
    fn read_file(&mut self, chunk: u64) -> Result<u64, TaskProblem> {
        let first = chunk * CHUNK;
        let (file, buffer) = (&self.file, &mut self.buffer);
        if retry(TRIES, || file.read(first * PAGE as u64, buffer).map(drop))?.is_none() {
            return Ok(0);
        }
        for (page, bytes) in (first..).zip(self.buffer.chunks_exact(PAGE)) {
            let written = self.file_keys[page as usize];
            let key = if written == 0 { self.file.key() } else { written };
            check(bytes, key, page, "a file in use")?;
        }
        Ok(CHUNK)
    }
}
