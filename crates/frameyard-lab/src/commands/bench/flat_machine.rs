//! A machine whose memory is one range of one node, for workloads that look at one zone as a whole.

use frameyard::units::PhysAddr;
use frameyard::{ByteSize, NodeId, Order};

use crate::Failure;
use crate::chosen_machine::ChosenMachine;
use crate::cli::MachineArgs;
use crate::machine::{AddressRange, Cpu, LOCAL_DISTANCE, Machine, MachineNode};

/// How much memory there is unless something else is asked for.
const DEFAULT_MEMORY: ByteSize = ByteSize::gib(4);
/// Where memory begins: behind all zones with a limit.
const START: u64 = 4 << 30;

/// The machine of some options, with all memory in one range.
#[derive(Clone, Debug)]
pub(super) struct FlatMachine {
    chosen: Machine,
    /// How much memory is asked for, or the machine has.
    pub(super) memory: ByteSize,
}

impl FlatMachine {
    /// Geometry and CPUs are those of the machine chosen.
    ///
    /// # Errors
    ///
    /// [`Failure::Input`] for a machine that is none, is phantom, has other pages than page tables are for, or less memory
    /// than `least`.
    pub(super) fn of(args: &MachineArgs, name: &str, least: ByteSize) -> Result<Self, Failure> {
        if args.phantom {
            return Err(Failure::input(format!(
                "{name} --phantom: contents are written and moved, which needs memory behind the frames; leave --phantom out"
            )));
        }
        let chosen = ChosenMachine::of(&MachineArgs { memory: None, ..args.clone() })?;
        if chosen.machine.geometry.page_size() != ByteSize::kib(4) {
            return Err(Failure::input(format!(
                "{name}: page tables are those of x86-64, so pages have 4K; leave --page-size out"
            )));
        }
        let of_machine = || args.machine.as_ref().map_or(DEFAULT_MEMORY, |_| chosen.machine.memory_bytes());
        let memory = args.memory.unwrap_or_else(of_machine);
        if memory < least {
            return Err(Failure::input(format!("{name} --memory {memory}: needs at least {least}")));
        }
        let block = chosen.machine.geometry.size_of(chosen.machine.geometry.max_order().pages());
        Ok(Self { chosen: chosen.machine, memory: ByteSize(memory.0 - memory.0 % block.0) })
    }

    /// The machine with so much more memory than was asked for.
    ///
    /// # Errors
    ///
    /// [`Failure::Input`] for what is more than addresses allow.
    pub(super) fn with_spare(&self, spare: ByteSize) -> Result<Machine, Failure> {
        let block = self.chosen.geometry.size_of(self.chosen.geometry.max_order().pages()).0;
        let bytes = self.memory.0.saturating_add(spare.0.next_multiple_of(block));
        let range = AddressRange::new(PhysAddr(START), PhysAddr(START.saturating_add(bytes)));
        let machine = Machine {
            cpus: self.chosen.cpus.iter().map(|cpu| Cpu { node: NodeId(0), ..*cpu }).collect(),
            nodes: vec![MachineNode { memory: vec![range] }],
            distances: vec![vec![LOCAL_DISTANCE]],
            reserved: Vec::new(),
            cma: Vec::new(),
            ..self.chosen.clone()
        };
        machine.validate().map_err(Failure::input)?;
        Ok(machine)
    }

    /// The name of the machine.
    pub(super) fn name(&self) -> &str {
        &self.chosen.name
    }

    /// Refuses a machine whose blocks do not go up to an order.
    ///
    /// # Errors
    ///
    /// [`Failure::Input`].
    pub(super) fn check_order(&self, name: &str, order: Order) -> Result<(), Failure> {
        let max = self.chosen.geometry.max_order();
        if order <= max {
            return Ok(());
        }
        Err(Failure::input(format!("{name}: needs blocks of order {}, and the machine's go up to {}", order.0, max.0)))
    }
}
