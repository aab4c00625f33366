//! System calls and processor instructions. Nearly all `unsafe` code of this crate is here; the rest is in `mapped`.
//!
//! Its types and functions are safe to use unless they are marked `unsafe`. System calls go through [`rustix`]; the
//! few that it lacks go through `libc`.
//!
//! | module | contents |
//! |---|---|
//! | `mapping`, `window`, `bytes` | ranges of addresses, and access to what is mapped there |
//! | `descriptor`, `futex`, `membarrier`, `io_ring` | memory files, waiting on shared words, barriers, registered buffers |
//! | `fork`, `private_yards` | handlers for `fork`: private yards go on in the child |
//! | `lock` | mutexes that are free in forked children |
//! | `own_file` | open files that forked children do not keep, with locks on bytes |
//! | `cpu`, `counter`, `usage` | the CPU of a thread, the time-stamp counter, processor time |
//! | `map_rates` | streaming stores |

pub(crate) mod bytes;
pub(crate) mod counter;
pub(crate) mod cpu;
pub(crate) mod descriptor;
pub(crate) mod fork;
pub(crate) mod futex;
pub(crate) mod io_ring;
pub(crate) mod lock;
pub(crate) mod map_rates;
pub(crate) mod mapping;
pub(crate) mod membarrier;
pub(crate) mod own_file;
pub(crate) mod private_yards;
pub(crate) mod sequences;
pub(crate) mod usage;
pub(crate) mod window;

/// The page size of the host in bytes.
pub(crate) fn host_page_size() -> usize {
    rustix::param::page_size()
}

/// Turns the `-1` of a C function into the error of the calling thread.
fn check(result: impl Into<i64>) -> std::io::Result<()> {
    if result.into() == -1 { Err(std::io::Error::last_os_error()) } else { Ok(()) }
}
