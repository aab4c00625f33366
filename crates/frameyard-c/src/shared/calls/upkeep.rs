//! Policy, drains, compaction and validation.

use core::ffi::{CStr, c_char};

use frameyard::owners::Owners;
use frameyard::policy::ZonePolicy;
use frameyard::{CpuId, NodeId};

use super::alloc::node_of;
use crate::shared::error::{FY_NO_NODE, fy_error};
use crate::shared::fault::Failure;
use crate::shared::handle::{FY_LOG_INFO, Handle, call, call_for, call_with, place};
use crate::shared::status::fy_status;

/// The most bytes of a policy's name, with a byte 0.
const NAME_BYTES: usize = 32;

/// The names of all policies, each with a byte 0 at its end.
static NAMES: [[u8; NAME_BYTES]; ZonePolicy::ALL.len()] = {
    let mut names = [[0; NAME_BYTES]; ZonePolicy::ALL.len()];
    let mut at = 0;
    while at < names.len() {
        let name = ZonePolicy::ALL[at].name().as_bytes();
        assert!(name.len() < NAME_BYTES);
        let mut byte = 0;
        while byte < name.len() {
            names[at][byte] = name[byte];
            byte += 1;
        }
        at += 1;
    }
    names
};

/// The name of a policy. The text lives as long as the program.
fn name_of(policy: ZonePolicy) -> *const c_char {
    let at = ZonePolicy::ALL.iter().position(|known| *known == policy);
    at.and_then(|at| NAMES.get(at)).map_or(c"".as_ptr(), |name| name.as_ptr().cast())
}

/// The policy of a name.
///
/// # Errors
///
/// [`Failure::Null`], [`Failure::UnknownPolicy`].
///
/// # Safety
///
/// `name` is null or a string.
pub unsafe fn policy_of(name: *const c_char) -> Result<ZonePolicy, Failure> {
    place(name.cast_mut(), "name")?;
    // SAFETY: passed on to the caller.
    let name = unsafe { CStr::from_ptr(name) };
    // No policy has a name that is not text.
    Ok(name.to_str().unwrap_or_default().parse::<ZonePolicy>()?)
}

/// The name of the policy with this index, or null behind the last one. The text lives as long as the program.
///
/// Thread safety: any thread, at any time.
#[unsafe(no_mangle)]
pub extern "C" fn fy_policy_name(index: u32) -> *const c_char {
    ZonePolicy::ALL.get(index as usize).map_or(core::ptr::null(), |policy| name_of(*policy))
}

/// `fy_yard_policy`.
///
/// # Safety
///
/// See the crate's documentation, "Pointers".
#[inline(always)]
pub unsafe fn yard_policy<Y: Handle>(yard: *const Y, name: *mut *const c_char, error: *mut fy_error) -> fy_status {
    // SAFETY: passed on to the caller.
    unsafe { call_for(yard, (name, "name"), error, |yard: &Y| Ok(name_of(yard.yard().policy()))) }
}

/// `fy_yard_set_policy`.
///
/// # Safety
///
/// See the crate's documentation, "Pointers".
#[inline(always)]
pub unsafe fn yard_set_policy<Y: Handle>(yard: *const Y, name: *const c_char, error: *mut fy_error) -> fy_status {
    let work = |yard: &Y| {
        // SAFETY: passed on to the caller.
        let policy = unsafe { policy_of(name)? };
        yard.yard().set_policy(policy)?;
        yard.log(FY_LOG_INFO, format_args!("policy {policy}"));
        Ok(())
    };
    // SAFETY: passed on to the caller.
    unsafe { call(yard, error, work) }
}

/// `fy_yard_drain`.
///
/// # Safety
///
/// See the crate's documentation, "Pointers".
#[inline(always)]
pub unsafe fn yard_drain<Y: Handle>(yard: *const Y, error: *mut fy_error) -> fy_status {
    let work = |yard: &Y| {
        yard.yard().drain_all();
        Ok(())
    };
    // SAFETY: passed on to the caller.
    unsafe { call(yard, error, work) }
}

/// `fy_yard_drain_cpu`.
///
/// # Safety
///
/// See the crate's documentation, "Pointers".
#[inline(always)]
pub unsafe fn yard_drain_cpu<Y: Handle>(yard: *const Y, cpu: u32, error: *mut fy_error) -> fy_status {
    let work = |yard: &Y| {
        yard.yard().lists().drain_cpu(CpuId(cpu));
        Ok(())
    };
    // SAFETY: passed on to the caller.
    unsafe { call(yard, error, work) }
}

/// `fy_yard_compact`.
///
/// # Safety
///
/// See the crate's documentation, "Pointers".
#[inline(always)]
pub unsafe fn yard_compact<Y: Handle>(yard: *const Y, node: u32, error: *mut fy_error) -> fy_status {
    let work = |handle: &Y| {
        let yard = handle.yard();
        let wanted = if node == FY_NO_NODE { None } else { Some(node_of(node)?) };
        if wanted.is_some_and(|node| node.0 >= yard.nodes()) {
            return Err(Failure::Node(node));
        }
        handle.with_owners(|owners| {
            for node in (0..yard.nodes()).map(NodeId).filter(|node| wanted.is_none_or(|wanted| wanted == *node)) {
                yard.compaction().node(node, owners.unwrap_or(&Owners::NONE));
            }
        });
        Ok(())
    };
    // SAFETY: passed on to the caller.
    unsafe { call(yard, error, work) }
}

/// `fy_yard_validate`.
///
/// # Safety
///
/// See the crate's documentation, "Pointers".
#[inline(always)]
pub unsafe fn yard_validate<Y: Handle>(yard: *const Y, error: *mut fy_error) -> fy_status {
    // SAFETY: passed on to the caller.
    unsafe { call_with(yard, error, |yard: &Y| yard.validate()) }
}
