//! The CPU that runs the calling thread, and the CPUs that may run it.
//!
//! These calls go to the C library. Its `sched_getcpu` reads the thread's `rseq` area, which is faster than the vDSO,
//! and its affinity masks have any length. Those of `rustix` end at 1024 CPUs.

use std::ffi::CStr;
use std::io;
use std::num::NonZeroIsize;

use super::check;

/// Where the C library keeps a thread's `rseq` area. The kernel writes the number of the thread's CPU there.
///
/// glibc registers an area for each thread since 2.35 and exports two symbols that tell where it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct RseqCpu {
    /// Offset of the `cpu_id` field from the thread pointer. Never 0, since the thread pointer points to itself there.
    cpu_id_offset: NonZeroIsize,
}

impl RseqCpu {
    /// The offset of `cpu_id` in `struct rseq`.
    const CPU_ID: isize = 4;

    /// Looks the area up. `None` if the C library registers none, or the architecture has no path here.
    pub(crate) fn registered() -> Option<Self> {
        if !cfg!(all(target_os = "linux", target_env = "gnu", target_arch = "x86_64")) {
            return None;
        }
        let offset = symbol::<isize>(c"__rseq_offset")?;
        let size = symbol::<u32>(c"__rseq_size")?;
        // Under valgrind the kernel's part is missing, and a program that counts instructions plays it.
        if size < 8 && !cfg!(frameyard_counted) {
            return None;
        }
        Some(Self { cpu_id_offset: NonZeroIsize::new(offset + Self::CPU_ID)? })
    }

    /// The offset of the CPU number from the thread pointer.
    #[inline(always)]
    pub(crate) fn offset(self) -> isize {
        self.cpu_id_offset.get()
    }

    /// The CPU that runs the caller. Negative if the kernel does not maintain the field, as under valgrind.
    #[inline(always)]
    pub(crate) fn cpu_id(self) -> i32 {
        #[cfg(target_arch = "x86_64")]
        {
            let cpu: i32;
            // SAFETY: `registered` has found the area. The C library places one at the same distance from the thread
            // pointer of every thread, registered or not. The instruction is one load from it.
            unsafe {
                core::arch::asm!(
                    "mov {cpu:e}, dword ptr fs:[{offset}]",
                    cpu = lateout(reg) cpu,
                    offset = in(reg) self.cpu_id_offset.get(),
                    options(nostack, preserves_flags, readonly),
                );
            }
            cpu
        }
        #[cfg(not(target_arch = "x86_64"))]
        {
            let _ = self.cpu_id_offset;
            -1
        }
    }
}

/// The value of a constant that the C library exports; `None` if it exports none of that name.
fn symbol<T: Copy>(name: &CStr) -> Option<T> {
    // SAFETY: the name is a C string. Looking a symbol up runs no code of the library that defines it.
    let address = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    if address.is_null() {
        return None;
    }
    // SAFETY: the callers name constants of glibc and give the types of its header <sys/rseq.h>.
    Some(unsafe { address.cast::<T>().read() })
}

/// The CPU that runs the caller, from the C library.
pub(crate) fn getcpu() -> u32 {
    // SAFETY: the call takes nothing and touches no memory of ours.
    let cpu = unsafe { libc::sched_getcpu() };
    // It fails only on kernels without the call. Any CPU is a valid answer there.
    u32::try_from(cpu).unwrap_or(0)
}

/// The CPUs that the calling thread may run on, ascending.
pub(crate) fn affinity() -> io::Result<Vec<u32>> {
    let mut words = 16;
    loop {
        let mut mask = vec![0u64; words];
        // SAFETY: the mask is as long as stated, and the kernel writes no more than that.
        let result = check(unsafe { libc::sched_getaffinity(0, words * 8, mask.as_mut_ptr().cast()) });
        match result {
            Ok(()) => {
                let bits = (0..words as u32 * 64).filter(|bit| mask[*bit as usize / 64] >> (bit % 64) & 1 != 0);
                return Ok(bits.collect());
            }
            // The mask is shorter than the kernel's.
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) && words < 1 << 14 => words *= 2,
            Err(error) => return Err(error),
        }
    }
}

/// Restricts the calling thread to these CPUs.
pub(crate) fn set_affinity(cpus: impl Iterator<Item = u32> + Clone) -> io::Result<()> {
    let words = cpus.clone().max().map_or(1, |cpu| cpu as usize / 64 + 1);
    let mut mask = vec![0u64; words];
    for cpu in cpus {
        mask[cpu as usize / 64] |= 1 << (cpu % 64);
    }
    // SAFETY: the mask is as long as stated, and the kernel only reads it.
    check(unsafe { libc::sched_setaffinity(0, words * 8, mask.as_ptr().cast()) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_narrowed_affinity_reads_back() {
        std::thread::spawn(|| {
            let allowed = affinity().unwrap();
            let last = *allowed.last().unwrap();
            set_affinity([last].into_iter()).unwrap();
            assert_eq!(affinity().unwrap(), [last]);
            assert_eq!(getcpu(), last);
            if let Some(rseq) = RseqCpu::registered()
                && rseq.cpu_id() >= 0
            {
                assert_eq!(rseq.cpu_id(), last as i32);
            }
        })
        .join()
        .unwrap();
    }

    #[test]
    fn an_empty_affinity_is_refused() {
        assert!(set_affinity(std::iter::empty()).is_err());
    }

    #[test]
    fn an_unknown_symbol_has_no_value() {
        assert_eq!(symbol::<u32>(c"__frameyard_has_no_such_symbol"), None);
    }
}
