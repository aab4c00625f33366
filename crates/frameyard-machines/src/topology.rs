//! Regular topologies: equal sockets of equal cores, and the numbering of CPUs.

use super::{Cpu, Problem};
use super::{MAX_CPUS, cpulist};

/// The order of CPU numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Numbering {
    /// The first threads of all cores, socket by socket, then the second threads. Most x86 servers have this order, because
    /// firmware lists the first threads first.
    #[default]
    CoresFirst,
    /// All threads of a core, then the next core. Most hypervisors number the CPUs of a guest in this order.
    ThreadsFirst,
}

/// A topology with equal sockets and equal cores.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Topology {
    /// The number of sockets.
    pub sockets: u16,
    /// The number of cores of a socket.
    pub cores_per_socket: u16,
    /// The number of threads of a core.
    pub threads_per_core: u8,
    /// The number of cores that share a last-level cache.
    pub cores_per_cache: u16,
    /// The numbering of CPUs.
    pub numbering: Numbering,
}

impl Topology {
    /// The number of CPUs.
    #[must_use]
    pub fn cpu_count(self) -> u64 {
        u64::from(self.sockets) * u64::from(self.cores_per_socket) * u64::from(self.threads_per_core)
    }

    /// The CPUs in the order of their numbers, all on node 0.
    ///
    /// # Errors
    ///
    /// [`Problem::NoCpus`] if a number is zero, [`Problem::TooManyCpus`] above [`MAX_CPUS`].
    pub fn cpus(self) -> Result<Vec<Cpu>, Problem> {
        let count = self.cpu_count();
        if count == 0 || self.cores_per_cache == 0 {
            return Err(Problem::NoCpus);
        }
        if count > MAX_CPUS as u64 {
            return Err(Problem::TooManyCpus(count));
        }
        Ok((0..count as usize).map(|id| self.cpu(id)).collect())
    }

    fn cpu(self, id: usize) -> Cpu {
        let (cores, threads) = (usize::from(self.cores_per_socket), usize::from(self.threads_per_core));
        let all_cores = cores * usize::from(self.sockets);
        let (core, thread) = match self.numbering {
            Numbering::CoresFirst => (id % all_cores, id / all_cores),
            Numbering::ThreadsFirst => (id / threads, id % threads),
        };
        let (socket, core) = (core / cores, core % cores);
        let caches_per_socket = cores.div_ceil(usize::from(self.cores_per_cache));
        Cpu {
            socket: socket as u16,
            core: core as u16,
            thread: thread as u8,
            cache: (socket * caches_per_socket + core / usize::from(self.cores_per_cache)) as u16,
            ..Cpu::default()
        }
    }

    /// The topology of these CPUs, if it is regular.
    #[must_use]
    pub fn of(cpus: &[Cpu]) -> Option<Self> {
        let sockets = cpus.iter().map(|cpu| cpu.socket).max()?.checked_add(1)?;
        let cores_per_socket = cpus.iter().map(|cpu| cpu.core).max()?.checked_add(1)?;
        let threads_per_core = cpus.iter().map(|cpu| cpu.thread).max()?.checked_add(1)?;
        let first_cache = cpus.iter().filter(|cpu| cpu.cache == cpus[0].cache && cpu.thread == 0).count();
        let cores_per_cache = u16::try_from(first_cache).ok()?;
        let like = |numbering| Self { sockets, cores_per_socket, threads_per_core, cores_per_cache, numbering };
        [like(Numbering::CoresFirst), like(Numbering::ThreadsFirst)].into_iter().find(|topology| {
            topology.cpu_count() == cpus.len() as u64
                && topology.cores_per_cache != 0
                && cpus.iter().enumerate().all(|(id, cpu)| Cpu { node: cpu.node, ..topology.cpu(id) } == *cpu)
        })
    }
}

/// The CPUs of a node as a list.
pub(super) fn cpu_list_of(machine: &super::Machine, node: frameyard_units::NodeId) -> String {
    let cpus: Vec<u32> = machine.cpus_of(node).map(|cpu| cpu.0).collect();
    cpulist::format_cpu_list(&cpus)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TWO_SOCKETS: Topology = Topology {
        sockets: 2,
        cores_per_socket: 26,
        threads_per_core: 2,
        cores_per_cache: 26,
        numbering: Numbering::CoresFirst,
    };

    #[test]
    fn first_threads_of_all_sockets_come_before_second_threads() {
        let cpus = TWO_SOCKETS.cpus().unwrap();
        let at = |id: usize| (cpus[id].socket, cpus[id].core, cpus[id].thread, cpus[id].cache);
        assert_eq!(cpus.len(), 104);
        assert_eq!(at(0), (0, 0, 0, 0));
        assert_eq!(at(26), (1, 0, 0, 1));
        assert_eq!(at(52), (0, 0, 1, 0));
        assert_eq!(at(103), (1, 25, 1, 1));
    }

    #[test]
    fn threads_first_numbering_makes_threads_neighbours() {
        let cpus = Topology { numbering: Numbering::ThreadsFirst, ..TWO_SOCKETS }.cpus().unwrap();
        assert_eq!((cpus[1].core, cpus[1].thread), (0, 1));
        assert_eq!((cpus[52].socket, cpus[52].core), (1, 0));
    }

    #[test]
    fn a_topology_is_recognised_from_its_cpus() {
        for numbering in [Numbering::CoresFirst, Numbering::ThreadsFirst] {
            for cores_per_cache in [1, 4, 13, 26] {
                let topology = Topology { numbering, cores_per_cache, ..TWO_SOCKETS };
                assert_eq!(Topology::of(&topology.cpus().unwrap()), Some(topology));
            }
        }
        let mut cpus = TWO_SOCKETS.cpus().unwrap();
        cpus.swap(3, 4);
        assert_eq!(Topology::of(&cpus), None);
        assert_eq!(Topology::of(&[]), None);
    }

    #[test]
    fn too_many_and_no_cpus_are_refused() {
        let many = Topology { sockets: u16::MAX, cores_per_socket: u16::MAX, ..TWO_SOCKETS };
        assert!(matches!(many.cpus(), Err(Problem::TooManyCpus(_))));
        assert_eq!(Topology { threads_per_core: 0, ..TWO_SOCKETS }.cpus(), Err(Problem::NoCpus));
    }
}
