//! A tenant of the Movable zone: has pages of a space and of a file, and uses them all the time. Knows what each holds.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use fastrand::Rng;
use frameyard::ByteSize;
use frameyard_host::HostPlatform;
use frameyard_vm::{
    AddressSpace, FaultError, File, FileError, HugeAdvice, MapRequest, VirtAddr, VirtRange, Vm, VmError,
};

use crate::workload::stamp::{PAGE, check, stamp};
use crate::workload::task::TaskProblem;

/// Pages that are given back or taken at a time, and read of a file.
const CHUNK: u64 = 32;
/// How often an access is tried that others kept from coming to an end.
const TRIES: u32 = 1000;

/// A tenant.
pub(super) struct Tenant<'y> {
    random: Rng,
    space: AddressSpace<'y, HostPlatform>,
    start: VirtAddr,
    /// What the contents of each page of the space follow from; 0 where nothing was written.
    keys: Vec<u64>,
    /// Chunks of the space: first those that have pages, then those that have none.
    chunks: Vec<u64>,
    /// How many have.
    kept: usize,
    file: File<'y, HostPlatform>,
    /// The same of the file, where 0 stands for what the store says.
    file_keys: Vec<u64>,
    next_key: u64,
    buffer: Vec<u8>,
}

impl<'y> Tenant<'y> {
    /// A tenant with so much memory, half of it in a file. At first it takes as much as `most`, and then gives chunks back
    /// at random, so that what it has lies all over the zone.
    pub(super) fn fill(
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
        let mut tenant = Self {
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
            tenant.write_chunk(chunk)?;
            if chunk * of_file / chunks != (chunk + 1) * of_file / chunks {
                tenant.read_file(chunk * of_file / chunks)?;
            }
        }
        tenant.random.shuffle(&mut tenant.chunks);
        while tenant.kept as u64 > kept {
            tenant.kept -= 1;
            tenant.give_back(tenant.chunks[tenant.kept])?;
        }
        Ok(tenant)
    }

    /// Uses its memory until told to stop, and then checks all of it; how many pages.
    pub(super) fn work(mut self, over: &AtomicBool, steps: &AtomicU64) -> Result<u64, TaskProblem> {
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

    /// Writes a page of the space anew.
    fn write(&mut self, page: u64) -> Result<u64, TaskProblem> {
        let key = self.new_key();
        let addr = self.addr(page);
        let bytes = &mut self.buffer[..PAGE];
        stamp(bytes, key, page);
        let written = patiently(|| self.space.write(addr, bytes), is_passing)?;
        if written {
            self.keys[page as usize] = key;
        }
        Ok(1)
    }

    /// Reads a page of the space and checks it.
    fn read(&mut self, page: u64) -> Result<u64, TaskProblem> {
        let (addr, key) = (self.addr(page), self.keys[page as usize]);
        if key == 0 {
            return Ok(0);
        }
        let bytes = &mut self.buffer[..PAGE];
        if patiently(|| self.space.read(addr, bytes), is_passing)? {
            check(&self.buffer[..PAGE], key, page, "a space in use")?;
        }
        Ok(1)
    }

    fn write_chunk(&mut self, chunk: u64) -> Result<u64, TaskProblem> {
        (chunk * CHUNK..(chunk + 1) * CHUNK).try_fold(0, |done, page| Ok(done + self.write(page)?))
    }

    /// Gives the pages of a chunk back: unmaps it, and maps it anew.
    fn give_back(&mut self, chunk: u64) -> Result<u64, TaskProblem> {
        let first = chunk * CHUNK;
        let range = VirtRange { start: self.addr(first), end: self.addr(first + CHUNK) };
        self.space.unmap(range)?;
        self.keys[first as usize..(first + CHUNK) as usize].fill(0);
        self.space.map(MapRequest::anonymous(range.size()).advised(HugeAdvice::Never).at(range.start))?;
        Ok(CHUNK)
    }

    /// Gives a chunk back and takes another one, or the same where there is no other.
    fn change_chunk(&mut self) -> Result<u64, TaskProblem> {
        let (out, into) = (self.random.usize(..self.kept), self.random.usize(self.kept - 1..self.chunks.len()));
        let into = if into < self.kept { out } else { into };
        let done = self.give_back(self.chunks[out])?;
        self.chunks.swap(out, into);
        Ok(done + self.write_chunk(self.chunks[out])?)
    }

    /// Writes a page of the file.
    fn write_file(&mut self, page: u64) -> Result<u64, TaskProblem> {
        let key = self.new_key();
        let bytes = &mut self.buffer[..PAGE];
        stamp(bytes, key, page);
        if patiently(|| self.file.write(page * PAGE as u64, bytes), is_passing_for_file)? {
            self.file_keys[page as usize] = key;
        }
        Ok(1)
    }

    /// Reads some pages of the file and checks them.
    fn read_file(&mut self, chunk: u64) -> Result<u64, TaskProblem> {
        let first = chunk * CHUNK;
        let (file, buffer) = (&self.file, &mut self.buffer);
        if !patiently(|| file.read(first * PAGE as u64, buffer).map(drop), is_passing_for_file)? {
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

/// Tries something again while others keep it from coming to an end; `false` where there was no memory for it.
fn patiently<E: Into<TaskProblem>>(
    mut access: impl FnMut() -> Result<(), E>,
    passing: impl Fn(&E) -> Passing,
) -> Result<bool, TaskProblem> {
    let mut tries = 0;
    loop {
        let Err(error) = access() else { return Ok(true) };
        tries += 1;
        match passing(&error) {
            Passing::Short => return Ok(false),
            Passing::Slow if tries < TRIES => std::thread::yield_now(),
            _ => return Err(error.into()),
        }
    }
}

/// Whether what went wrong is a matter of time.
enum Passing {
    /// There is no memory just now.
    Short,
    /// Somebody did not come to an end.
    Slow,
    /// It is not.
    Never,
}

fn is_passing_here(error: &VmError) -> Passing {
    match error {
        VmError::OutOfMemory(_) => Passing::Short,
        VmError::Stalled => Passing::Slow,
        _ => Passing::Never,
    }
}

fn is_passing(error: &FaultError) -> Passing {
    match error {
        FaultError::Moving(_) => Passing::Slow,
        FaultError::Vm(error) => is_passing_here(error),
        _ => Passing::Never,
    }
}

fn is_passing_for_file(error: &FileError) -> Passing {
    match error {
        FileError::Vm(error) => is_passing_here(error),
        _ => Passing::Never,
    }
}
