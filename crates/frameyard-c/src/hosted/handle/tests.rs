use std::ffi::{CStr, c_char, c_void};
use std::sync::Mutex;
use std::sync::atomic::AtomicU64;

use crate::shared::fy_status::FY_PANICKED;
use crate::shared::{FY_GFP_KERNEL, FY_LOG_ERROR, FY_NO_FRAME, call};
use frameyard::boot::{MemoryTable, Poisoning};
use frameyard::{NodeId, Order, PageCount, Pfn, PfnRange, YardConfig};
use frameyard_host::{ByteSize, HostTopology};
use frameyard_vm::VmConfig;

use super::*;
use crate::hosted::fy_alloc;

static LOGGED: Mutex<Vec<(u32, String)>> = Mutex::new(Vec::new());

unsafe extern "C" fn note(_context: *mut c_void, level: u32, text: *const c_char) {
    // SAFETY: the library passes a text.
    let text = unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned();
    LOGGED.lock().unwrap().push((level, text));
}

fn message(error: &fy_error) -> String {
    let bytes = error.message.map(|byte| byte as u8);
    CStr::from_bytes_until_nul(&bytes).unwrap().to_str().unwrap().to_owned()
}

#[test]
fn a_panic_is_an_error_and_ends_the_use_of_the_yard() {
    // SAFETY: the function suits any thread and context.
    let log = unsafe { Log::to(Some(note), std::ptr::null_mut()) };
    let yard = fy_yard::new(HostYard::with_memory(ByteSize::mib(4)).unwrap(), log);
    let (mut error, mut frame) = (fy_error::new(), 0);
    // SAFETY: a handle and an error of this test.
    let status = unsafe { call(&raw const yard, &raw mut error, |_| panic!("a planted failure")) };
    assert_eq!(status, FY_PANICKED);
    assert_eq!(error.status, FY_PANICKED as i32);
    assert_eq!(message(&error), "the library failed: a planted failure");
    assert_eq!(*LOGGED.lock().unwrap(), [(FY_LOG_ERROR, "the library failed: a planted failure".to_owned())]);
    // SAFETY: as above.
    let status = unsafe { fy_alloc(&raw const yard, 0, FY_GFP_KERNEL, &raw mut frame, &raw mut error) };
    assert_eq!(status, FY_PANICKED);
    assert_eq!(message(&error), "an earlier call failed inside the library: destroy the yard");
    assert_eq!((frame, error.frame), (0, FY_NO_FRAME));
}

#[test]
fn a_panic_without_a_yard_is_an_error() {
    let mut error = fy_error::new();
    // SAFETY: an error of this test.
    let status = unsafe { call_without_yard(&raw mut error, || panic!("{} failure", "another")) };
    assert_eq!(status, FY_PANICKED);
    assert_eq!(message(&error), "the library failed: another failure");
}

#[test]
fn a_null_handle_is_an_error() {
    let mut error = fy_error::new();
    // SAFETY: null is allowed.
    let status = unsafe { call(std::ptr::null::<fy_yard>(), &raw mut error, |_| Ok(())) };
    assert_eq!(status, fy_status::FY_NULL_POINTER);
    assert_eq!(message(&error), "yard is null");
}

/// C makes no such yard: this one checks free frames.
#[test]
fn a_write_to_a_free_frame_is_an_error_of_its_allocation() {
    let host = HostTopology::current().expect("the host describes itself");
    let memory = [(PfnRange::new(Pfn(0x10_0000), PageCount(1024)), NodeId(0))];
    let config = YardConfig { poisoning: Poisoning::On, ..YardConfig::new(&[NodeId(0)]) };
    let memory = MemoryTable { memory: &memory, ..MemoryTable::default() };
    let yard = HostYard::builder().machine(&memory, &config).host(&host).build().expect("the host has the memory");
    let yard = fy_yard::new(yard, Log::NONE);
    let allocate = |error: &mut fy_error| {
        let mut frame = 0;
        // SAFETY: a handle and variables of this test.
        let status = unsafe { fy_alloc(&raw const yard, 9, FY_GFP_KERNEL, &raw mut frame, error) };
        (status, frame)
    };
    let mut error = fy_error::new();
    let (status, frame) = allocate(&mut error);
    assert_eq!(status, fy_status::FY_OK);
    yard.free(Pfn(frame), Order(9)).expect("it is allocated");
    let written = yard.platform().frame_bytes(Pfn(frame + 3)).expect("frames have bytes");
    // SAFETY: the frame is mapped, and no other thread uses the yard.
    unsafe { written.write(1) };
    let found = std::iter::repeat_with(|| allocate(&mut error).0).find(|status| *status != fy_status::FY_OK);
    assert_eq!(found, Some(fy_status::FY_WRITTEN_WHILE_FREE));
    assert_eq!((error.status, error.frame), (fy_status::FY_WRITTEN_WHILE_FREE as i32, frame + 3));
}

#[test]
fn validation_reports_damage_of_address_spaces() {
    let yard = HostYard::with_memory(ByteSize::mib(16)).expect("the host has the memory");
    let handle = fy_yard::new(yard, Log::NONE);
    handle.validate().expect("no space has been made");
    Vm::create(handle.yard.core(), &VmConfig::default()).expect("there is memory");
    handle.validate().expect("there is no damage");
    let root = handle.yard.core().counted().anchor().expect("spaces have a root");
    let words = handle.yard.platform().frame_bytes(root).expect("frames have bytes").cast::<AtomicU64>();
    let is_damaged = || matches!(Vm::attach(handle.yard.core()), Err(VmError::Damaged(_)));
    // One of the words notes the first damage.
    let noted = (0..512).any(|at| {
        // SAFETY: a frame has 512 words. All code accesses those of a root as atomics, and checks them.
        let word = unsafe { words.add(at).as_ref() };
        let before = word.swap(1, Ordering::Relaxed);
        is_damaged() || {
            word.store(before, Ordering::Relaxed);
            false
        }
    });
    assert!(noted);
    assert_eq!(handle.validate().map_err(|failure| failure.status()), Err(fy_status::FY_DAMAGED));
}
