//! Owners: code that can move allocated blocks to other frames, or reclaim them.
//!
//! A [`FrameOwner`] serves one kind of blocks. The page of each counted block names its kind
//! ([`CountedPage`](crate::page::CountedPage)), so compaction, contiguous ranges and failing allocations find the owner
//! of a block by its frame number. [`Owners`] is the table of one view. Owners keep their state in frames of the yard,
//! so the owners of one process can move the blocks of another.

use core::fmt;

use crate::page::Counts;
use crate::units::{NodeId, Order, PageCount, Pfn, PfnRange, ZoneKind, named};

/// A kind of owner: bits 0–7 of the owner's word of a counted block.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct OwnerKind(pub u8);

impl OwnerKind {
    /// No kind: the block has no owner that could move it.
    pub const NONE: Self = Self(0);
    /// How many kinds there can be, [`NONE`](Self::NONE) included.
    pub const COUNT: usize = 16;

    /// The kind that an owner's word names.
    #[inline(always)]
    #[must_use]
    pub const fn of_word(word: u64) -> Self {
        Self(word as u8)
    }
}

impl fmt::Display for OwnerKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "owner kind {}", self.0)
    }
}

/// A block: its first frame and its order.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Block {
    /// The first frame.
    pub pfn: Pfn,
    /// `2^order` frames.
    pub order: Order,
}

impl Block {
    /// The frames of the block.
    #[must_use]
    pub fn frames(self) -> PfnRange {
        PfnRange::new(self.pfn, self.order.pages())
    }
}

impl fmt::Display for Block {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the block at {}, {}", self.pfn, self.order)
    }
}

/// How hard migration tries (the kernel's `enum migrate_mode`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum MigrateMode {
    /// Never waits: skips what is locked.
    #[default]
    Async,
    /// Waits, for a bounded time.
    Sync,
}

named!(MigrateMode: Async => "async", Sync => "sync");

/// Why a block was not isolated or moved. Nothing has changed then.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum MigrateProblem {
    /// The block was freed, or has another owner now.
    Gone,
    /// Another CPU works on it: a later attempt may succeed.
    Busy,
    /// It has users that the owner cannot find, so it stays while they last.
    Pinned,
    /// It can never be moved.
    Unmovable,
    /// Something else failed while it was moved.
    Failed,
}

named!(MigrateProblem: Gone => "gone", Busy => "busy", Pinned => "pinned", Unmovable => "unmovable", Failed => "failed");

/// What can move blocks of its kind. Called without any lock of the yard held.
pub trait FrameOwner: Sync {
    /// Isolates a block: until the caller is done, nothing else moves, drops or isolates it. Its users go on using it.
    ///
    /// The caller found the block by number, so the block may have been freed or replaced. On success exactly one of
    /// [`migrate`](Self::migrate) (successfully) and [`put_back`](Self::put_back) follows, by the same caller.
    ///
    /// # Errors
    ///
    /// [`MigrateProblem`].
    fn isolate(&self, block: Block, mode: MigrateMode) -> Result<(), MigrateProblem>;

    /// Moves an isolated block's contents and users to the block at `to`.
    ///
    /// `to` is allocated, of the same order, and belongs to the caller. On success it belongs to the owner, and `from`
    /// belongs to the caller, without users, as if just allocated
    /// ([`CountedBlocks::disown`](crate::views::CountedBlocks::disown)).
    ///
    /// # Errors
    ///
    /// [`MigrateProblem`]: `from` is still isolated, and `to` still belongs to the caller, though its bytes may be
    /// written.
    fn migrate(&self, from: Block, to: Pfn, mode: MigrateMode) -> Result<(), MigrateProblem>;

    /// Gives an isolated block back to its owner, unmoved.
    fn put_back(&self, block: Block);
}

/// What is wanted of reclaim.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReclaimRequest {
    /// The node that the request prefers.
    pub node: NodeId,
    /// The highest zone that would serve it.
    pub highest_zone: ZoneKind,
    /// The order of the block that is wanted.
    pub order: Order,
    /// How many frames to free, if that many can be.
    pub wanted: PageCount,
}

/// What can free frames by giving up what they hold.
pub trait Reclaimer: Sync {
    /// Frees frames, and says how many: 0 means that there is nothing left to give up. Ends in any case.
    fn reclaim(&self, request: ReclaimRequest) -> PageCount;
}

/// The owners that a view of a yard can ask, by kind.
#[derive(Clone, Copy, Default)]
pub struct Owners<'a> {
    by_kind: [Option<&'a dyn FrameOwner>; OwnerKind::COUNT],
    reclaimer: Option<&'a dyn Reclaimer>,
}

impl<'a> Owners<'a> {
    /// No owners: every block in use stays in place.
    pub const NONE: Owners<'static> = Owners { by_kind: [None; OwnerKind::COUNT], reclaimer: None };

    /// These owners, and `owner` for blocks of that kind.
    ///
    /// # Panics
    ///
    /// Where `kind` is [`OwnerKind::NONE`] or there is no such kind.
    #[must_use]
    pub fn with(mut self, kind: OwnerKind, owner: &'a dyn FrameOwner) -> Self {
        assert!(kind != OwnerKind::NONE, "blocks without a kind have no owner that can be asked");
        self.by_kind[usize::from(kind.0)] = Some(owner);
        self
    }

    /// These owners, and `reclaimer` to free frames.
    #[must_use]
    pub fn with_reclaimer(mut self, reclaimer: &'a dyn Reclaimer) -> Self {
        self.reclaimer = Some(reclaimer);
        self
    }

    /// The owner of blocks of a kind.
    #[must_use]
    pub fn of(&self, kind: OwnerKind) -> Option<&'a dyn FrameOwner> {
        *self.by_kind.get(usize::from(kind.0))?
    }

    /// What frees frames.
    #[must_use]
    pub fn reclaimer(&self) -> Option<&'a dyn Reclaimer> {
        self.reclaimer
    }
}

impl fmt::Debug for Owners<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kinds = self.by_kind.iter().enumerate().filter(|(_, owner)| owner.is_some()).map(|(kind, _)| kind);
        f.debug_set().entries(kinds).finish()
    }
}

/// What the page of a block says while its users are counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Adoption {
    /// The users it begins with; there is at least one reference.
    pub counts: Counts,
    /// The owner's word: its kind in bits 0–7.
    pub owner: u64,
    /// The block's place in its owner's object.
    pub index: u64,
}
