//! Owners: code that can move allocated blocks to other frames, or reclaim them.
//!
//! A [`FrameOwner`] serves one kind of blocks. The page of each counted block names its kind
//! ([`CountedPage`](crate::page::CountedPage)), so compaction, contiguous ranges and failing allocations find the owner
//! of a block by its frame number. [`Owners`] is the table of one view. Owners keep their state in frames of the yard,
//! so the owners of one process can move the blocks of another.

use core::fmt;

use crate::page::Counts;
pub use crate::units::Block;
use crate::units::{NodeId, Order, PageCount, Pfn, ZoneKind, named};

/// A kind of owner: bits 0–7 of the owner's word of a counted block.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct OwnerKind(pub u8);

impl OwnerKind {
    /// No kind: the block has no owner that could move it.
    pub const NONE: Self = Self(0);
    /// Huge pages of a pool ([`Yard::huge_pages`](crate::Yard::huge_pages)). They do not move.
    pub const HUGE_PAGES: Self = Self(15);
    /// The number of kinds, [`NONE`](Self::NONE) included.
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

/// Why a block was not isolated or moved. The call has changed nothing.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum MigrateProblem {
    /// The block was freed, or has another owner now.
    Gone,
    /// Another CPU works on it. A later attempt may succeed.
    Busy,
    /// It has users that the owner cannot find. It stays in place while it has them.
    Pinned,
    /// It can never be moved.
    Unmovable,
    /// The move failed for another reason.
    Failed,
}

named!(MigrateProblem: Gone => "gone", Busy => "busy", Pinned => "pinned", Unmovable => "unmovable", Failed => "failed");

/// An isolated block, and the block that it moves to.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Move {
    /// The isolated block.
    pub from: Block,
    /// The first frame of an allocated block of that order.
    pub to: Pfn,
    /// Why the block has not moved; `None` if it has.
    pub problem: Option<MigrateProblem>,
}

/// Code that can move blocks of its kind. The yard calls it without holding a lock.
pub trait FrameOwner: Sync {
    /// Isolates a block: until the caller is done, no other code moves, drops or isolates it. Its users may keep using it.
    ///
    /// The caller found the block by number, so the block may have been freed or replaced. After a success the same caller
    /// ends the isolation with either a successful [`migrate`](Self::migrate) or [`put_back`](Self::put_back).
    ///
    /// # Errors
    ///
    /// [`MigrateProblem`].
    fn isolate(&self, block: Block, mode: MigrateMode) -> Result<(), MigrateProblem>;

    /// Moves an isolated block's contents and users to the block at `to`.
    ///
    /// `to` is allocated, of the same order, and belongs to the caller. After a success `to` belongs to the owner, and
    /// `from` belongs to the caller, without users, as if just allocated
    /// ([`CountedBlocks::clear_refs`](crate::views::CountedBlocks::clear_refs)).
    ///
    /// # Errors
    ///
    /// [`MigrateProblem`]: `from` stays isolated, and `to` still belongs to the caller. The bytes of `to` may have changed.
    fn migrate(&self, from: Block, to: Pfn, mode: MigrateMode) -> Result<(), MigrateProblem>;

    /// Moves isolated blocks as [`migrate`](Self::migrate) moves one, and says of each why it has not moved.
    ///
    /// An owner can spare waits: for example copy the contents of all of them before it changes the first page structure, since an atomic
    /// operation waits for the stores before it.
    fn migrate_all(&self, moves: &mut [Move], mode: MigrateMode) {
        for of in moves {
            of.problem = self.migrate(of.from, of.to, mode).err();
        }
    }

    /// Drops an isolated block's contents instead of moving them, if they can be read again and are not in active use. After a success
    /// the block belongs to the caller, as after a [`migrate`](Self::migrate).
    ///
    /// Called while a yard with [`DefragMode::On`](crate::DefragMode::On) is short of free frames, as reclaim would be. An owner without
    /// such contents leaves it out.
    ///
    /// # Errors
    ///
    /// [`MigrateProblem`]: the block stays isolated.
    fn discard(&self, block: Block) -> Result<(), MigrateProblem> {
        let _moved_instead = block;
        Err(MigrateProblem::Failed)
    }

    /// Ends the isolation of a block that was neither moved nor dropped.
    fn put_back(&self, block: Block);
}

/// A request to free frames.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReclaimRequest {
    /// The node that the request prefers.
    pub node: NodeId,
    /// The highest zone that may serve it.
    pub highest_zone: ZoneKind,
    /// The order of the requested block.
    pub order: Order,
    /// The number of frames to free, if possible.
    pub wanted: PageCount,
}

/// Code that can free frames by dropping their contents.
pub trait Reclaimer: Sync {
    /// Frees frames and returns their number. 0: nothing is left to reclaim. Must end after a bounded number of steps.
    fn reclaim(&self, request: ReclaimRequest) -> PageCount;
}

/// The owners that a view of a yard knows, by kind.
#[derive(Clone, Copy, Default)]
pub struct Owners<'a> {
    by_kind: [Option<&'a dyn FrameOwner>; OwnerKind::COUNT],
    reclaimer: Option<&'a dyn Reclaimer>,
}

impl<'a> Owners<'a> {
    /// No owners: allocated blocks cannot move.
    pub const NONE: Owners<'static> = Owners { by_kind: [None; OwnerKind::COUNT], reclaimer: None };

    /// These owners, and `owner` for blocks of that kind.
    ///
    /// # Panics
    ///
    /// If `kind` is [`OwnerKind::NONE`], or not below [`OwnerKind::COUNT`].
    #[must_use]
    pub fn with(mut self, kind: OwnerKind, owner: &'a dyn FrameOwner) -> Self {
        assert!(kind != OwnerKind::NONE, "blocks without a kind have no owner");
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

    /// The reclaimer, if any.
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

/// The words of a counted block's page, as its owner sets them with
/// [`CountedBlocks::init_refs`](crate::views::CountedBlocks::init_refs).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Ownership {
    /// The initial counts. Without references the block is frozen.
    pub counts: Counts,
    /// The owner's word: its kind in bits 0–7.
    pub owner: u64,
    /// The block's place in its owner's object.
    pub index: u64,
}
