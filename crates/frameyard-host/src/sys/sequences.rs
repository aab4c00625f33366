//! Restartable sequences of Linux (rseq): a few instructions of a thread that take effect only if nothing else ran on its CPU meanwhile.
//!
//! A sequence is a run of instructions that ends with one store. If the thread is preempted, moved or gets a signal before that store,
//! the kernel continues it at the sequence's abort address instead, and the sequence had no effect. So a sequence that reaches its store
//! was alone on its CPU from the first instruction on. Each sequence here leaves with a failure when it is aborted: the caller takes a
//! slow path, so a thread that is interrupted again and again still comes to an end.
//!
//! The instructions are those of [`OwnList`], on the addresses that it names.
//!
//! glibc registers an area of each thread with the kernel. The thread names the sequence there that it is about to enter. The name
//! stays when the sequence is over, so the code must stay mapped: a library with this code is linked with `-z nodelete`.

use std::io;
use std::sync::OnceLock;

use frameyard::CpuId;
use frameyard::platform::{OwnList, Popped};

use super::check;
use super::cpu::RseqCpu;
use super::fork::{self, Hook, OtherThreads};

/// Proof that the kernel restarts sequences of this process, and ends them on request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Sequences {
    area: RseqCpu,
}

/// Whether this process is registered for [`Sequences::end_on`].
static REGISTERED: OnceLock<bool> = OnceLock::new();

/// Commands and flags of `membarrier` from the kernel's interface.
const REGISTER_PRIVATE_EXPEDITED_RSEQ: i32 = 1 << 8;
const PRIVATE_EXPEDITED_RSEQ: i32 = 1 << 7;
const FLAG_CPU: u32 = 1;

fn membarrier(command: i32, flags: u32, cpu: i32) -> io::Result<()> {
    // SAFETY: the call takes three numbers and touches no memory of ours.
    check(unsafe { libc::syscall(libc::SYS_membarrier, command, flags, cpu) } as i32)
}

static HOOK: Hook = fork::in_child(register_again);

/// Registers a forked child as its parent is registered. Linux copies the registration.
fn register_again(others: OtherThreads) {
    if others == OtherThreads::AreGone {
        // If this fails, the sequences of other CPUs cannot be ended, and calls that need that say so.
        let _ = membarrier(REGISTER_PRIVATE_EXPEDITED_RSEQ, 0, 0);
    }
}

impl Sequences {
    /// Registers this process, once. `None` if the kernel lacks the call (before 5.10) or forbids it, or the C library registers no
    /// areas.
    pub(crate) fn registered() -> Option<Self> {
        let area = RseqCpu::registered().filter(|area| area.cpu_id() >= 0 && cfg!(target_arch = "x86_64"))?;
        let is_registered = || {
            let is_there = membarrier(REGISTER_PRIVATE_EXPEDITED_RSEQ, 0, 0).is_ok();
            is_there && fork::add(&HOOK).is_ok() && membarrier(PRIVATE_EXPEDITED_RSEQ, FLAG_CPU, area.cpu_id()).is_ok()
        };
        REGISTERED.get_or_init(is_registered).then_some(Self { area })
    }

    /// The CPU that runs the caller; the largest number for a thread without an area.
    #[inline(always)]
    pub(crate) fn cpu(self) -> CpuId {
        CpuId(self.area.cpu_id() as u32)
    }

    /// Restarts all sequences of this process that are in progress on a CPU, or on any if none is named, with a barrier on both sides.
    /// The kernel interrupts CPUs that run a thread of this process. The sequences of threads that are not running are aborted in any
    /// case.
    pub(crate) fn end_on(self, cpu: Option<CpuId>) -> io::Result<()> {
        match cpu {
            Some(cpu) => membarrier(PRIVATE_EXPEDITED_RSEQ, FLAG_CPU, cpu.0 as i32),
            None => membarrier(PRIVATE_EXPEDITED_RSEQ, 0, 0),
        }
    }
}

/// A sequence: `$body` runs from the named area on, `$commit` is its last instruction. At label 5 the sequence fails; label 6 is behind
/// it. Operands: `area` is the offset of the area's CPU number, `scratch` a register.
#[cfg(target_arch = "x86_64")]
macro_rules! sequence {
    ([$($body:literal),* $(,)?], $commit:literal, $on_failure:literal, $($operands:tt)*) => {
        core::arch::asm!(
            // The descriptor: version, flags, start, length, abort address.
            ".pushsection __rseq_cs, \"aw\"",
            ".balign 32",
            "2:",
            ".long 0, 0",
            ".quad 3f, 4f - 3f, 7f",
            ".popsection",
            // The name of the sequence goes into the area, 4 bytes behind the CPU number.
            "lea r10, [rip + 2b]",
            "mov qword ptr fs:[{area} + 4], r10",
            "3:",
            "cmp dword ptr fs:[{area}], {cpu:e}",
            "jne 5f",
            "cmp qword ptr [{owners}], 0",
            "jne 5f",
            $($body,)*
            $commit,
            "4:",
            ".pushsection .text.unlikely, \"ax\"",
            // The signature in front of the abort address, which the kernel checks, inside an instruction that traps.
            ".byte 0x0f, 0xb9, 0x3d",
            ".long 0x53053053",
            "7:",
            "5:",
            $on_failure,
            "jmp 6f",
            ".popsection",
            "6:",
            $($operands)*
        )
    };
}

#[cfg(target_arch = "x86_64")]
impl Sequences {
    /// Takes the newest entry of a list of `cpu`. Nothing if there is none, the list is in use, the caller runs elsewhere, or was
    /// interrupted.
    #[inline(always)]
    pub(crate) fn pop(self, cpu: CpuId, list: OwnList<'_>) -> Popped {
        let entry: u64;
        // SAFETY: the area is registered. The list has 1 to 128 entries behind its word if its length is not 0, and nothing else on
        // this CPU changes it. Only the list's word is written, and the name of the sequence.
        unsafe {
            sequence!(
                [
                    "mov r10, qword ptr [{word}]",
                    "movzx {entry:e}, r10b",
                    "sub {entry:e}, 1",
                    "js 5f",
                    "mov {entry:e}, dword ptr [{word} + 4 * {entry} + {entries}]",
                    "dec r10",
                ],
                "mov qword ptr [{word}], r10",
                "mov {entry}, -1",
                area = in(reg) self.area.offset(),
                cpu = in(reg) cpu.0,
                owners = in(reg) list.owners(),
                word = in(reg) list.word(),
                entries = const OwnList::ENTRIES,
                entry = out(reg) entry,
                out("r10") _,
                options(nostack),
            );
        }
        Popped::from_register(entry)
    }

    /// Adds an entry to a list of `cpu`; whether it did: not in the same cases, and not if the list is at its limit.
    #[inline(always)]
    pub(crate) fn push(self, cpu: CpuId, list: OwnList<'_>, entry: u32) -> bool {
        // SAFETY: as in `pop`. The limit of a list is at most 128, the number of its slots, so the slot that is written exists.
        unsafe {
            sequence!(
                [
                    "mov r10, qword ptr [{word}]",
                    "movzx r11d, r10b",
                    "cmp r11b, byte ptr [{word} + 1]",
                    "jae 5f",
                    "add r10, {push}",
                    "jc 5f",
                    "mov dword ptr [{word} + 4 * r11 + {entries}], {entry:e}",
                ],
                "mov qword ptr [{word}], r10",
                "jmp {failed}",
                area = in(reg) self.area.offset(),
                cpu = in(reg) cpu.0,
                owners = in(reg) list.owners(),
                word = in(reg) list.word(),
                entries = const OwnList::ENTRIES,
                push = const OwnList::PUSH,
                entry = in(reg) entry,
                failed = label { return false },
                out("r10") _,
                out("r11") _,
                options(nostack),
            );
        }
        true
    }

    /// Takes all lists of `cpu`; whether it did: not if another thread has them, the caller runs elsewhere, or was interrupted.
    #[inline]
    pub(crate) fn take(self, cpu: CpuId, list: OwnList<'_>) -> bool {
        let failed: u32;
        // SAFETY: as in `pop`. Only the first owner word is written.
        unsafe {
            sequence!(
                ["xor {failed:e}, {failed:e}"],
                "mov dword ptr [{owners}], 1",
                "mov {failed:e}, 1",
                area = in(reg) self.area.offset(),
                cpu = in(reg) cpu.0,
                owners = in(reg) list.owners(),
                failed = out(reg) failed,
                out("r10") _,
                options(nostack),
            );
        }
        failed == 0
    }
}

#[cfg(not(target_arch = "x86_64"))]
impl Sequences {
    pub(crate) fn pop(self, _cpu: CpuId, _list: OwnList<'_>) -> Popped {
        Popped::NOTHING
    }

    pub(crate) fn push(self, _cpu: CpuId, _list: OwnList<'_>, _entry: u32) -> bool {
        false
    }

    pub(crate) fn take(self, _cpu: CpuId, _list: OwnList<'_>) -> bool {
        false
    }
}
