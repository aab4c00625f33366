//! Places of CPUs, and distances between cores.

use super::Machine;

/// The place of a CPU.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Place {
    /// The core, counted over the machine.
    pub(crate) core: u16,
    /// The group of cores with a common last-level cache.
    pub(crate) group: u16,
    /// The socket, which is the node.
    pub(crate) socket: u16,
}

/// The distance between two cores.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Distance {
    Same,
    Group,
    Socket,
    Machine,
}

impl Machine {
    /// The place of a CPU.
    pub(crate) fn place(&self, cpu: usize) -> Place {
        self.place_of_core(cpu % self.cores())
    }

    /// The place of a core.
    pub(crate) fn place_of_core(&self, core: usize) -> Place {
        Place {
            core: core as u16,
            group: (core / usize::from(self.topology.cores_per_cache)) as u16,
            socket: (core / usize::from(self.topology.cores_per_socket)) as u16,
        }
    }
}

impl Place {
    pub(crate) fn distance(self, other: Self) -> Distance {
        if self.core == other.core {
            Distance::Same
        } else if self.group == other.group {
            Distance::Group
        } else if self.socket == other.socket {
            Distance::Socket
        } else {
            Distance::Machine
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tasks_fill_a_socket_then_the_other_then_the_second_threads() {
        let machine = Machine::built_in("broadwell-40").unwrap();
        let sockets: Vec<u16> = (0..40).map(|cpu| machine.place(cpu).socket).collect();
        assert_eq!(sockets, [[0; 10], [1; 10], [0; 10], [1; 10]].concat());
        assert_eq!(machine.place(3).distance(machine.place(23)), Distance::Same);
        assert_eq!(machine.place(3).distance(machine.place(4)), Distance::Group);
        assert_eq!(machine.place(3).distance(machine.place(14)), Distance::Machine);
        let epyc = Machine::built_in("epyc2-256").unwrap();
        assert_eq!(epyc.place(0).distance(epyc.place(3)), Distance::Group);
        assert_eq!(epyc.place(0).distance(epyc.place(4)), Distance::Socket);
    }
}
