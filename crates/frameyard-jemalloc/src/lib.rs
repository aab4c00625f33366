#![doc = include_str!("../README.md")]
#![cfg(target_os = "linux")]

mod current;
mod extents;
mod forking;
mod gate;
mod heap;
mod hooks;
mod install;
mod mallctl;
mod nodes;
mod purge;
mod settings;
mod summary;
pub mod thread_state;

#[doc(no_inline)]
pub use frameyard::NodeId;
pub use frameyard::policy::ZonePolicy;
#[doc(no_inline)]
pub use frameyard_host::{Budget, BudgetShare, ByteSize, HostYard};

pub use heap::Heap;
pub use hooks::is_in_hook;
pub use install::{HeapYard, InstallError, install, install_in, installed, make_hooks};
pub use purge::{or_purge, purge};
pub use settings::{Settings, SettingsError};
pub use summary::HeapSummary;
/// jemalloc's own functions, with the prefix `_rjem_` in the object code.
pub use tikv_jemalloc_sys as jemalloc;
