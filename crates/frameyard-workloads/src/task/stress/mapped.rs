//! Pages of a task's address space, which compaction and requests for contiguous ranges move while they are in use.

use fastrand::Rng;
use frameyard::ByteSize;
use frameyard_host::HostPlatform;
use frameyard_vm::{AddressSpace, HugeAdvice, MapRequest, PageLevel, VirtAddr, VirtRange, Vm};

use super::shared_state::Tally;
use crate::mapping::pages_of;
use crate::report::TaskProblem;
use crate::retry::retry;
use crate::stamp::WrongContents;

/// The most pages of a mapping.
const PAGES: u64 = 256;
/// The most mappings at a time.
const MAPPINGS: usize = 8;
/// Where the first mapping of all tasks begins.
const BASE: u64 = 1 << 32;
/// Distance between mappings. They must not touch: splitting a merged area again might need memory.
const STRIDE: u64 = 4 << 20;
/// Tries of an access that a CPU which moves pages keeps from finishing.
const TRIES: u32 = 10_000;

/// A mapping and the number of its written pages.
struct Mapping {
    range: VirtRange,
    written: usize,
    key: u64,
}

/// The mappings of a task.
pub(crate) struct Mapped<'a, 'y> {
    space: &'a AddressSpace<'y, HostPlatform>,
    mappings: [Option<Mapping>; MAPPINGS],
    number: u64,
    next_key: u64,
}

/// Maps and unmaps once in a temporary address space.
pub(crate) fn warm_up(vm: Vm<'_, HostPlatform>) -> Result<(), TaskProblem> {
    let space = vm.create_space()?;
    let mut mapped = Mapped::new(&space, 0);
    mapped.map(0, &mut Rng::with_seed(0), &mut Tally::default())?;
    mapped.unmap_all(&mut Tally::default())?;
    vm.lru_drain_all();
    Ok(())
}

impl<'a, 'y> Mapped<'a, 'y> {
    /// Creates an empty set of mappings. `number` must be unique among the tasks.
    pub(crate) fn new(space: &'a AddressSpace<'y, HostPlatform>, number: u32) -> Self {
        let number = u64::from(number);
        Self { space, mappings: Default::default(), number, next_key: (number + 1) << 40 }
    }

    /// Maps and writes pages, or checks and unmaps them.
    pub(crate) fn change(&mut self, random: &mut Rng, tally: &mut Tally) -> Result<(), TaskProblem> {
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
        let Some(range) = retry(TRIES, || self.space.map(request))? else {
            tally.out_of_memory += 1;
            return Ok(());
        };
        let mut mapping = Mapping { range, written: 0, key: self.next_key };
        self.next_key += PAGES;
        for (page, addr) in (0..).zip(pages_of(range)) {
            let word = (mapping.key + page).to_le_bytes();
            if retry(TRIES, || self.space.write(addr, &word))?.is_none() {
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
            retry(TRIES, || self.space.read(addr, &mut found))?;
            if found != (mapping.key + page).to_le_bytes() {
                return Err(WrongContents { what: "a task's mapping", page }.into());
            }
        }
        if retry(TRIES, || self.space.unmap(mapping.range))?.is_none() {
            return Err("unmapping whole areas needed memory, and there was none".into());
        }
        tally.mapped += mapping.written as u64;
        Ok(())
    }

    /// Checks and unmaps all mappings.
    pub(crate) fn unmap_all(&mut self, tally: &mut Tally) -> Result<(), TaskProblem> {
        for slot in 0..MAPPINGS {
            if let Some(mapping) = self.mappings[slot].take() {
                self.unmap(&mapping, tally)?;
            }
        }
        Ok(())
    }
}
