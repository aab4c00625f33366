//! Pages of files (`crate::cache`): drops by reclaim against look-ups, reads and writes; truncation against migration.

use frameyard::owners::MigrateMode;
use frameyard::platform::LockId;
use frameyard::sync::{Weakness, weakened};
use frameyard::{ByteSize, NodeId, PageCount};

use super::kept::Kept;
use super::machine::{Broken, Flaw, ModelPlatform};
use super::migrate::{move_page, target};
use super::{Scene, assert_fails_to, explore_to};
use crate::lru::{LruList, ShardKey};
use crate::store::{BackingStore, StoreError};
use crate::vm::Vm;
use crate::{File, VmConfig};

/// Room for the root, a file, a node of its tree, and a few pages.
const SECTIONS: u64 = 3;
pub(super) const SHARD: ShardKey = ShardKey { node: NodeId(0), shard: 0 };
const PAGE: ByteSize = ByteSize::kib(4);

/// The word from the store, and the word written.
pub(super) const STORED: u64 = 31;
const WRITTEN: u64 = 32;

/// Messages of models whose file, counts or lists were broken.
pub(super) const DAMAGED: &[&str] = &[
    "a write was lost",
    "the bytes are another page's",
    "the validator objects",
    "frames were lost",
    "a freed page has no other users",
    "is linked already",
    "more were released",
    "the freezer owns a frozen page",
    "a page is behind the end",
    "a locked page that was not truncated is in the tree",
    "ReferenceUnderflow",
    STAYS_LOCKED,
];

/// Messages about a page with a lost lock.
const STAYS_LOCKED: &str = "a page stays locked";

/// A store of one word and zeros. Read-only.
pub(super) struct OneWord;

impl BackingStore for OneWord {
    fn fill(&self, _key: u64, _page: u64, offset: usize, bytes: &mut [u8]) -> Result<(), StoreError> {
        bytes.fill(0);
        if offset == 0 {
            bytes[..8].copy_from_slice(&STORED.to_le_bytes());
        }
        Ok(())
    }

    fn write_back(&self, key: u64, page: u64, _bytes: &[u8]) -> Result<(), StoreError> {
        Err(StoreError::Failed { key, page })
    }
}

pub(super) type Handle<'y> = Kept<File<'y, ModelPlatform>>;

fn scene(broken: Broken) -> Scene {
    let config = VmConfig { lru_batch: 2, shards: 1, ..VmConfig::default() };
    Scene::new(SECTIONS, &config, broken)
}

/// A file of one page, in memory and on a list.
pub(super) fn filled(vm: Vm<'_, ModelPlatform>) -> Handle<'_> {
    let file = Kept::new(vm.with_store(&OneWord).create_file(1, PAGE).expect("a file"));
    assert_eq!(read(&file), STORED, "the bytes are another page's");
    vm.lru_drain();
    file
}

/// Attempts after a busy answer.
const TRIES: u32 = 16;

/// Retries until success. In a broken model that may never happen.
fn retry<T, E>(mut wanted: impl FnMut() -> Result<T, E>) {
    assert!((0..TRIES).any(|_| wanted().is_ok()), "{STAYS_LOCKED}");
}

/// Reads the first word. The bounded wait for a page lock is short in a model, so this retries.
fn read(file: &File<'_, ModelPlatform>) -> u64 {
    let mut bytes = [0; 8];
    retry(|| file.read(0, &mut bytes));
    u64::from_le_bytes(bytes)
}

fn write(file: &File<'_, ModelPlatform>) {
    retry(|| file.write(0, &WRITTEN.to_le_bytes()));
}

/// Drops the last page of the list like reclaim, if possible.
pub(super) fn reclaim(vm: Vm<'_, ModelPlatform>) {
    let mut lists = vm.lock_shard(SHARD).unwrap();
    let taken = lists.last(LruList::InactiveFile).and_then(|page| lists.isolate(page));
    drop(lists);
    let Some(page) = taken else { return };
    match vm.drop_cache_page(page) {
        Ok(()) => vm.free_unused(&[page.pfn()]),
        Err(_) => vm.put_back_all(&[page.pfn()]),
    }
}

pub(super) fn finish_file(scene: &Scene, file: Handle<'_>) {
    scene.vm().lru_drain_all();
    scene.vm().validate().unwrap_or_else(|problem| panic!("the validator objects: {problem}"));
    drop(file);
    scene.finish();
}

/// A page is read while reclaim drops it.
fn read_while_dropped(broken: Broken) {
    let scene = scene(broken);
    let file = filled(scene.vm());
    let other = scene.start(1, reclaim);
    assert_eq!(read(&file), STORED, "the bytes are another page's");
    other.join().unwrap();
    finish_file(&scene, file);
}

/// A page is written while reclaim drops it.
fn written_while_dropped(broken: Broken) {
    let scene = scene(broken);
    let file = filled(scene.vm());
    let other = scene.start(1, reclaim);
    write(&file);
    other.join().unwrap();
    assert_eq!(read(&file), WRITTEN, "a write was lost");
    finish_file(&scene, file);
}

/// A file goes while reclaim drops its page.
fn deleted_while_dropped() {
    let scene = scene(None);
    let file = filled(scene.vm());
    let other = scene.start(1, reclaim);
    drop(file);
    other.join().unwrap();
    scene.vm().lru_drain_all();
    scene.finish();
}

/// A file is truncated while its page is moved: the page is gone in either frame.
fn truncated_while_moved(broken: Broken, mode: MigrateMode) {
    let scene = scene(broken);
    let file = filled(scene.vm());
    let pfn = scene.vm().lock_shard(SHARD).unwrap().last(LruList::InactiveFile).expect("the page is on its list").pfn();
    let to = target(scene.vm());
    let other = scene.start(1, move |vm| move_page(vm, pfn, to, mode));
    retry(|| file.truncate(ByteSize(0)));
    assert_eq!((file.size(), file.pages()), (ByteSize(0), PageCount(0)), "a page is behind the end");
    other.join().unwrap();
    finish_file(&scene, file);
}

const NO_FILE_LOCK: Broken = Some((|id| matches!(id, LockId::File(_)), Flaw::NeverRefused));

#[test]
fn look_up_races_drop() {
    explore_to(2, || read_while_dropped(None));
}

#[test]
fn reclaim_scan_loses_no_write() {
    explore_to(2, || written_while_dropped(None));
}

#[test]
fn drop_races_end_of_file() {
    explore_to(2, deleted_while_dropped);
}

#[test]
fn truncation_races_async_migration() {
    explore_to(1, || truncated_while_moved(None, MigrateMode::Async));
}

#[test]
fn truncation_races_sync_migration() {
    explore_to(1, || truncated_while_moved(None, MigrateMode::Sync));
}

#[test]
fn detects_file_lock_without_exclusion_during_truncation() {
    assert_fails_to(1, || truncated_while_moved(NO_FILE_LOCK, MigrateMode::Async), DAMAGED);
}

#[test]
fn detects_file_lock_without_exclusion() {
    assert_fails_to(2, || read_while_dropped(NO_FILE_LOCK), DAMAGED);
}

#[test]
fn detects_page_lock_without_exclusion() {
    weakened(Weakness::SplitCompareExchange, || assert_fails_to(2, || written_while_dropped(None), DAMAGED));
}
