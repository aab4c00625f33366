use std::num::NonZeroU32;
use std::os::unix::process::ExitStatusExt;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use frameyard::{ByteSize, Gfp, Order, PageCount};

use super::*;
use crate::mapped::frames::MappedFrames;
use crate::yard::HostYard;
use crate::yard::error::HostYardError;

/// Tells the worker process of a test which name to use.
const NAME: &str = "FRAMEYARD_TEST_NAME";

/// A name that no other test uses.
fn name() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("frameyard-test-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

fn is_unknown(opened: &Result<HostYard, HostYardError>) -> bool {
    matches!(opened, Err(HostYardError::File(SharedFileError::NoSuchName(_))))
}

#[expect(unsafe_code, reason = "the tests share yards with themselves")]
fn open(name: impl AsRef<Path>) -> Result<HostYard, HostYardError> {
    // SAFETY: only yards of these tests write to files that a yard accepts.
    unsafe { HostYard::open_shared(name) }
}

#[test]
fn both_sides_of_a_name_see_the_same_frames() {
    let name = name();
    let yard = HostYard::create_shared(&name, ByteSize::mib(16)).unwrap();
    let other = open(&name).unwrap();
    assert_eq!(yard.path().unwrap(), Path::new("/dev/shm").join(&name));
    assert_eq!(fs::metadata(yard.path().unwrap()).unwrap().mode() & 0o777, 0o600);
    let free = yard.stats().free_pages();
    let mut block = other.frames(Order(3), Gfp::KERNEL).unwrap();
    block.bytes_mut().fill(7);
    assert_eq!(yard.stats().free_pages(), free - Order(3).pages());
    let seen = yard.memory().bytes(block.pfn(), block.count()).unwrap();
    // SAFETY: `other` has the frames and nothing writes to them meanwhile.
    #[expect(unsafe_code, reason = "the test reads through a second mapping of the frames")]
    let seen = unsafe { seen.as_ref() };
    assert!(seen.iter().all(|byte| *byte == 7));
    drop(block);
    yard.validate().unwrap();
    assert_eq!(other.stats().free_pages(), free);
}

#[test]
fn frames_pass_from_one_process_to_another() {
    let name = name();
    let yard = HostYard::create_shared(&name, ByteSize::mib(16)).unwrap();
    let other = Arc::new(open(&name).unwrap());
    let free = yard.stats().free_pages();
    let mut block = yard.frames(Order(2), Gfp::KERNEL).unwrap();
    block.bytes_mut().fill(7);
    let range = block.into_range();
    assert_eq!(yard.stats().free_pages(), free - Order(2).pages(), "the frames stay allocated");
    // SAFETY: the range was given up above and no other guard has it.
    #[expect(unsafe_code, reason = "the test upholds the contract")]
    let block = unsafe { MappedFrames::from_range(Arc::clone(&other), range) }.unwrap();
    assert_eq!(block.range(), range);
    assert!(block.bytes().iter().all(|byte| *byte == 7));
    drop(block);
    assert_eq!(other.stats().free_pages(), free);
    let range = yard.frames(Order(0), Gfp::KERNEL).unwrap().into_range();
    other.free_range(range).unwrap();
    yard.validate().unwrap();
    assert_eq!(yard.stats().free_pages(), free);
}

#[test]
fn the_last_user_removes_the_name() {
    let name = name();
    let yard = HostYard::create_shared(&name, ByteSize::mib(4)).unwrap();
    let other = open(&name).unwrap();
    drop(yard);
    assert!(other.path().unwrap().exists());
    drop(open(&name).unwrap());
    let path = other.path().unwrap().to_owned();
    drop(other);
    assert!(!path.exists());
    assert!(is_unknown(&open(&name)));
}

#[test]
fn a_yard_knows_its_name_and_its_file() {
    let name = name();
    let yard = HostYard::builder().size(ByteSize::mib(4)).cpus(NonZeroU32::MIN).shared_as(&name).build().unwrap();
    let path = path_of(Path::new(&name));
    let other = open(&name).unwrap();
    assert_eq!(other.core().cpus(), 1);
    for yard in [&yard, &other] {
        assert_eq!(yard.path(), Some(&*path));
        assert_eq!(yard.shared_file().unwrap().ranges()[0].range.count(), PageCount(1024));
    }
    let inherited = HostYard::builder().size(ByteSize::mib(4)).shared().build().unwrap();
    assert_eq!((inherited.path(), inherited.shared_file().is_some()), (None, true));
    let private = HostYard::with_memory(ByteSize::mib(4)).unwrap();
    assert!(private.path().is_none() && private.shared_file().is_none());
}

#[test]
fn a_name_in_use_is_refused() {
    let name = name();
    let yard = HostYard::create_shared(&name, ByteSize::mib(4)).unwrap();
    let error = HostYard::create_shared(&name, ByteSize::mib(4)).unwrap_err();
    assert!(matches!(error, HostYardError::File(SharedFileError::NameInUse(_))), "{error}");
    open(&name).unwrap();
    drop(yard);
}

#[test]
fn a_leftover_name_is_unknown_and_can_be_created_again() {
    for recreate in [false, true] {
        let (name, leftover) = (name(), name());
        let yard = HostYard::create_shared(&name, ByteSize::mib(4)).unwrap();
        let path = Path::new(DIRECTORY).join(&leftover);
        fs::hard_link(yard.path().unwrap(), &path).unwrap();
        drop(yard);
        if recreate {
            HostYard::create_shared(&leftover, ByteSize::mib(4)).unwrap().validate().unwrap();
        } else {
            assert!(is_unknown(&open(&leftover)));
        }
        assert!(!path.exists());
    }
}

#[test]
fn the_name_of_killed_processes_cannot_be_opened() {
    let name = name();
    let worker = ["yard::name::tests::worker_creates_a_yard_and_is_killed", "--exact", "--ignored"];
    let status = Command::new(std::env::current_exe().unwrap()).args(worker).env(NAME, &name).status().unwrap();
    assert_eq!(status.signal(), Some(6));
    let path = Path::new(DIRECTORY).join(&name);
    assert!(path.exists());
    assert!(is_unknown(&open(&name)));
    assert!(!path.exists());
}

#[test]
#[ignore = "a worker of another test"]
fn worker_creates_a_yard_and_is_killed() {
    let yard = HostYard::create_shared(std::env::var(NAME).unwrap(), ByteSize::mib(4)).unwrap();
    assert!(yard.path().unwrap().exists());
    std::process::abort();
}

#[test]
fn other_files_are_neither_opened_nor_removed() {
    let path = Path::new(DIRECTORY).join(name());
    fs::write(&path, vec![1; 4096]).unwrap();
    let opened = open(&path).unwrap_err();
    let created = HostYard::create_shared(&path, ByteSize::mib(4)).unwrap_err();
    fs::remove_file(&path).unwrap();
    for error in [opened, created] {
        assert!(matches!(error, HostYardError::File(SharedFileError::Header(_))), "{error}");
    }
}

#[test]
fn impossible_names_and_sizes_are_refused() {
    let error = HostYard::create_shared("/nowhere/name", ByteSize::mib(4)).unwrap_err();
    assert!(error.to_string().starts_with("/nowhere/name: cannot open the file for frames: No such file"), "{error}");
    assert!(is_unknown(&open("/nowhere/name")));
    let error = HostYard::create_shared(name(), ByteSize(1)).unwrap_err();
    assert!(matches!(error, HostYardError::TooSmall { .. }), "{error}");
}

#[test]
fn an_owning_guard_keeps_the_yard_and_its_name() {
    let name = name();
    let yard = Arc::new(HostYard::create_shared(&name, ByteSize::mib(4)).unwrap());
    let block = yard.frames_owned(Order(0), Gfp::KERNEL).unwrap();
    drop(yard);
    drop(open(&name).unwrap());
    drop(block);
    assert!(is_unknown(&open(&name)));
}

#[test]
fn a_forked_child_that_drops_the_yard_leaves_its_name_to_the_parent() {
    let name = name();
    let worker = ["yard::name::tests::worker_forks_a_child_that_drops_its_yard", "--exact", "--ignored"];
    let status = Command::new(std::env::current_exe().unwrap()).args(worker).env(NAME, &name).status().unwrap();
    assert!(status.success(), "{status}");
}

#[test]
#[ignore = "a worker of another test"]
fn worker_forks_a_child_that_drops_its_yard() {
    let name = std::env::var(NAME).unwrap();
    let yard = HostYard::create_shared(&name, ByteSize::mib(4)).unwrap();
    // SAFETY: the child unlocks no lock of another thread's, and calls nothing that needs one.
    #[expect(unsafe_code, reason = "`libc` declares the calls unsafe")]
    unsafe {
        let child = libc::fork();
        if child == 0 {
            drop(yard);
            libc::_exit(0);
        }
        let mut status = 0;
        assert_eq!((libc::waitpid(child, &raw mut status, 0), status), (child, 0));
    }
    assert!(yard.path().unwrap().exists());
    open(&name).unwrap().validate().unwrap();
    let error = HostYard::create_shared(&name, ByteSize::mib(4)).unwrap_err();
    assert!(matches!(error, HostYardError::File(SharedFileError::NameInUse(_))), "{error}");
}
