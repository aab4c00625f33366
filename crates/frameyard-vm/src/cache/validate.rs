//! Validation of files. Requires quiescence.

use frameyard::page::{Counts, FrameLink};
use frameyard::sync::Ordering;
use frameyard::{Pfn, Platform};

use super::file::{FileRef, FileWord};
use super::page_lock::{is_locked, taken};
use super::tree::{BASE, DIRTY, LEVEL, MAX_HEIGHT, PRESENT, Tree, base_of};
use crate::error::VmValidateError;
use crate::object_id::{ObjectId, ObjectKind};
use crate::page::{Flags, PageKind, object_of};
use crate::vm::Vm;

/// The counts below a node.
#[derive(Clone, Copy, Default)]
struct Found {
    nodes: u64,
    pages: u64,
    dirty: u64,
}

impl Found {
    fn and(self, other: Self) -> Self {
        Self { nodes: self.nodes + other.nodes, pages: self.pages + other.pages, dirty: self.dirty + other.dirty }
    }
}

fn equal(what: &'static str, kept: u64, found: u64) -> Result<(), VmValidateError> {
    if kept == found { Ok(()) } else { Err(VmValidateError::Count { what, kept, found }) }
}

impl<P: Platform> Vm<'_, P> {
    /// Recounts all files, their trees and pages. Drains the LRU batches of all CPUs first: a page of a quiet file has
    /// only the tree's reference.
    pub(crate) fn validate_files(&self) -> Result<(), VmValidateError> {
        self.lru_drain_all();
        let (mut files, mut all) = (0, Found::default());
        for id in self.stable_objects(ObjectKind::File) {
            let file = FileRef::new(*self, id)?;
            if file.is_alive() {
                files += 1;
                all = all.and(file.validate()?);
            }
        }
        equal("files", self.live_objects(ObjectKind::File), files)?;
        equal("nodes of files", self.live_objects(ObjectKind::CacheNode), all.nodes)
    }
}

impl<'y, P: Platform> FileRef<'y, P> {
    fn validate(&self) -> Result<Found, VmValidateError> {
        let word = |word| self.word(word).load(Ordering::Relaxed);
        let sizing = self.is_size_locked();
        equal("holders of the size lock of a quiet file", u64::from(sizing), 0)?;
        let tree = self.lock()?;
        let found = match tree.root().some() {
            None => Found::default(),
            Some(_) if tree.height() == 0 || tree.height() > MAX_HEIGHT as u64 => {
                return Err(VmValidateError::Count {
                    what: "height of a file's tree",
                    kept: tree.height(),
                    found: MAX_HEIGHT as u64,
                });
            }
            Some(root) => {
                let present = tree.node(root)?.at(PRESENT).load(Ordering::Relaxed);
                if tree.height() > 1 && present == 1 {
                    equal("height of a file's tree with one branch", tree.height(), 1)?;
                }
                self.validate_node(&tree, root, tree.height() as u32 - 1, 0)?
            }
        };
        equal("pages of a file", word(FileWord::Pages), found.pages)?;
        equal("dirty pages of a file", word(FileWord::DirtyPages), found.dirty)?;
        Ok(found)
    }

    fn validate_node(&self, tree: &Tree<'y, P>, id: ObjectId, level: u32, base: u64) -> Result<Found, VmValidateError> {
        let node = tree.node(id)?;
        let word = |word: usize| node.at(word).load(Ordering::Relaxed);
        equal("level of a node", word(LEVEL), u64::from(level))?;
        equal("first page of a node", word(BASE), base)?;
        let mut found = Found { nodes: 1, ..Found::default() };
        let (mut present, mut dirty) = (0_u64, 0_u64);
        for slot in (0..PRESENT).filter(|slot| word(*slot) != 0) {
            let first = base + ((slot as u64) << (level * 6));
            let child = match level {
                0 => self.validate_page(word(slot), first, word(DIRTY) >> slot & 1)?,
                _ => self.validate_node(tree, ObjectId::from_bits(word(slot)), level - 1, base_of(first, level - 1))?,
            };
            present |= 1 << slot;
            dirty |= u64::from(child.dirty > 0) << slot;
            found = found.and(child);
        }
        equal("slots of a node in use", word(PRESENT), present)?;
        equal("slots of a node with dirty pages", word(DIRTY), dirty)?;
        if present == 0 {
            return equal("pages of a node that is there", 0, 1).map(|()| found);
        }
        Ok(found)
    }

    fn validate_page(&self, slot: u64, index: u64, tagged: u64) -> Result<Found, VmValidateError> {
        let vm = self.vm();
        let pfn = vm.yard().counted().linked(FrameLink::from_bits(slot as u32));
        let pfn = pfn.ok_or(VmValidateError::Frame { pfn: Pfn(slot), what: "a file's tree names no frame" })?;
        let check = |holds: bool, what| if holds { Ok(()) } else { Err(VmValidateError::Frame { pfn, what }) };
        let page = vm.try_page(pfn).filter(|page| page.is_counted());
        let page = page.ok_or(VmValidateError::Frame { pfn, what: "is in a file's tree, and is not counted" })?;
        let owner = page.owner();
        check(PageKind::of_word(owner) == Some(PageKind::Cache), "is in a file's tree, and of another kind")?;
        check(object_of(owner) == self.object(), "is in a file's tree, and names another owner")?;
        check(page.index() == index, "is in a file's tree under another number than its own")?;
        let Counts { references, mappings } = page.counts();
        let users = taken(page).wrapping_add(1 + u64::from(mappings));
        check(u64::from(references) == users, "has users besides its quiet file, its mappings and those that took it")?;
        if mappings > 0 {
            equal("mappings of a page of a file", mappings.into(), vm.count_file_entries(self.file_id(), index, pfn)?)?;
        }
        let is_busy = is_locked(page) || owner & (Flags::TRUNCATED | Flags::ISOLATED) != 0;
        check(!is_busy, "is in a file's tree, and locked, truncated or isolated in a quiet file")?;
        check(owner & Flags::LRU != 0, "is in a file's tree, and on no LRU list")?;
        let dirty = u64::from(owner & Flags::DIRTY != 0);
        check(dirty == tagged, "is dirty and not tagged in its file's tree, or the other way round")?;
        check(dirty == 0 || owner & Flags::UPTODATE != 0, "is dirty and not up to date")?;
        let size = self.size();
        check(index < self.pages_of(size), "is behind the end of its file")?;
        Ok(Found { nodes: 0, pages: 1, dirty })
    }
}
