//! The host's pools of huge pages (hugetlb).

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use frameyard::{ByteSize, NodeId};

use crate::topology::HostTopology;

/// The sizes of huge pages on x86-64.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum HugetlbSize {
    /// 2 MiB.
    TwoMib,
    /// 1 GiB.
    OneGib,
}

impl HugetlbSize {
    /// Both sizes, smaller first.
    pub const ALL: &[Self] = &[Self::TwoMib, Self::OneGib];

    /// The size of one page.
    #[must_use]
    pub const fn size(self) -> ByteSize {
        ByteSize(1 << self.shift())
    }

    pub(crate) const fn shift(self) -> u32 {
        match self {
            Self::TwoMib => 21,
            Self::OneGib => 30,
        }
    }

    fn folder_name(self) -> String {
        format!("hugepages-{}kB", self.size().0 >> 10)
    }
}

impl fmt::Display for HugetlbSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.size().fmt(f)
    }
}

/// A pool of huge pages of one size, of the whole host or of one of its nodes.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct HugetlbPool {
    /// The number of configured pages.
    pub configured: u64,
    /// The number of pages available now: those that are free and not reserved, plus those that the kernel may add as
    /// surplus.
    pub free: u64,
    folder: PathBuf,
}

impl HugetlbPool {
    /// The host's pool of pages of that size; `None` if the host has no such pages.
    #[must_use]
    pub fn of_host(host: &HostTopology, size: HugetlbSize) -> Option<Self> {
        let folder = Path::new("sys/kernel/mm/hugepages").join(size.folder_name());
        Self::read(host.root(), folder)
    }

    /// The pool of one node of the host. The kernel does not say on which node reserved pages are, so here they count
    /// as available.
    #[must_use]
    pub fn of_host_node(host: &HostTopology, node: NodeId, size: HugetlbSize) -> Option<Self> {
        let folder = format!("sys/devices/system/node/node{}/hugepages/{}", node.0, size.folder_name());
        Self::read(host.root(), PathBuf::from(folder))
    }

    fn read(root: &Path, folder: PathBuf) -> Option<Self> {
        let count = |name: &str| fs::read_to_string(root.join(&folder).join(name)).ok()?.trim().parse::<u64>().ok();
        let unreserved = count("free_hugepages")?.saturating_sub(count("resv_hugepages").unwrap_or(0));
        let surplus =
            count("nr_overcommit_hugepages").unwrap_or(0).saturating_sub(count("surplus_hugepages").unwrap_or(0));
        Some(Self {
            configured: count("nr_hugepages")?,
            free: unreserved.saturating_add(surplus),
            folder: Path::new("/").join(folder),
        })
    }
}

/// The host has too few free huge pages, or none of that size.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct HugetlbShortage {
    /// The size of the pages.
    pub size: HugetlbSize,
    /// The number of pages that the frames need.
    pub needed: u64,
    /// The pool that should provide them; `None` if the host has no pages of that size.
    pub pool: Option<HugetlbPool>,
}

impl HugetlbShortage {
    /// The number of missing pages.
    #[must_use]
    pub fn missing(&self) -> u64 {
        self.needed.saturating_sub(self.pool.as_ref().map_or(0, |pool| pool.free))
    }
}

impl fmt::Display for HugetlbShortage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { size, needed, .. } = self;
        let missing = self.missing();
        match &self.pool {
            None => write!(f, "the frames need {needed} huge pages of {size}, and the host has no pages of that size"),
            Some(pool) => write!(
                f,
                "the frames need {needed} huge pages of {size}, {} are free, {missing} are missing: as root, write {} to {}",
                pool.free,
                pool.configured.saturating_add(missing),
                pool.folder.join("nr_hugepages").display(),
            ),
        }
    }
}

impl std::error::Error for HugetlbShortage {}

/// Checks that the pool of the host has `needed` pages available.
pub(crate) fn check_host(host: &HostTopology, size: HugetlbSize, needed: u64) -> Result<(), HugetlbShortage> {
    check(HugetlbPool::of_host(host, size), size, needed)
}

/// Checks that the pool of a node of the host has `needed` pages available.
pub(crate) fn check_node(
    host: &HostTopology,
    node: NodeId,
    size: HugetlbSize,
    needed: u64,
) -> Result<(), HugetlbShortage> {
    check(HugetlbPool::of_host_node(host, node, size), size, needed)
}

fn check(pool: Option<HugetlbPool>, size: HugetlbSize, needed: u64) -> Result<(), HugetlbShortage> {
    match pool {
        Some(pool) if pool.free >= needed => Ok(()),
        pool => Err(HugetlbShortage { size, needed, pool }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_tree::Tree;

    const POOL: &str = "sys/kernel/mm/hugepages/hugepages-2048kB";

    fn host(tree: &Tree) -> HostTopology {
        tree.write("sys/devices/system/cpu/online", "0");
        tree.write("proc/cpuinfo", "");
        tree.write("proc/sys/kernel/osrelease", "6.12");
        tree.write("proc/meminfo", "MemTotal: 1048576 kB\n");
        HostTopology::read(tree.path()).unwrap()
    }

    fn pool(tree: &Tree, counts: [u64; 5]) {
        let names =
            ["nr_hugepages", "free_hugepages", "resv_hugepages", "nr_overcommit_hugepages", "surplus_hugepages"];
        for (name, count) in names.iter().zip(counts) {
            tree.write(&format!("{POOL}/{name}"), &format!("{count}\n"));
        }
    }

    #[test]
    fn a_shortage_tells_how_many_pages_are_missing_and_how_to_get_them() {
        let tree = Tree::new();
        pool(&tree, [8, 5, 0, 0, 0]);
        let shortage = check_host(&host(&tree), HugetlbSize::TwoMib, 12).unwrap_err();
        assert_eq!(shortage.missing(), 7);
        assert_eq!(
            shortage.to_string(),
            "the frames need 12 huge pages of 2M, 5 are free, 7 are missing: \
             as root, write 15 to /sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages"
        );
    }

    #[test]
    fn reserved_pages_are_not_available_and_surplus_pages_are() {
        let tree = Tree::new();
        pool(&tree, [8, 8, 6, 0, 0]);
        assert_eq!(HugetlbPool::of_host(&host(&tree), HugetlbSize::TwoMib).unwrap().free, 2);
        pool(&tree, [8, 0, 0, 4, 1]);
        let host = host(&tree);
        assert_eq!(check_host(&host, HugetlbSize::TwoMib, 3), Ok(()));
        assert_eq!(check_host(&host, HugetlbSize::TwoMib, 4).unwrap_err().missing(), 1);
    }

    #[test]
    fn a_size_that_the_host_lacks_is_named() {
        let tree = Tree::new();
        let shortage = check_host(&host(&tree), HugetlbSize::OneGib, 3).unwrap_err();
        assert_eq!(shortage.to_string(), "the frames need 3 huge pages of 1G, and the host has no pages of that size");
    }

    #[test]
    fn a_node_has_a_pool_of_its_own() {
        let tree = Tree::new();
        let folder = "sys/devices/system/node/node1/hugepages/hugepages-1048576kB";
        tree.write(&format!("{folder}/nr_hugepages"), "2");
        tree.write(&format!("{folder}/free_hugepages"), "1");
        let host = host(&tree);
        assert_eq!(check_node(&host, NodeId(1), HugetlbSize::OneGib, 1), Ok(()));
        let text = check_node(&host, NodeId(1), HugetlbSize::OneGib, 2).unwrap_err().to_string();
        assert!(text.ends_with("1 are missing: as root, write 3 to /sys/devices/system/node/node1/hugepages/hugepages-1048576kB/nr_hugepages"), "{text}");
    }
}
