//! The root: the block of frames that each view starts from, found through the yard's anchor.
//!
//! Layout in words: a header, a record per kind of small object, the LRU lists by node and shard, the batches of the
//! CPUs, and the counters of the CPUs. The module that uses a record describes it.

use frameyard::sync::Ordering;
use frameyard::units::named;
use frameyard::{Block, CpuId, NodeId, Order, PageCount, Pfn, Platform, Yard};

use crate::address::ENTRY_FRAMES_END;
use crate::block::state_words;
use crate::error::{Damage, VmError};
use crate::page::MAX_SHARDS;
use crate::words::Words;

/// How the LRU lists are locked.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[repr(u8)]
pub enum LruPolicy {
    /// One lock and one set of lists per node, as in the kernel.
    #[default]
    Vanilla = 0,
    /// For each node, one lock and one set of lists per group of CPUs. Reclaim and ageing cover all groups.
    Sharded = 1,
}

named!(LruPolicy: Vanilla => "vanilla", Sharded => "sharded");

/// Which areas get huge pages (the kernel's `transparent_hugepage/enabled`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[repr(u8)]
pub enum ThpMode {
    /// Every area that is large enough.
    Always = 0,
    /// Areas with [`HugeAdvice::Huge`](crate::HugeAdvice::Huge).
    #[default]
    Madvise = 1,
    /// No area.
    Never = 2,
}

named!(ThpMode: Always => "always", Madvise => "madvise", Never => "never");

/// The settings of address spaces, files and LRU lists.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct VmConfig {
    /// How the LRU lists are locked.
    pub lru: LruPolicy,
    /// How many pages a CPU collects before it takes the lock of an LRU list: 1 to [`MAX_BATCH`](Self::MAX_BATCH). The
    /// kernel uses 15.
    pub lru_batch: u8,
    /// Shards per node with [`LruPolicy::Sharded`]: 1 to [`MAX_SHARDS`](Self::MAX_SHARDS). A number above the number of
    /// CPUs of the largest node is lowered to that. More shards mean less contention, and more lists for reclaim to
    /// scan.
    pub shards: u16,
    /// Which areas get huge pages. This can be changed at any time.
    pub thp: ThpMode,
}

impl VmConfig {
    /// The largest batch.
    pub const MAX_BATCH: u8 = 31;
    /// The largest number of shards per node.
    pub const MAX_SHARDS: u16 = MAX_SHARDS;
}

impl Default for VmConfig {
    fn default() -> Self {
        Self { lru: LruPolicy::default(), lru_batch: 15, shards: Self::MAX_SHARDS, thp: ThpMode::default() }
    }
}

const MAGIC: u64 = u64::from_le_bytes(*b"fyowners");
const VERSION: u64 = 5;

/// Words of the header.
#[derive(Clone, Copy)]
#[repr(usize)]
pub(crate) enum HeaderWord {
    Magic = 0,
    Version,
    Shards,
    Batch,
    Lru,
    Thp,
    /// Order of the root's own block.
    Order,
    /// Address spaces ever created.
    Spaces,
    /// Files ever created.
    Files,
    /// The first damage that a call has found, or 0.
    Damage,
}

const HEADER: usize = 64;
const OBJECT_KINDS: usize = 8;
/// Words of a record of small objects: two cache lines.
pub(crate) const OBJECT_RECORD: usize = 16;
/// Words of a record of LRU lists.
pub(crate) const LRU_RECORD: usize = 64;
/// Words of a CPU's batches.
pub(crate) const BATCH_RECORD: usize = 128;
/// Words of a CPU's counters.
pub(crate) const COUNTER_RECORD: usize = 64;

/// The root, as found in its frames.
#[derive(Clone, Copy)]
pub(crate) struct Root<'y> {
    words: Words<'y>,
    block: Block,
    nodes: usize,
    cpus: usize,
    shards: usize,
    batch: usize,
}

impl<'y> Root<'y> {
    const fn first_lru() -> usize {
        HEADER + OBJECT_KINDS * OBJECT_RECORD
    }

    fn first_batch(&self) -> usize {
        Self::first_lru() + self.nodes * self.shards * LRU_RECORD
    }

    fn first_counters(&self) -> usize {
        self.first_batch() + self.cpus * BATCH_RECORD
    }

    fn len(&self) -> usize {
        self.first_counters() + self.cpus * COUNTER_RECORD
    }

    /// The order of a block that fits the root of such a yard.
    pub(crate) fn order_for<P: Platform>(yard: &Yard<P>, config: &VmConfig) -> Result<(Order, u16), VmError> {
        if config.lru_batch == 0 || config.lru_batch > VmConfig::MAX_BATCH {
            return Err(VmError::BadConfig("an LRU batch has 1 to 31 pages"));
        }
        // Frame numbers of a yard never change, so a yard with a root passes.
        let frames = yard.frame_range();
        if frames.end > ENTRY_FRAMES_END {
            return Err(VmError::BeyondEntries(frames));
        }
        if config.shards == 0 || config.shards > MAX_SHARDS {
            return Err(VmError::BadConfig("a node has 1 to 128 LRU shards"));
        }
        let on_node = |node| (0..yard.cpus()).filter(|cpu| yard.node_of_cpu(CpuId(*cpu)) == node).count();
        let most = (0..yard.nodes()).map(|node| on_node(NodeId(node))).max().unwrap_or(1);
        let shards = config.shards.min(most.max(1).try_into().unwrap_or(MAX_SHARDS));
        let nodes = usize::from(yard.nodes());
        let words = Self::first_lru()
            + nodes * usize::from(shards) * LRU_RECORD
            + yard.cpus() as usize * (BATCH_RECORD + COUNTER_RECORD);
        let bytes = (words * size_of::<u64>()) as u64;
        let pages = bytes.div_ceil(yard.geometry().page_size().0);
        let order = Order::covering(PageCount(pages)).filter(|order| *order <= yard.geometry().max_order());
        order
            .map(|order| (order, shards))
            .ok_or(VmError::BadConfig("the yard has too many nodes and CPUs for one root block"))
    }

    /// Writes a new root into a zeroed block.
    pub(crate) fn write<P: Platform>(
        yard: &'y Yard<P>,
        block: Block,
        shards: u16,
        config: &VmConfig,
    ) -> Result<Self, VmError> {
        let words = state_words(yard, block.pfn, block.order).ok_or(VmError::NoFrameBytes(block.pfn))?;
        let put = |word: HeaderWord, value: u64| words.at(word as usize).store(value, Ordering::Relaxed);
        put(HeaderWord::Version, VERSION);
        put(HeaderWord::Shards, u64::from(shards));
        put(HeaderWord::Batch, u64::from(config.lru_batch));
        put(HeaderWord::Lru, config.lru as u64);
        put(HeaderWord::Thp, config.thp as u64);
        put(HeaderWord::Order, u64::from(block.order.0));
        put(HeaderWord::Magic, MAGIC);
        Self::find(yard, block.pfn)
    }

    /// The root in a block.
    pub(crate) fn find<P: Platform>(yard: &'y Yard<P>, pfn: Pfn) -> Result<Self, VmError> {
        let first = state_words(yard, pfn, Order::ZERO).ok_or(VmError::NoFrameBytes(pfn))?;
        let get = |word: HeaderWord| first.at(word as usize).load(Ordering::Relaxed);
        if get(HeaderWord::Magic) != MAGIC || get(HeaderWord::Version) != VERSION {
            return Err(VmError::NotThere);
        }
        let order = u8::try_from(get(HeaderWord::Order)).map(Order).ok();
        let order = order.filter(|order| *order <= yard.geometry().max_order()).ok_or(VmError::NotThere)?;
        let words = state_words(yard, pfn, order).ok_or(VmError::NoFrameBytes(pfn))?;
        let (nodes, cpus) = (usize::from(yard.nodes()), yard.cpus() as usize);
        let batch = 1..=u64::from(VmConfig::MAX_BATCH);
        let shards = 1..=u64::from(MAX_SHARDS);
        if !batch.contains(&get(HeaderWord::Batch)) || !shards.contains(&get(HeaderWord::Shards)) {
            return Err(VmError::NotThere);
        }
        // Copied, so that later changes of the words lead nowhere.
        let [shards, batch] = [HeaderWord::Shards, HeaderWord::Batch].map(|word| get(word) as usize);
        let root = Self {
            words,
            block: Block { pfn, order },
            nodes,
            cpus,
            shards: shards.min(usize::from(MAX_SHARDS)),
            batch,
        };
        if root.len() <= words.len() { Ok(root) } else { Err(VmError::NotThere) }
    }

    /// The block of the root.
    pub(crate) fn block(&self) -> Block {
        self.block
    }

    /// Pages that a CPU collects before it takes the lock of an LRU list.
    #[inline(always)]
    pub(crate) fn batch(&self) -> usize {
        self.batch
    }

    /// The damage that a call has noted.
    pub(crate) fn damage(&self) -> Option<Damage> {
        let bits = self.header(HeaderWord::Damage);
        let known = Damage::ALL.into_iter().find(|damage| *damage as u64 == bits);
        if bits == 0 { None } else { Some(known.unwrap_or(Damage::Object)) }
    }

    /// Notes damage, unless some is noted.
    pub(crate) fn note_damage(&self, damage: Damage) {
        let word = self.words.at(HeaderWord::Damage as usize);
        let _ = word.compare_exchange(0, damage as u64, Ordering::Relaxed, Ordering::Relaxed);
    }

    pub(crate) fn header(&self, word: HeaderWord) -> u64 {
        self.words.at(word as usize).load(Ordering::Relaxed)
    }

    pub(crate) fn set_header(&self, word: HeaderWord, value: u64) {
        self.words.at(word as usize).store(value, Ordering::Relaxed);
    }

    /// Shards per node.
    #[inline(always)]
    pub(crate) fn shards(&self) -> u16 {
        self.shards as u16
    }

    /// Increments a word of the header and returns the new value.
    pub(crate) fn next(&self, word: HeaderWord) -> u64 {
        self.words.at(word as usize).fetch_add(1, Ordering::Relaxed).wrapping_add(1)
    }

    /// The record of a kind of small objects.
    pub(crate) fn objects(&self, kind: usize) -> Words<'y> {
        self.words.part(HEADER + kind * OBJECT_RECORD, OBJECT_RECORD)
    }

    /// The record of a shard of a node's LRU lists; `None` if there is no such shard.
    #[inline(always)]
    pub(crate) fn lru(&self, node: NodeId, shard: u16) -> Option<Words<'y>> {
        if node.index() >= self.nodes || usize::from(shard) >= self.shards {
            return None;
        }
        let at = node.index() * self.shards + usize::from(shard);
        Some(self.words.part(Self::first_lru() + at * LRU_RECORD, LRU_RECORD))
    }

    /// The batches of a CPU of the yard.
    #[inline(always)]
    pub(crate) fn batches(&self, cpu: CpuId) -> Words<'y> {
        self.words.part(self.first_batch() + cpu.index() * BATCH_RECORD, BATCH_RECORD)
    }

    /// The counters of a CPU of the yard.
    #[inline(always)]
    pub(crate) fn counters(&self, cpu: CpuId) -> Words<'y> {
        self.words.part(self.first_counters() + cpu.index() * COUNTER_RECORD, COUNTER_RECORD)
    }
}
