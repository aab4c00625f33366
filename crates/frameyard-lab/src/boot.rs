//! Boots a yard on a machine: fills the early memory map, plans the yard and creates it.
//!
//! Every command that needs a yard calls [`boot_machine`] with a [`BootOptions`] and gets a [`BootedYard`].

mod early_map;
mod error;
mod map_room;
mod watch;

use std::num::NonZeroUsize;
use std::time::Instant;

use frameyard::boot::{InitMode, Initialiser, MapInit, MovableMemory, PageChecks, Poisoning, ZoneLimits};
use frameyard::memblock::Region;
use frameyard::platform::NodeInit;
use frameyard::policy::ZonePolicy;
use frameyard::watermarks::{PcpSizing, WatermarkOptions};
use frameyard::{ByteSize, CleanRegions, Layout, NodeId, YardConfig};
use frameyard_host::{
    Backing, CpuIdentity, HostTopology, HostYard, HostYardBuilder, HugePages, MemoryError, ProcessorUse,
};

use crate::Failure;
use crate::args::{Amount, MachineArgs, YardArgs};
use crate::machine::Machine;

use early_map::EarlyMap;
pub(crate) use error::BootFailure;
pub(crate) use map_room::MapLimit;
pub(crate) use watch::Watch;

/// The memory behind the frames of a yard.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum FrameBacking {
    /// Memory of the host, provided on first touch. A machine larger than the host is refused.
    #[default]
    Real,
    /// No memory.
    Phantom,
    /// Memory of the host if it has enough, else none, with a note. For the host's own machine, all of whose memory no process
    /// may use.
    RealIfItFits,
}

/// Whether the memory of the map is present before its initialisation.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum MapMemory {
    /// No: the host provides it on first touch.
    #[default]
    AsTouched,
    /// Yes, all of it.
    Present,
}

/// Which processes use a yard.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Sharing {
    /// Only this process.
    #[default]
    Private,
    /// This process and its children, which inherit the memory file of the yard.
    Processes,
}

/// Options of a boot. The default is a yard as the kernel would set it up, on real memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BootOptions {
    /// The memory behind the frames.
    pub(crate) backing: FrameBacking,
    /// Whether transparent huge pages are advised for frames and memory map. With them a workload runs faster. Without them,
    /// boot touches only one host page of the map for each maximum-order block. A map that is written from end to end
    /// always gets them.
    pub(crate) huge_pages: HugePages,
    /// How threads identify their CPU; `None` for the fastest way.
    pub(crate) identity: Option<CpuIdentity>,
    /// Memory of the Movable zones.
    pub(crate) movable: Option<Amount>,
    /// How per-CPU lists are sized.
    pub(crate) pcp_sizing: PcpSizing,
    /// How watermarks and reserves are set.
    pub(crate) watermarks: WatermarkOptions,
    /// The policy of transfers between per-CPU lists and zones.
    pub(crate) policy: ZonePolicy,
    /// Whether regions of 1 GiB are kept clean.
    pub(crate) clean_regions: CleanRegions,
    /// Whether freed frames are poisoned.
    pub(crate) poisoning: Poisoning,
    /// When page structures are checked.
    pub(crate) checks: PageChecks,
    /// How second frees are found.
    /// When and how the memory map is initialised.
    pub(crate) map_init: MapInit,
    /// How much of the memory map may be written.
    pub(crate) map_limit: MapLimit,
    /// Whether the memory of the map is present before its initialisation. What that takes is no part of `boot_ns`.
    pub(crate) map_memory: MapMemory,
    /// Which processes use the yard. A yard of several processes has real frames and ignores backing, huge pages and the memory
    /// of the map.
    pub(crate) sharing: Sharing,
}

impl Default for BootOptions {
    fn default() -> Self {
        Self {
            backing: FrameBacking::default(),
            huge_pages: HugePages::Advise,
            identity: None,
            movable: None,
            pcp_sizing: PcpSizing::default(),
            watermarks: WatermarkOptions::default(),
            policy: ZonePolicy::default(),
            clean_regions: CleanRegions::default(),
            poisoning: Poisoning::default(),
            checks: PageChecks::default(),
            map_init: MapInit::default(),
            map_limit: MapLimit::default(),
            map_memory: MapMemory::default(),
            sharing: Sharing::default(),
        }
    }
}

impl BootOptions {
    /// The options of a command line, with the default memory map.
    ///
    /// The host's own machine boots in phantom mode because no process can use all of its memory, unless it is scaled.
    pub(crate) fn of(machine: &MachineArgs, yard: &YardArgs) -> Self {
        let is_whole_host = machine.machine.is_none() && machine.memory.is_none();
        let backing = match (machine.phantom, is_whole_host) {
            (true, _) => FrameBacking::Phantom,
            (false, true) => FrameBacking::RealIfItFits,
            (false, false) => FrameBacking::Real,
        };
        let watermarks =
            WatermarkOptions { huge_page_minimum: yard.huge_page_minimum.into(), ..WatermarkOptions::default() };
        let poisoning = if yard.poison { Poisoning::On } else { Poisoning::Off };
        let pcp_sizing = yard.sizing().unwrap_or_default();
        let (movable, clean_regions) = (yard.movable, yard.clean_regions.first().copied().unwrap_or_default());
        Self {
            backing,
            movable,
            pcp_sizing,
            watermarks,
            clean_regions,
            poisoning,
            checks: yard.checks,
            ..Self::default()
        }
    }
}

/// A booted yard, its machine, and the cost of the boot.
#[derive(Debug)]
pub(crate) struct BootedYard {
    /// The yard.
    pub(crate) yard: HostYard,
    /// The machine.
    pub(crate) machine: Machine,
    /// Time from the machine's description to a yard that allocates.
    pub(crate) boot_ns: u64,
    /// Processor time and page faults of the boot.
    pub(crate) used: ProcessorUse,
    /// How the memory map was initialised.
    pub(crate) map_init: MapInit,
    /// Time to make the memory of the map present, where that was done first.
    pub(crate) map_fault_ns: Option<u64>,
    /// Time to create the yard: in deferred mode, until the early part of the map was initialised.
    pub(crate) create_ns: u64,
    /// Time to initialise the rest of the map; `None` where nothing was deferred.
    pub(crate) finish_ns: Option<u64>,
    /// The result of each pass over the map of a node.
    pub(crate) nodes_initialised: Vec<NodeInit>,
    /// Addresses of the memory map, holes included.
    pub(crate) map_bytes: ByteSize,
    /// Size of the control region.
    pub(crate) control_bytes: ByteSize,
    /// Memory in the early memory map.
    pub(crate) early_memory: Vec<Region>,
    /// Where the yard differs from the options, a sentence each.
    pub(crate) notes: Vec<String>,
}

/// How much of a yard is resident in the host's memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ResidentParts {
    /// Of the memory map.
    pub(crate) map: ByteSize,
    /// Of the control region.
    pub(crate) control: ByteSize,
    /// Of the frames.
    pub(crate) frames: ByteSize,
}

impl BootedYard {
    /// How much of map, control region and frames is resident now. Walks the host's page tables.
    ///
    /// # Errors
    ///
    /// [`Failure::RunTime`] where the kernel does not report it.
    pub(crate) fn resident(&self) -> Result<ResidentParts, Failure> {
        let map = self.yard.map_region().resident().map_err(Failure::run_time)?;
        let control = self.yard.control_region().resident().map_err(Failure::run_time)?;
        let frames = self.yard.memory().resident().map_err(Failure::run_time)?;
        Ok(ResidentParts { map, control, frames })
    }
}

/// Boots a yard of the machine's size.
///
/// # Errors
///
/// [`Failure::Input`] where machine and options make no yard, or this host lacks the memory, which it names.
/// [`Failure::RunTime`] where the system refuses.
pub(crate) fn boot_machine(machine: &Machine, options: &BootOptions) -> Result<BootedYard, Failure> {
    let host = HostTopology::current().map_err(Failure::run_time)?;
    let cpus: Vec<NodeId> = machine.cpus.iter().map(|cpu| cpu.node).collect();
    let distances = distances(machine);
    let config = YardConfig {
        geometry: machine.geometry,
        distances: Some(&distances),
        zone_limits: zone_limits(machine),
        movable: movable(machine, options.movable),
        watermarks: options.watermarks,
        pcp_sizing: options.pcp_sizing,
        policy: options.policy,
        clean_regions: options.clean_regions,
        poisoning: options.poisoning,
        checks: options.checks,
        map_init: threads_that_can_be(options.map_init, cpus.len(), &host),
        ..YardConfig::new(&cpus)
    };
    let (begin, used) = (Instant::now(), ProcessorUse::of_this_process());
    let (early, mut notes) = EarlyMap::of(machine).map_err(|error| error.of(machine))?;
    let layout = Layout::plan(&early, &config).map_err(|error| BootFailure::Boot(error).of(machine))?;
    let watch = Watch::default();
    let plan = Plan { early: &early, config: &config, layout: &layout, host: &host, watch: &watch, options };
    plan.check_limit().map_err(|error| error.of(machine))?;
    let made = watch::watched(&machine.name, &options.map_init, layout.present(), &watch, || {
        plan.make(&mut notes).map_err(|error| error.of(machine))
    })?;
    let boot_ns = nanoseconds(begin).saturating_sub(made.map_fault_ns.unwrap_or(0));
    let used = ProcessorUse::of_this_process().since(used).since(made.map_fault_use);
    Ok(BootedYard {
        yard: made.yard,
        machine: machine.clone(),
        boot_ns,
        used,
        map_init: options.map_init,
        map_fault_ns: made.map_fault_ns,
        create_ns: made.create_ns,
        finish_ns: made.finish_ns,
        nodes_initialised: watch.nodes(),
        map_bytes: layout.map_bytes(),
        control_bytes: layout.control_bytes(),
        early_memory: early.memory().to_vec(),
        notes,
    })
}

/// The usual number of threads: one for each CPU of a node, but no more than the host can run at once.
fn threads_that_can_be(mut init: MapInit, cpus: usize, host: &HostTopology) -> MapInit {
    if init.mode == InitMode::Deferred {
        let most = host.allowed().as_slice().len().clamp(1, cpus.max(1));
        init.jobs.threads.get_or_insert(most);
    }
    init
}

/// Nanoseconds since `begin`.
pub(crate) fn nanoseconds(begin: Instant) -> u64 {
    u64::try_from(begin.elapsed().as_nanos()).unwrap_or(u64::MAX)
}

/// Everything that a yard is made of.
struct Plan<'a> {
    early: &'a EarlyMap,
    config: &'a YardConfig<'a>,
    layout: &'a Layout,
    host: &'a HostTopology,
    watch: &'a Watch,
    options: &'a BootOptions,
}

/// Present memory of a map, and the time to provide it.
struct PresentMap {
    region: frameyard_host::Region,
    fault_ns: u64,
    fault_use: ProcessorUse,
}

/// A yard whose map is initialised as far as its mode requires, and the times of that.
struct Made {
    yard: HostYard,
    map_fault_ns: Option<u64>,
    map_fault_use: ProcessorUse,
    create_ns: u64,
    finish_ns: Option<u64>,
}

impl Plan<'_> {
    fn wholly_written(&self) -> ByteSize {
        map_room::wholly_written(self.early, self.config.geometry, self.layout, &self.config.map_init)
    }

    fn check_limit(&self) -> Result<(), BootFailure> {
        map_room::check_limit(self.wholly_written(), self.options.map_limit)
    }

    /// Creates the yard. In deferred mode, all CPUs initialise the rest of the map.
    fn make(&self, notes: &mut Vec<String>) -> Result<Made, BootFailure> {
        let map = match self.options.sharing {
            Sharing::Private => self.map()?,
            Sharing::Processes => None,
        };
        let map_fault_ns = map.as_ref().map(|map| map.fault_ns);
        let map_fault_use = map.as_ref().map_or_else(ProcessorUse::default, |map| map.fault_use);
        let begin = Instant::now();
        let yard = match self.options.sharing {
            Sharing::Private => self.create(map, notes)?,
            Sharing::Processes => self.create_shared()?,
        };
        let create_ns = nanoseconds(begin);
        if self.config.map_init.mode != InitMode::Deferred {
            return Ok(Made { yard, map_fault_ns, map_fault_use, create_ns, finish_ns: None });
        }
        let begin = Instant::now();
        yard.finish_init().map_err(BootFailure::Init)?;
        Ok(Made { yard, map_fault_ns, map_fault_use, create_ns, finish_ns: Some(nanoseconds(begin)) })
    }

    /// Memory for the map, if it is made present first.
    fn map(&self) -> Result<Option<PresentMap>, BootFailure> {
        if self.options.map_memory == MapMemory::AsTouched {
            return Ok(None);
        }
        let size = self.layout.map_bytes();
        map_room::check_limit(size, self.options.map_limit)?;
        map_room::check_host(size, self.layout, self.host)?;
        let refused = |error: MemoryError| BootFailure::of_yard(error.into(), size);
        let (begin, used) = (Instant::now(), ProcessorUse::of_this_process());
        let region = frameyard_host::Region::zeroed(size, HugePages::Advise).map_err(refused)?;
        let threads = NonZeroUsize::new(self.host.allowed().as_slice().len()).unwrap_or(NonZeroUsize::MIN);
        region.prefault(threads, &mut |_| {}).map_err(refused)?;
        let fault_use = ProcessorUse::of_this_process().since(used);
        Ok(Some(PresentMap { region, fault_ns: nanoseconds(begin), fault_use }))
    }

    fn create(&self, map: Option<PresentMap>, notes: &mut Vec<String>) -> Result<HostYard, BootFailure> {
        match self.options.backing {
            FrameBacking::Phantom => self.phantom(map),
            FrameBacking::Real => self.build(Backing::Anonymous, map),
            FrameBacking::RealIfItFits => match self.build(Backing::Anonymous, map) {
                Err(error) if error.is_about_frames() => {
                    notes.push("frames are phantom: no process can use all of the host's memory".to_owned());
                    self.phantom(self.map()?)
                }
                other => other,
            },
        }
    }

    fn create_shared(&self) -> Result<HostYard, BootFailure> {
        self.built(self.builder().shared())
    }

    fn phantom(&self, map: Option<PresentMap>) -> Result<HostYard, BootFailure> {
        // Memory that is already present need not be available.
        if map.is_none() {
            let (geometry, mode) = (self.config.geometry, self.config.map_init.mode);
            let page = self.host.page_size();
            let written = map_room::written_bytes(self.layout, geometry, mode, self.wholly_written(), page);
            map_room::check_host(written, self.layout, self.host)?;
        }
        self.build(Backing::Phantom, map)
    }

    fn build(&self, backing: Backing, map: Option<PresentMap>) -> Result<HostYard, BootFailure> {
        let huge_pages = huge_pages(self.options);
        let builder = self.builder().backing(backing).huge_pages(huge_pages);
        let builder = match map {
            Some(map) => builder.map_region(map.region),
            None => builder,
        };
        self.built(builder)
    }

    fn builder(&self) -> HostYardBuilder<'_> {
        let builder = self.watch.attach(HostYard::builder().machine(self.early, self.config).host(self.host));
        match self.options.identity {
            Some(identity) => builder.identity(identity),
            None => builder,
        }
    }

    fn built(&self, builder: HostYardBuilder<'_>) -> Result<HostYard, BootFailure> {
        builder.build().map_err(|error| BootFailure::of_yard(error, self.layout.map_bytes()))
    }
}

fn huge_pages(options: &BootOptions) -> HugePages {
    let is_dense = options.map_init.initialiser != Initialiser::None && options.map_init.mode != InitMode::Lazy;
    if is_dense { HugePages::Advise } else { options.huge_pages }
}

/// Distances of the nodes up to the last with memory or a CPU.
fn distances(machine: &Machine) -> Vec<u8> {
    let memory = machine.memory_ranges().filter(|(_, range)| !range.whole_frames(machine.geometry).is_empty());
    let used = memory.map(|(node, _)| node).chain(machine.cpus.iter().map(|cpu| cpu.node));
    let nodes = used.max().map_or(1, |last| last.index() + 1);
    machine.distances.iter().take(nodes).flat_map(|row| row.iter().take(nodes)).copied().collect()
}

/// Limits of the zones; a zone that the machine lacks ends at 0.
fn zone_limits(machine: &Machine) -> ZoneLimits {
    ZoneLimits { dma: machine.zones.dma.unwrap_or_default(), dma32: machine.zones.dma32.unwrap_or_default() }
}

fn movable(machine: &Machine, amount: Option<Amount>) -> MovableMemory {
    match amount {
        None => MovableMemory::None,
        Some(Amount::Percent(percent)) => MovableMemory::Percent(percent),
        Some(Amount::Size(size)) => MovableMemory::Pages(machine.geometry.pages_in(size)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_whole_host_may_turn_phantom_by_itself() {
        use clap::Parser;
        #[derive(Parser)]
        struct Line {
            #[command(flatten)]
            machine: MachineArgs,
            #[command(flatten)]
            yard: YardArgs,
        }
        let backing = |line: &str| {
            let line = Line::parse_from(["x"].into_iter().chain(line.split_whitespace()));
            BootOptions::of(&line.machine, &line.yard).backing
        };
        assert_eq!(backing(""), FrameBacking::RealIfItFits);
        assert_eq!(backing("--host"), FrameBacking::RealIfItFits);
        assert_eq!(backing("--host --memory 1G"), FrameBacking::Real);
        assert_eq!(backing("--machine desktop-8"), FrameBacking::Real);
        assert_eq!(backing("--phantom"), FrameBacking::Phantom);
    }
}
