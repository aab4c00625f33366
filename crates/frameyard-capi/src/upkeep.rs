//! Policy, drains, compaction and validation.

use std::ffi::{CStr, CString, c_char};

use frameyard::owners::Owners;
use frameyard::policy::ZonePolicy;
use frameyard::{CpuId, NodeId};

use crate::alloc::node_of;
use crate::create::policy_of;
use crate::error::{FY_NO_NODE, fy_error};
use crate::failure::Failure;
use crate::handle::{call, call_for, fy_yard, place};
use crate::log::FY_LOG_INFO;
use crate::status::fy_status;
use crate::status::fy_status::FY_NO_SUCH_NODE;

/// The name of a policy. The text lives as long as the program.
fn name_of(policy: ZonePolicy) -> &'static CStr {
    static NAMES: std::sync::OnceLock<Vec<CString>> = std::sync::OnceLock::new();
    let names = NAMES
        .get_or_init(|| ZonePolicy::ALL.iter().map(|policy| CString::new(policy.name()).unwrap_or_default()).collect());
    let at = ZonePolicy::ALL.iter().position(|known| *known == policy);
    at.and_then(|at| names.get(at)).map_or(c"", CString::as_c_str)
}

/// The name of the policy with this index, or null behind the last one. The text lives as long as the program.
///
/// Thread safety: any thread, at any time.
#[unsafe(no_mangle)]
pub extern "C" fn fy_policy_name(index: u32) -> *const c_char {
    ZonePolicy::ALL.get(index as usize).map_or(std::ptr::null(), |policy| name_of(*policy).as_ptr())
}

/// Sets `*name` to the name of the policy in force. The text lives as long as the program.
///
/// Errors: `FY_NULL_POINTER`, `FY_PANICKED`. Thread safety: any thread. Cost: a load.
///
/// # Safety
///
/// See the crate's documentation, "Pointers".
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fy_yard_policy(
    yard: *const fy_yard,
    name: *mut *const c_char,
    error: *mut fy_error,
) -> fy_status {
    // SAFETY: passed on to the caller.
    unsafe { call_for(yard, (name, "name"), error, |yard| Ok(name_of(yard.policy()).as_ptr())) }
}

/// Changes the policy by which frames move between the lists of CPUs and zones, for all users of the yard.
///
/// Errors: `FY_UNKNOWN_POLICY`, `FY_NOT_SUPPORTED`, `FY_BUSY` (repeat the call), `FY_DAMAGED`, `FY_NULL_POINTER`, `FY_PANICKED`.
///
/// Thread safety: any thread, while other threads allocate and free. Cost: takes the lock of every CPU's lists once, and empties them.
///
/// # Safety
///
/// See the crate's documentation, "Pointers".
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fy_yard_set_policy(
    yard: *const fy_yard,
    name: *const c_char,
    error: *mut fy_error,
) -> fy_status {
    let work = |yard: &fy_yard| {
        place(name.cast_mut(), "name")?;
        // SAFETY: passed on to the caller.
        let policy = unsafe { policy_of(name)? };
        yard.set_policy(policy)?;
        yard.log().write(FY_LOG_INFO, format_args!("policy {policy}"));
        Ok(())
    };
    // SAFETY: passed on to the caller.
    unsafe { call(yard, error, work) }
}

/// Returns the frames on the lists of all CPUs to their zones, where they merge.
///
/// Errors: `FY_NULL_POINTER`, `FY_PANICKED`. Thread safety: any thread. Cost: takes the lock of each CPU's lists in each zone, and zone
/// locks.
///
/// # Safety
///
/// See the crate's documentation, "Pointers".
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fy_yard_drain(yard: *const fy_yard, error: *mut fy_error) -> fy_status {
    let work = |yard: &fy_yard| {
        yard.drain_all();
        Ok(())
    };
    // SAFETY: passed on to the caller.
    unsafe { call(yard, error, work) }
}

/// Returns the frames on the lists of one CPU to their zones. A CPU that the yard does not have is drained already.
///
/// Errors: `FY_NULL_POINTER`, `FY_PANICKED`. Thread safety: any thread. Cost: takes the locks of one CPU's lists, and zone locks.
///
/// # Safety
///
/// See the crate's documentation, "Pointers".
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fy_yard_drain_cpu(yard: *const fy_yard, cpu: u32, error: *mut fy_error) -> fy_status {
    let work = |yard: &fy_yard| {
        yard.lists().drain_cpu(CpuId(cpu));
        Ok(())
    };
    // SAFETY: passed on to the caller.
    unsafe { call(yard, error, work) }
}

/// Compacts the zones of a node, or of all nodes for `FY_NO_NODE`: merges what the policy keeps apart. Blocks in use stay in place,
/// since a C program has no owners that could move them.
///
/// Errors: `FY_NO_SUCH_NODE`, `FY_NULL_POINTER`, `FY_PANICKED`. Thread safety: any thread. Cost: reads the page structure of each block.
///
/// # Safety
///
/// See the crate's documentation, "Pointers".
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fy_yard_compact(yard: *const fy_yard, node: u32, error: *mut fy_error) -> fy_status {
    let work = |yard: &fy_yard| {
        let wanted = if node == FY_NO_NODE { None } else { Some(node_of(node)?) };
        if wanted.is_some_and(|node| node.0 >= yard.nodes()) {
            return Err(Failure::other(FY_NO_SUCH_NODE, format_args!("node {node} does not exist")));
        }
        for node in (0..yard.nodes()).map(NodeId).filter(|node| wanted.is_none_or(|wanted| wanted == *node)) {
            yard.compaction().node(node, &Owners::NONE);
        }
        Ok(())
    };
    // SAFETY: passed on to the caller.
    unsafe { call(yard, error, work) }
}

/// Checks every equation that must hold between the structures of the yard.
///
/// Errors: `FY_INVALID` with a message that names the first one that does not hold, `FY_DAMAGED`, `FY_NULL_POINTER`, `FY_PANICKED`.
///
/// Thread safety: no other thread may use the yard meanwhile, or the result means nothing. Cost: reads the whole memory map.
///
/// # Safety
///
/// See the crate's documentation, "Pointers".
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fy_yard_validate(yard: *const fy_yard, error: *mut fy_error) -> fy_status {
    // SAFETY: passed on to the caller.
    unsafe { call(yard, error, |yard| Ok(yard.validate()?)) }
}
