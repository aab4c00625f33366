//! Owners of allocated blocks, as compaction, contiguous ranges and failing allocations see them.
//!
//! Whoever allocates blocks and can move them to other frames, or give them up, is a [`FrameOwner`] of a kind of its own.
//! The kind stands in the page of each of its counted blocks ([`CountedPage`](crate::page::CountedPage)), so that a block found
//! by number leads to its owner: [`Owners`] is the table of a view. What owners keep lies in frames of the yard, so the
//! owners of one process can move the blocks of another.

use core::fmt;

use crate::page::Counts;
use crate::units::{NodeId, Order, PageCount, Pfn, PfnRange, ZoneKind, named};

/// A kind of owner: bits 0–7 of the owner's word of a counted block.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct OwnerKind(pub u8);

impl OwnerKind {
    /// Nobody who could be asked.
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
    /// Waits for nobody: what is locked is skipped.
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
    /// It was freed, or is somebody else's by now.
    Gone,
    /// Somebody else is at work on it: a later attempt may succeed.
    Busy,
    /// It has users that nobody can find, so it has to stay where it is while they last.
    Pinned,
    /// It can never be moved.
    Unmovable,
    /// Something else failed while it was moved.
    Failed,
}

named!(MigrateProblem: Gone => "gone", Busy => "busy", Pinned => "pinned", Unmovable => "unmovable", Failed => "failed");

/// What can move blocks of its kind. Called without any lock of the yard held.
pub trait FrameOwner: Sync {
    /// Sets a block aside, so that nobody else moves, drops or isolates it. Its users go on using it.
    ///
    /// The caller has found the block by number: it may be anything by now. On success exactly one of
    /// [`migrate`](Self::migrate) (successfully) and [`put_back`](Self::put_back) follows, by the same caller.
    ///
    /// # Errors
    ///
    /// [`MigrateProblem`].
    fn isolate(&self, block: Block, mode: MigrateMode) -> Result<(), MigrateProblem>;

    /// Moves an isolated block's contents and users to the block at `to`.
    ///
    /// `to` is allocated, of the same order, and the caller's; on success it is the owner's, and `from` is the caller's
    /// as if just allocated ([`Yard::disown`](crate::Yard::disown)): nobody uses it any more.
    ///
    /// # Errors
    ///
    /// [`MigrateProblem`]: `from` is still isolated, and `to` is still the caller's, though its bytes may be written.
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
    /// Nobody to ask: every block in use stays where it is.
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
