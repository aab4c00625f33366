//! Owners: code that can move allocated blocks to other frames, or reclaim them.
//!
//! A [`FrameOwner`] is responsible for one kind of blocks. The page structure of each counted block names its kind
//! ([`CountedPage`](crate::page::CountedPage)), so that compaction, contiguous ranges and failing allocations can find
//! a block's owner from its frame number. [`Owners`] is the table of owners that one view knows. Owners keep their
//! state in frames of the yard, so the owners of one process can move the blocks of another.

use core::fmt;

use crate::page::Counts;
pub use crate::units::Block;
use crate::units::{NodeId, Order, PageCount, Pfn, ZoneKind, named};

/// A kind of owner: bits 0–7 of the owner's word of a counted block.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct OwnerKind(pub u8);

impl OwnerKind {
    /// No owner: nobody can move the block.
    pub const NONE: Self = Self(0);
    /// Huge pages of a pool ([`Yard::huge_pages`](crate::Yard::huge_pages)). They do not move.
    pub const HUGE_PAGES: Self = Self(15);
    /// The number of kinds, [`NONE`](Self::NONE) included.
    pub const COUNT: usize = 16;

    /// The kind in an owner's word.
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
    /// Waits for a bounded time.
    Sync,
}

named!(MigrateMode: Async => "async", Sync => "sync");

/// Why a block was not isolated or not moved. The call has changed nothing.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum MigrateProblem {
    /// The block was freed, or has another owner now.
    Gone,
    /// Another CPU is working on it. A later attempt may succeed.
    Busy,
    /// It has users that the owner cannot find. It must stay in place while it has them.
    Pinned,
    /// It can never be moved.
    Unmovable,
    /// The move failed for another reason.
    Failed,
}

named!(MigrateProblem: Gone => "gone", Busy => "busy", Pinned => "pinned", Unmovable => "unmovable", Failed => "failed");

/// The move of an isolated block to another block.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Move {
    /// The isolated block.
    pub from: Block,
    /// The first frame of the block to move to, which is allocated and of the same order.
    pub to: Pfn,
    /// Why the block has not moved; `None` if it has.
    pub problem: Option<MigrateProblem>,
}

/// Code that can move blocks of its kind. The yard calls it without holding a lock.
pub trait FrameOwner: Sync {
    /// Isolates a block: from now on, no other code moves, drops or isolates it. Its users may keep using it.
    ///
    /// The caller found the block by its frame number, so it may have been freed or replaced since. After a success,
    /// the same caller ends the isolation with a successful [`migrate`](Self::migrate) or [`discard`](Self::discard),
    /// or with [`put_back`](Self::put_back).
    ///
    /// # Errors
    ///
    /// [`MigrateProblem`].
    fn isolate(&self, block: Block, mode: MigrateMode) -> Result<(), MigrateProblem>;

    /// Moves an isolated block's contents and users to the block at `to`.
    ///
    /// The block at `to` is allocated, has the same order and belongs to the caller. After a success it belongs to the
    /// owner, and `from` belongs to the caller, without users, as if just allocated
    /// ([`CountedBlocks::clear_refs`](crate::views::CountedBlocks::clear_refs)).
    ///
    /// # Errors
    ///
    /// [`MigrateProblem`]: `from` stays isolated, and `to` still belongs to the caller. The bytes of `to` may have changed.
    fn migrate(&self, from: Block, to: Pfn, mode: MigrateMode) -> Result<(), MigrateProblem>;

    /// Moves several isolated blocks, each as [`migrate`](Self::migrate) does, and notes for each whether it has moved.
    ///
    /// An owner that implements this can save time. For example, it can copy the contents of all blocks before it
    /// changes the first page structure: an atomic operation waits for all earlier stores, so alternating the two is
    /// slow.
    fn migrate_all(&self, moves: &mut [Move], mode: MigrateMode) {
        for of in moves {
            of.problem = self.migrate(of.from, of.to, mode).err();
        }
    }

    /// Drops the contents of an isolated block instead of moving them, if they can be read again and are not in active
    /// use. After a success the block belongs to the caller, as after [`migrate`](Self::migrate).
    ///
    /// Called when a yard with [`DefragMode::On`](crate::DefragMode::On) is short of free frames, as reclaim would be.
    /// An owner whose contents can never be dropped need not implement it.
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
    /// Frees frames, and returns how many; 0 means that nothing is left to reclaim. Must return after a bounded number
    /// of steps.
    fn reclaim(&self, request: ReclaimRequest) -> PageCount;
}

/// The owners that a view of a yard knows, by kind.
#[derive(Clone, Copy, Default)]
pub struct Owners<'a> {
    by_kind: [Option<&'a dyn FrameOwner>; OwnerKind::COUNT],
    reclaimer: Option<&'a dyn Reclaimer>,
}

impl<'a> Owners<'a> {
    /// No owners: allocated blocks cannot be moved.
    pub const NONE: Owners<'static> = Owners { by_kind: [None; OwnerKind::COUNT], reclaimer: None };

    /// Adds `owner` for blocks of that kind.
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

    /// Adds a reclaimer.
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

/// The initial counts and owner words of a counted block, which
/// [`CountedBlocks::init_refs`](crate::views::CountedBlocks::init_refs) writes to its page structure.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Ownership {
    /// The initial counts. With no references, the block starts frozen.
    pub counts: Counts,
    /// The owner's word: its kind in bits 0–7.
    pub owner: u64,
    /// The block's place in its owner's object.
    pub index: u64,
}
