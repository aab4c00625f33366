//! From a machine to a yard that allocates: the early memory map is filled, the yard planned and created.
//!
//! [`bring_up`] is what every command does that needs a yard. What it should be like is in [`BringUp`]; what came
//! out, in [`BroughtUp`].

mod early_map;
mod error;

use std::time::Instant;

use frameyard::{
    ByteSize, Geometry, Layout, MovableMemory, NodeId, PcpSizing, Poisoning, Region, WatermarkOptions, YardConfig,
    ZoneLimits,
};
use frameyard_host::{Backing, CpuIdentity, HostTopology, HostYard, HostYardBuilder, HugePages, MemoryError};

use crate::Failure;
use crate::cli::{Amount, MachineArgs, YardArgs};
use crate::machine::Machine;

use early_map::EarlyMap;
pub use error::BringUpError;

/// What stands behind the frames of a yard.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum FrameBacking {
    /// Memory of the host, taken when it is touched; a machine larger than the host is refused.
    #[default]
    Real,
    /// Nothing.
    Phantom,
    /// Memory of the host where that has as much, else nothing, with a note: for the host's own machine, all of
    /// which no process may use.
    RealIfItFits,
}

/// How a machine is brought up. The default is a yard as the kernel would set it up, on real memory.
#[derive(Clone, Copy, Debug)]
pub struct BringUp {
    /// What stands behind the frames.
    pub backing: FrameBacking,
    /// Whether transparent huge pages are advised for frames and memory map. With them a workload runs faster;
    /// without, bring-up touches only one host page of the map for each maximum-order block.
    pub huge_pages: HugePages,
    /// How threads know their CPU; `None` for the fastest way there is.
    pub identity: Option<CpuIdentity>,
    /// Memory of the Movable zones.
    pub movable: Option<Amount>,
    /// How per-CPU lists are sized.
    pub pcp_sizing: PcpSizing,
    /// How watermarks and reserves are set.
    pub watermarks: WatermarkOptions,
    /// Whether freed frames are poisoned.
    pub poisoning: Poisoning,
}

impl Default for BringUp {
    fn default() -> Self {
        Self {
            backing: FrameBacking::default(),
            huge_pages: HugePages::Advise,
            identity: None,
            movable: None,
            pcp_sizing: PcpSizing::default(),
            watermarks: WatermarkOptions::default(),
            poisoning: Poisoning::default(),
        }
    }
}

impl BringUp {
    /// What a command line asks for.
    ///
    /// The host's own machine, unless scaled, is phantom where this process may not use as much memory.
    #[must_use]
    pub fn of(machine: &MachineArgs, yard: &YardArgs) -> Self {
        let is_whole_host = machine.machine.is_none() && machine.memory.is_none();
        let backing = match (machine.phantom, is_whole_host) {
            (true, _) => FrameBacking::Phantom,
            (false, true) => FrameBacking::RealIfItFits,
            (false, false) => FrameBacking::Real,
        };
        let watermarks =
            WatermarkOptions { huge_page_minimum: yard.huge_page_minimum.into(), ..WatermarkOptions::default() };
        let poisoning = if yard.poison { Poisoning::On } else { Poisoning::Off };
        Self { backing, movable: yard.movable, pcp_sizing: yard.pcp_sizing, watermarks, poisoning, ..Self::default() }
    }
}

/// A yard on its machine, and how it came about.
#[derive(Debug)]
pub struct BroughtUp {
    /// The yard.
    pub yard: HostYard,
    /// The machine.
    pub machine: Machine,
    /// How long it took from the machine's description to a yard that allocates.
    pub boot_ns: u64,
    /// Addresses of the memory map, holes included.
    pub map_bytes: ByteSize,
    /// Size of the control region.
    pub control_bytes: ByteSize,
    /// Memory as the early memory map had it.
    pub early_memory: Vec<Region>,
    /// What is not quite what was asked for, a sentence each.
    pub notes: Vec<String>,
}

/// How much of a yard's memory is in the host's memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ResidentParts {
    /// Of the memory map.
    pub map: ByteSize,
    /// Of the control region.
    pub control: ByteSize,
    /// Of the frames.
    pub frames: ByteSize,
}

impl BroughtUp {
    /// How much of map, control region and frames is in memory now. Walks the host's page tables.
    ///
    /// # Errors
    ///
    /// [`Failure::RunTime`] where the kernel does not say.
    pub fn resident(&self) -> Result<ResidentParts, Failure> {
        let map = self.yard.map_region().resident().map_err(Failure::run_time)?;
        let control = self.yard.control_region().resident().map_err(Failure::run_time)?;
        let frames = self.yard.memory().resident().map_err(Failure::run_time)?;
        Ok(ResidentParts { map, control, frames })
    }
}

/// Brings up a yard for a machine, at the size that the machine has.
///
/// # Errors
///
/// [`Failure::Input`] where machine and options make no yard, or this host cannot hold it: says what it would
/// need. [`Failure::RunTime`] where the system refuses.
pub fn bring_up(machine: &Machine, options: &BringUp) -> Result<BroughtUp, Failure> {
    let host = HostTopology::current().map_err(Failure::run_time)?;
    let cpus: Vec<NodeId> = machine.cpus.iter().map(|cpu| cpu.node).collect();
    let distances: Vec<u8> = machine.distances.concat();
    let config = YardConfig {
        geometry: machine.geometry,
        distances: Some(&distances),
        zone_limits: zone_limits(machine),
        movable: movable(machine, options.movable),
        watermarks: options.watermarks,
        pcp_sizing: options.pcp_sizing,
        poisoning: options.poisoning,
        ..YardConfig::new(&cpus)
    };
    let begin = Instant::now();
    let (early, mut notes) = EarlyMap::of(machine).map_err(|error| error.of(machine))?;
    let layout = Layout::plan(&early, &config).map_err(|error| BringUpError::Boot(error).of(machine))?;
    let build = |backing| builder(options, backing).build(&early, &config, &host);
    let phantom = || {
        check_map(&layout, config.geometry, &host)?;
        build(Backing::Phantom).map_err(|error| BringUpError::of_yard(error, layout.map_bytes()))
    };
    let real = || build(Backing::Anonymous).map_err(|error| BringUpError::of_yard(error, layout.map_bytes()));
    let yard = match options.backing {
        FrameBacking::Phantom => phantom(),
        FrameBacking::Real => real(),
        FrameBacking::RealIfItFits => match real() {
            Err(error) if error.is_about_frames() => {
                notes.push("frames are phantom: this process may not use all of the host's memory".to_owned());
                phantom()
            }
            other => other,
        },
    };
    let yard = yard.map_err(|error| error.of(machine))?;
    let boot_ns = u64::try_from(begin.elapsed().as_nanos()).unwrap_or(u64::MAX);
    Ok(BroughtUp {
        yard,
        machine: machine.clone(),
        boot_ns,
        map_bytes: layout.map_bytes(),
        control_bytes: layout.control_bytes(),
        early_memory: early.memory().to_vec(),
        notes,
    })
}

fn builder(options: &BringUp, backing: Backing) -> HostYardBuilder {
    let builder = HostYard::builder().backing(backing).huge_pages(options.huge_pages);
    match options.identity {
        Some(identity) => builder.identity(identity),
        None => builder,
    }
}

/// A zone that the machine does not have ends at 0.
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

/// Bring-up writes to a page of the host for each maximum-order block: refuses where not even that would fit.
///
/// Where frames are real, the memory that is asked for the frames is far more than that.
fn check_map(layout: &Layout, geometry: Geometry, host: &HostTopology) -> Result<(), BringUpError> {
    let touched = written_bytes(layout, geometry, host.page_size());
    let available = host.available_memory().map_err(|error| BringUpError::Host(MemoryError::from(error).into()))?;
    if touched <= available {
        return Ok(());
    }
    let tables = ByteSize(layout.map_bytes().0.saturating_add(layout.control_bytes().0));
    Err(BringUpError::MapLargerThanHost { tables, touched, available })
}

/// About how much of map and control region bring-up writes, in pages of the host.
fn written_bytes(layout: &Layout, geometry: Geometry, host_page: ByteSize) -> ByteSize {
    let blocks = layout.present().0.div_ceil(geometry.max_order().pages().0);
    let map = blocks.saturating_mul(host_page.0).min(layout.map_bytes().0);
    ByteSize(map.saturating_add(layout.control_bytes().0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::built_in;
    use frameyard::Order;

    fn written(geometry: Geometry) -> u64 {
        let machine = Machine { geometry, ..built_in("server-1t").unwrap() };
        let (early, _) = EarlyMap::of(&machine).unwrap();
        let config = YardConfig { geometry, ..YardConfig::new(&[NodeId(0), NodeId(1)]) };
        let layout = Layout::plan(&early, &config).unwrap();
        written_bytes(&layout, geometry, ByteSize::kib(4)).0 - layout.control_bytes().0
    }

    #[test]
    fn bring_up_writes_a_host_page_for_each_block_and_at_most_the_whole_map() {
        const GIB: u64 = 1 << 30;
        assert!(written(Geometry::X86_64).abs_diff(GIB) < GIB / 100);
        let single = Geometry::new(ByteSize::kib(4), ByteSize::mib(128), Order(1), Order(1)).unwrap();
        assert!(written(single).abs_diff(16 * GIB) < GIB / 10);
    }

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
            BringUp::of(&line.machine, &line.yard).backing
        };
        assert_eq!(backing(""), FrameBacking::RealIfItFits);
        assert_eq!(backing("--host"), FrameBacking::RealIfItFits);
        assert_eq!(backing("--host --memory 1G"), FrameBacking::Real);
        assert_eq!(backing("--machine desktop-8"), FrameBacking::Real);
        assert_eq!(backing("--phantom"), FrameBacking::Phantom);
    }
}
