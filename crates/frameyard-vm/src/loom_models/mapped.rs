//! Pages of files that a space maps (`crate::cache`, `crate::fault`): faults against drops by reclaim, and against
//! truncation.

use frameyard::ByteSize;
use frameyard::sync::{Weakness, weakened};

use super::cache::{DAMAGED, Handle, OneWord, SHARD, STORED, filled, finish_file, reclaim};
use super::kept::Kept;
use super::machine::ModelPlatform;
use super::migrate::{AT, Space, scene};
use super::{Scene, assert_fails_to, explore_to, in_long_runs};
use crate::cache::FileError;
use crate::lru::LruList;
use crate::map::MapRequest;
use crate::page::Flags;
use crate::space::FaultError;
use crate::vm::Vm;
use crate::{MemoryAccess, PageLevel, Sharing, VmError};

/// A space that maps the page of the file. Its tables exist, so that the models have fewer steps.
fn mapping<'y>(vm: Vm<'y, ModelPlatform>, file: crate::FileId) -> Space<'y> {
    let vm = vm.with_store(&OneWord);
    let space = Kept::new(vm.create_space().expect("a space"));
    let request = MapRequest::file(file, 0, PageLevel::Small.size(), Sharing::Shared).at(AT);
    space.map(request).expect("an area");
    let beside = MapRequest::anonymous(PageLevel::Small.size()).at(crate::VirtAddr(AT.0 + 4096));
    space.map(beside).expect("an area");
    space.touch(crate::VirtAddr(AT.0 + 4096), MemoryAccess::Write).expect("memory");
    vm.lru_drain();
    space
}

/// A file of one page, in memory and on a list, that was not used lately: a fault does not add it to a batch, whose
/// reference would keep it.
fn unused(vm: Vm<'_, ModelPlatform>) -> Handle<'_> {
    let file = filled(vm);
    let page = vm.lock_shard(SHARD).unwrap().last(LruList::InactiveFile).expect("the page is on its list");
    page.clear_owner_bits(Flags::REFERENCED);
    file
}

/// Faults the page of the file in. The bounded wait for a page lock is short in a model, so this retries.
fn fault(space: &Space<'_>) -> Result<(), FaultError> {
    let mut found = space.touch(AT, MemoryAccess::Read);
    for _ in 0..16 {
        if found != Err(FaultError::Vm(VmError::Stalled)) {
            break;
        }
        found = space.touch(AT, MemoryAccess::Read);
    }
    found
}

/// Validates the mapping, and ends it and the file.
fn finish(scene: &Scene, space: Space<'_>, file: Handle<'_>) {
    scene.vm().lru_drain_all();
    scene.vm().validate().unwrap_or_else(|problem| panic!("the validator objects: {problem}"));
    if space.translate(AT).is_some() {
        let mut bytes = [0; 8];
        space.read(AT, &mut bytes).expect("the page is mapped");
        assert_eq!(u64::from_le_bytes(bytes), STORED, "the bytes are another page's");
    }
    drop(space);
    finish_file(scene, file);
}

/// A fault maps the page of a file while reclaim drops it: the mapping has the file's bytes, and the page that is mapped
/// is the file's.
fn mapped_while_dropped() {
    let scene = scene(None);
    let file = unused(scene.vm());
    let space = mapping(scene.vm(), file.id());
    let other = scene.start(1, reclaim);
    assert_eq!(fault(&space), Ok(()));
    other.join().unwrap();
    finish(&scene, space, file);
}

/// A fault maps the page of a file while a truncation removes it: either the page stays in the file, or the fault fails.
fn mapped_while_truncated() {
    let scene = scene(None);
    let file = unused(scene.vm());
    let space = mapping(scene.vm(), file.id());
    let id = file.id();
    let other = scene.start(1, move |vm| {
        let file = Kept::new(vm.file(id).expect("the file is there"));
        for _ in 0..16 {
            match file.truncate(ByteSize(0)) {
                Err(FileError::NotTruncated { why: VmError::Stalled, .. } | FileError::Vm(VmError::Stalled)) => {}
                _ => break,
            }
        }
    });
    let found = fault(&space);
    other.join().unwrap();
    match space.translate(AT) {
        Some(_) => assert_eq!((found, file.size()), (Ok(()), ByteSize(4096)), "a mapped page was truncated"),
        None => assert_eq!((found, file.size()), (Err(FaultError::BehindFile(AT)), ByteSize(0))),
    }
    finish(&scene, space, file);
}

#[test]
fn fault_races_drop() {
    explore_to(2, mapped_while_dropped);
}

#[test]
fn fault_races_truncation() {
    explore_to(in_long_runs(2), mapped_while_truncated);
}

#[test]
fn detects_mapping_after_the_page_lock_is_released() {
    weakened(Weakness::MappedUnlocked, || assert_fails_to(1, mapped_while_dropped, DAMAGED));
}
