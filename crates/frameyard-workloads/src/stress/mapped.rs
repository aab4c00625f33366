//! Pages of a task's address space: frames that compaction and requests for contiguous ranges move while they are in use.

use std::thread;

use fastrand::Rng;
use frameyard::ByteSize;
use frameyard_host::HostPlatform;
use frameyard_vm::{
    AddressSpace, FaultError, HugeAdvice, MapError, MapRequest, PageLevel, VirtAddr, VirtRange, Vm, VmError,
};

use super::board::Tally;
use crate::workload::page_fault::pages_of;
use crate::workload::task::{TaskProblem, WrongContents};

/// The most pages of a mapping.
const PAGES: u64 = 256;
/// The most mappings at a time.
const MAPPINGS: usize = 8;
/// Where the first mapping of all tasks begins.
const BASE: u64 = 1 << 32;
/// From one mapping to the next: none touches another, so that none is merged with it and has to be cut off again, for
/// which there may be no memory.
const STRIDE: u64 = 4 << 20;
/// How often is tried what somebody who moves pages did not let through.
const TRIES: u32 = 10_000;

/// A mapping, and how much of it was written to.
struct Mapping {
    range: VirtRange,
    written: usize,
    key: u64,
}

/// The mappings of a task.
pub(super) struct Mapped<'a, 'y> {
    space: &'a AddressSpace<'y, HostPlatform>,
    mappings: [Option<Mapping>; MAPPINGS],
    number: u64,
    next_key: u64,
}

/// What came of an access that may wait for others.
enum Passing {
    /// There is no memory.
    Short,
    /// Somebody is at work on it.
    Busy,
    /// It will not pass.
    Never,
}

fn passing_here(error: &VmError) -> Passing {
    match error {
        VmError::OutOfMemory(_) => Passing::Short,
        VmError::Stalled => Passing::Busy,
        _ => Passing::Never,
    }
}

trait MayPass: std::error::Error + Send + Sync + 'static {
    fn passing(&self) -> Passing;
}

impl MayPass for FaultError {
    fn passing(&self) -> Passing {
        match self {
            Self::Moving(_) => Passing::Busy,
            Self::Vm(error) => passing_here(error),
            _ => Passing::Never,
        }
    }
}

impl MayPass for MapError {
    fn passing(&self) -> Passing {
        match self {
            Self::Moving(_) => Passing::Busy,
            Self::Vm(error) => passing_here(error),
            _ => Passing::Never,
        }
    }
}

/// Tries until others let it through; `None` where there is no memory.
fn until_it_passes<T, E: MayPass>(mut access: impl FnMut() -> Result<T, E>) -> Result<Option<T>, TaskProblem> {
    for _ in 1..TRIES {
        match access() {
            Ok(value) => return Ok(Some(value)),
            Err(error) => match error.passing() {
                Passing::Short => return Ok(None),
                Passing::Busy => thread::yield_now(),
                Passing::Never => return Err(error.into()),
            },
        }
    }
    Ok(Some(access()?))
}

/// Maps and unmaps once, in a space of its own.
pub(super) fn warm_up(vm: Vm<'_, HostPlatform>) -> Result<(), TaskProblem> {
    let space = vm.create_space()?;
    let mut mapped = Mapped::new(&space, 0);
    mapped.map(0, &mut Rng::with_seed(0), &mut Tally::default())?;
    mapped.unmap_all(&mut Tally::default())?;
    vm.lru_drain_all();
    Ok(())
}

impl<'a, 'y> Mapped<'a, 'y> {
    /// None yet. No two tasks have the same number.
    pub(super) fn new(space: &'a AddressSpace<'y, HostPlatform>, number: u32) -> Self {
        let number = u64::from(number);
        Self { space, mappings: Default::default(), number, next_key: (number + 1) << 40 }
    }

    /// Maps and writes pages, or checks and unmaps them.
    pub(super) fn change(&mut self, random: &mut Rng, tally: &mut Tally) -> Result<(), TaskProblem> {
        let slot = random.usize(..MAPPINGS);
        match self.mappings[slot].take() {
            Some(mapping) => self.unmap(&mapping, tally),
            None => self.map(slot, random, tally),
        }
    }

    fn map(&mut self, slot: usize, random: &mut Rng, tally: &mut Tally) -> Result<(), TaskProblem> {
        let at = VirtAddr(BASE + (self.number * MAPPINGS as u64 + slot as u64) * STRIDE);
        let bytes = ByteSize(random.u64(1..=PAGES) * PageLevel::Small.size().0);
        let request = MapRequest::anonymous(bytes).advised(HugeAdvice::Never).at(at);
        let Some(range) = until_it_passes(|| self.space.map(request))? else {
            tally.out_of_memory += 1;
            return Ok(());
        };
        let mut mapping = Mapping { range, written: 0, key: self.next_key };
        self.next_key += PAGES;
        for (page, addr) in (0..).zip(pages_of(range)) {
            let word = (mapping.key + page).to_le_bytes();
            if until_it_passes(|| self.space.write(addr, &word))?.is_none() {
                tally.out_of_memory += 1;
                break;
            }
            mapping.written += 1;
        }
        self.mappings[slot] = Some(mapping);
        Ok(())
    }

    fn unmap(&self, mapping: &Mapping, tally: &mut Tally) -> Result<(), TaskProblem> {
        for (page, addr) in (0..).zip(pages_of(mapping.range)).take(mapping.written) {
            let mut found = [0; 8];
            until_it_passes(|| self.space.read(addr, &mut found))?;
            if found != (mapping.key + page).to_le_bytes() {
                return Err(WrongContents { what: "a task's mapping", page }.into());
            }
        }
        if until_it_passes(|| self.space.unmap(mapping.range))?.is_none() {
            return Err("unmapping whole areas took memory, and there was none".into());
        }
        tally.mapped += mapping.written as u64;
        Ok(())
    }

    /// Checks and unmaps all.
    pub(super) fn unmap_all(&mut self, tally: &mut Tally) -> Result<(), TaskProblem> {
        for slot in 0..MAPPINGS {
            if let Some(mapping) = self.mappings[slot].take() {
                self.unmap(&mapping, tally)?;
            }
        }
        Ok(())
    }
}
