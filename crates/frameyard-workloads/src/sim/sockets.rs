//! The numbers of a socket's CPUs.

use frameyard::CpuId;
use frameyard_sim::Topology;

/// A CPU of a socket: its cores in order, then their second threads.
pub(crate) fn cpu_of_socket(topology: Topology, socket: u32, at: u32) -> CpuId {
    let (sockets, cores) = (u32::from(topology.sockets), u32::from(topology.cores_per_socket));
    CpuId((at / cores * sockets + socket) * cores + at % cores)
}
