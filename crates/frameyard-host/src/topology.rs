//! The machine that the program runs on: CPUs, nodes, memory and kernel, read from `/proc` and `/sys`.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use frameyard::{ByteSize, CpuId, NodeId};

use crate::cpu_list::CpuList;
use crate::kernel_text;
use crate::sys;

mod memory_limit;

/// A node of the host.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct HostNode {
    /// The number that the host gives the node. Numbers may have gaps.
    pub id: NodeId,
    /// Its CPUs; empty if it only has memory.
    pub cpus: CpuList,
    /// Its memory; 0 if it only has CPUs.
    pub memory: ByteSize,
    /// The distances to all nodes, in the order of [`HostTopology::nodes`]. The distance to itself is 10.
    pub distances: Vec<u16>,
}

/// The machine that the program runs on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HostTopology {
    root: PathBuf,
    cpu_model: Option<String>,
    kernel: String,
    page_size: ByteSize,
    memory: ByteSize,
    memory_limit: Option<ByteSize>,
    online: CpuList,
    allowed: CpuList,
    nodes: Vec<HostNode>,
}

/// Why the machine's description cannot be read.
#[derive(Debug)]
#[non_exhaustive]
pub enum TopologyError {
    /// A file of `/proc` or `/sys` is missing or cannot be read.
    Read {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// A file of `/proc` or `/sys` has unexpected contents.
    Malformed {
        /// The file.
        path: PathBuf,
        /// The expected contents.
        expected: &'static str,
    },
    /// The affinity of the calling thread cannot be read.
    Affinity(io::Error),
}

impl fmt::Display for TopologyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Read { path, source } => write!(f, "{}: cannot read the host's topology: {source}", path.display()),
            Self::Malformed { path, expected } => write!(f, "{}: expected {expected}", path.display()),
            Self::Affinity(source) => write!(f, "cannot read the CPU affinity of this thread: {source}"),
        }
    }
}

impl std::error::Error for TopologyError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Read { source, .. } | Self::Affinity(source) => Some(source),
            Self::Malformed { .. } => None,
        }
    }
}

impl HostTopology {
    /// The machine of this process, with the CPUs that the calling thread may run on.
    ///
    /// # Errors
    ///
    /// [`TopologyError`] says which file could not be read or understood, or why the thread's CPU affinity could not be
    /// read.
    pub fn current() -> Result<Self, TopologyError> {
        let mut host = Self::read(Path::new("/"))?;
        let granted = CpuList::of_this_thread().map_err(TopologyError::Affinity)?;
        let allowed = host.online.intersection(&granted);
        if !allowed.is_empty() {
            host.allowed = allowed;
        }
        Ok(host)
    }

    /// The machine that the files under `root` describe (`root/proc`, `root/sys`), for example a copy of another
    /// machine's. All its CPUs are allowed.
    ///
    /// A tree without `sys/devices/system/node` describes a machine with one node. The page size is always that of the
    /// running kernel.
    ///
    /// # Errors
    ///
    /// [`TopologyError`] says which file could not be read or understood.
    pub fn read(root: &Path) -> Result<Self, TopologyError> {
        let online = cpu_list(&root.join("sys/devices/system/cpu/online"))?;
        let memory = meminfo(root, "MemTotal:")?;
        let cpuinfo = read_text(&root.join("proc/cpuinfo"))?;
        Ok(Self {
            cpu_model: cpuinfo.lines().find_map(model_name),
            kernel: read_text(&root.join("proc/sys/kernel/osrelease"))?.trim().to_owned(),
            page_size: ByteSize(sys::host_page_size() as u64),
            memory,
            memory_limit: memory_limit::of_this_process(root),
            nodes: nodes(root, &online, memory)?,
            allowed: online.clone(),
            online,
            root: root.to_owned(),
        })
    }

    /// The folder that contains `proc` and `sys`.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The processor's model name, if the kernel reports one.
    #[must_use]
    pub fn cpu_model(&self) -> Option<&str> {
        self.cpu_model.as_deref()
    }

    /// The release of the running kernel.
    #[must_use]
    pub fn kernel(&self) -> &str {
        &self.kernel
    }

    /// The size of the host's base pages.
    #[must_use]
    pub fn page_size(&self) -> ByteSize {
        self.page_size
    }

    /// The host's memory.
    #[must_use]
    pub fn memory(&self) -> ByteSize {
        self.memory
    }

    /// The memory that this process may use: all of the host's, or less if a control group limits it.
    #[must_use]
    pub fn usable_memory(&self) -> ByteSize {
        self.memory_limit.map_or(self.memory, |limit| limit.min(self.memory))
    }

    /// The kernel's current estimate of the memory that can be used without swapping, or
    /// [`usable_memory`](Self::usable_memory) if that is less.
    ///
    /// # Errors
    ///
    /// [`TopologyError`] if `/proc/meminfo` does not report it.
    pub fn available_memory(&self) -> Result<ByteSize, TopologyError> {
        Ok(meminfo(&self.root, "MemAvailable:")?.min(self.usable_memory()))
    }

    /// The CPUs that are online.
    #[must_use]
    pub fn online(&self) -> &CpuList {
        &self.online
    }

    /// The CPUs that this process may use.
    #[must_use]
    pub fn allowed(&self) -> &CpuList {
        &self.allowed
    }

    /// The nodes in ascending order; there is at least one.
    #[must_use]
    pub fn nodes(&self) -> &[HostNode] {
        &self.nodes
    }

    /// The host node that stands for a node of a yard. The host's nodes with memory take turns: if there are two, nodes
    /// 0 and 2 of a yard have the same host node.
    #[must_use]
    pub fn node_for(&self, node: NodeId) -> &HostNode {
        let with_memory = || self.nodes.iter().filter(|host| host.memory.0 > 0);
        let count = with_memory().count();
        let position = if count == 0 { 0 } else { node.index() % count };
        with_memory().nth(position).unwrap_or(&self.nodes[0])
    }

    /// The kernel's setting for huge pages of private memory: `always`, `madvise` or `never`.
    ///
    /// `None` if the kernel has no transparent huge pages.
    #[must_use]
    pub fn huge_page_mode(&self) -> Option<String> {
        selected_word(&self.root.join("sys/kernel/mm/transparent_hugepage/enabled"))
    }

    /// The kernel's setting for huge pages of shared memory, such as `never` or `advise`.
    ///
    /// `None` if the kernel has no transparent huge pages.
    #[must_use]
    pub fn shared_huge_page_mode(&self) -> Option<String> {
        selected_word(&self.root.join("sys/kernel/mm/transparent_hugepage/shmem_enabled"))
    }
}

/// The word in brackets, which marks the active one of several settings.
fn selected_word(path: &Path) -> Option<String> {
    let text = std::fs::read_to_string(path).ok()?;
    let (_, behind) = text.split_once('[')?;
    Some(behind.split_once(']')?.0.to_owned())
}

fn read_text(path: &Path) -> Result<String, TopologyError> {
    std::fs::read_to_string(path).map_err(|source| TopologyError::Read { path: path.to_owned(), source })
}

fn cpu_list(path: &Path) -> Result<CpuList, TopologyError> {
    let malformed = |_| TopologyError::Malformed { path: path.to_owned(), expected: "a list of CPUs, as 0-3,8" };
    read_text(path)?.parse().map_err(malformed)
}

fn model_name(line: &str) -> Option<String> {
    let (key, value) = line.split_once(':')?;
    matches!(key.trim(), "model name" | "Model" | "cpu" | "uarch").then(|| value.trim().to_owned())
}

fn meminfo(root: &Path, key: &'static str) -> Result<ByteSize, TopologyError> {
    let path = root.join("proc/meminfo");
    let text = read_text(&path)?;
    kernel_text::size_field(&text, key).ok_or(TopologyError::Malformed {
        path,
        expected: if key == "MemTotal:" { "a line MemTotal: N kB" } else { "a line MemAvailable: N kB" },
    })
}

fn nodes(root: &Path, online: &CpuList, memory: ByteSize) -> Result<Vec<HostNode>, TopologyError> {
    let folder = root.join("sys/devices/system/node");
    if !folder.join("online").exists() {
        return Ok(vec![HostNode { id: NodeId(0), cpus: online.clone(), memory, distances: vec![10] }]);
    }
    // The kernel writes sets of nodes in the format of sets of CPUs.
    let numbers = cpu_list(&folder.join("online"))?;
    let mut nodes = Vec::new();
    for CpuId(number) in numbers.as_slice().iter().copied() {
        let folder = folder.join(format!("node{number}"));
        let too_many = || TopologyError::Malformed { path: folder.clone(), expected: "a node number below 65536" };
        nodes.push(HostNode {
            id: NodeId(u16::try_from(number).map_err(|_| too_many())?),
            cpus: cpu_list(&folder.join("cpulist"))?.intersection(online),
            memory: node_memory(&folder.join("meminfo"))?,
            distances: distances(&folder.join("distance"))?,
        });
    }
    if nodes.is_empty() {
        return Err(TopologyError::Malformed { path: folder.join("online"), expected: "at least one node" });
    }
    if let [only] = nodes.as_mut_slice() {
        // Memory that was added while the machine ran may be missing in the node's own file.
        only.memory = only.memory.max(memory);
    }
    Ok(nodes)
}

fn node_memory(path: &Path) -> Result<ByteSize, TopologyError> {
    let text = read_text(path)?;
    let value =
        text.lines().find_map(|line| line.split_once("MemTotal:")).and_then(|(_, value)| kernel_text::size(value));
    value.ok_or(TopologyError::Malformed { path: path.to_owned(), expected: "a line Node N MemTotal: M kB" })
}

fn distances(path: &Path) -> Result<Vec<u16>, TopologyError> {
    let parsed: Result<Vec<u16>, _> = read_text(path)?.split_whitespace().map(str::parse).collect();
    parsed.map_err(|_| TopologyError::Malformed { path: path.to_owned(), expected: "distances, as 10 21" })
}

#[cfg(test)]
mod tests;
