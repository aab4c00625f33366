//! A machine whose memory is one range of one node, for workloads of one whole zone.

use frameyard::units::PhysAddr;
use frameyard::{ByteSize, NodeId, Order};

use crate::Failure;
use crate::args::{MachineArgs, QuickArgs};
use crate::chosen_machine::ChosenMachine;
use crate::machine::{AddressRange, Cpu, LOCAL_DISTANCE, Machine, MachineNode};

/// Memory of the machine unless the command line says otherwise.
const DEFAULT_MEMORY: ByteSize = ByteSize::gib(4);
/// Where memory begins: above the limits of all zones.
const START: u64 = 4 << 30;

/// The machine of some options, with all memory in one range.
#[derive(Clone, Debug)]
pub(super) struct FlatMachine {
    chosen: ChosenMachine,
    /// Memory in whole maximum-order blocks.
    pub(super) memory: ByteSize,
}

impl FlatMachine {
    /// A flat machine with the geometry and the CPUs of the chosen machine.
    ///
    /// # Errors
    ///
    /// [`Failure::Input`] for a bad or phantom machine, other pages than those of x86-64, or less memory than `least`.
    pub(super) fn of(args: &MachineArgs, quick: QuickArgs, name: &str, least: ByteSize) -> Result<Self, Failure> {
        args.refuse_phantom(name, "contents are written and moved, which needs memory behind the frames")?;
        let chosen = ChosenMachine::of(&MachineArgs { memory: None, ..args.clone() })?;
        chosen.check_page_size(name)?;
        let of_machine =
            || args.machine.as_ref().map_or(quick.memory(DEFAULT_MEMORY), |_| chosen.machine.memory_bytes());
        let memory = args.memory.unwrap_or_else(of_machine);
        if memory < least {
            return Err(Failure::input(format!("{name} --memory {memory}: needs at least {least}")));
        }
        let block = chosen.machine.geometry.size_of(chosen.machine.geometry.max_order().pages());
        Ok(Self { chosen, memory: ByteSize(memory.0 - memory.0 % block.0) })
    }

    /// The machine, with further memory behind its own.
    ///
    /// # Errors
    ///
    /// [`Failure::Input`] where addresses do not suffice.
    pub(super) fn with_spare(&self, spare: ByteSize) -> Result<Machine, Failure> {
        let block = self.chosen.machine.geometry.size_of(self.chosen.machine.geometry.max_order().pages()).0;
        let bytes = self.memory.0.saturating_add(spare.0.next_multiple_of(block));
        let range = AddressRange::new(PhysAddr(START), PhysAddr(START.saturating_add(bytes)));
        let machine = Machine {
            cpus: self.chosen.machine.cpus.iter().map(|cpu| Cpu { node: NodeId(0), ..*cpu }).collect(),
            nodes: vec![MachineNode { memory: vec![range] }],
            distances: vec![vec![LOCAL_DISTANCE]],
            reserved: Vec::new(),
            cma: Vec::new(),
            ..self.chosen.machine.clone()
        };
        machine.validate().map_err(Failure::input)?;
        Ok(machine)
    }

    /// The name of the machine.
    pub(super) fn name(&self) -> &str {
        &self.chosen.machine.name
    }

    /// Refuses a machine without blocks of an order.
    ///
    /// # Errors
    ///
    /// [`Failure::Input`].
    pub(super) fn check_order(&self, name: &str, order: Order) -> Result<(), Failure> {
        self.chosen.check_order(name, order)
    }
}
