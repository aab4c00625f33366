//! Lines of the tracepoints that a program's demand follows from.
//!
//! ```text
//!   python3-7 [000] d.... 1.000001: page_fault_user: address=0x7f00 ip=0x7ff1 error_code=0x6
//!   python3-7 [000] ..... 1.000002: sys_mmap(addr: 0, len: 0x2000, prot: 3, flags: 0x22, fd: 0xffffffff, off: 0)
//!   python3-7 [000] ..... 1.000003: sys_mmap -> 0x7f581400d000
//! ```
//!
//! Numbers are hexadecimal, with or without `0x`: kernels differ.

use frameyard::CpuId;
use frameyard_formats::{BadTraceLine, RawTraceLine, TraceLine};

use super::super::pipes::{Line, PipeEvent};

/// The first address that is not a process's: with five-level page tables, the addresses of processes end there.
const KERNEL: u64 = 1 << 56;
/// The bit of a page fault's error code that a write sets.
const WRITE: u64 = 1 << 1;

/// An event of a task.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in super::super) struct CallEvent {
    pub(super) time_us: u64,
    /// The thread.
    pub(super) task: u32,
    pub(super) cpu: CpuId,
    pub(super) call: Call,
}

/// What a task did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in super::super) enum Call {
    Fault {
        address: u64,
        is_write: bool,
    },
    Mmap {
        length: u64,
        protection: u64,
        flags: u64,
    },
    Munmap {
        address: u64,
        length: u64,
    },
    Mremap {
        address: u64,
        old_length: u64,
        new_length: u64,
    },
    Madvise {
        address: u64,
        length: u64,
        advice: u64,
    },
    Brk,
    /// The call before returned.
    Returned(u64),
    Clone {
        child: u32,
        flags: u64,
    },
    Exec,
    Exit,
    Lost(u64),
}

/// A number of a field; kernels print addresses with and without `0x`.
fn hexadecimal(text: &str) -> Option<u64> {
    let digits = text.split_ascii_whitespace().next()?;
    u64::from_str_radix(digits.strip_prefix("0x").unwrap_or(digits), 16).ok()
}

/// The arguments of a call: `addr: 0, len: 0x2000`.
struct Arguments<'a>(&'a str);

impl Arguments<'_> {
    fn get(&self, at: usize) -> Result<u64, BadTraceLine> {
        let argument = self.0.split(", ").nth(at).and_then(|argument| argument.split_once(": "));
        argument.and_then(|(_, value)| hexadecimal(value)).ok_or(BadTraceLine::new("arguments of a system call"))
    }
}

/// The value of `name=value`.
fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.split_ascii_whitespace().find_map(|field| field.strip_prefix(name)?.strip_prefix('='))
}

impl Call {
    /// The call of an event's text; `None` for an event of another kind.
    fn parse(text: &str) -> Result<Option<Self>, BadTraceLine> {
        if let Some((_, value)) = text.split_once(" -> ").filter(|_| text.starts_with("sys_")) {
            return match hexadecimal(value) {
                Some(value) => Ok(Some(Self::Returned(value))),
                None => Err(BadTraceLine::new("the result of a system call")),
            };
        }
        if let Some((name, arguments)) = text.strip_suffix(')').and_then(|text| text.split_once('(')) {
            return Self::of_system_call(name, &Arguments(arguments));
        }
        let Some((name, fields)) = text.split_once(": ") else { return Ok(None) };
        Ok(match name {
            "page_fault_user" | "page_fault_kernel" => {
                let number = |name| field(fields, name).and_then(hexadecimal);
                let code = number("error_code").ok_or(BadTraceLine::new("error_code="))?;
                // A kernel's own address is printed as a symbol.
                let address = number("address").filter(|address| *address < KERNEL);
                address.map(|address| Self::Fault { address, is_write: code & WRITE != 0 })
            }
            "task_newtask" => {
                let child = field(fields, "pid").and_then(|pid| pid.parse().ok());
                let flags = field(fields, "clone_flags").and_then(hexadecimal);
                let (child, flags) = child.zip(flags).ok_or(BadTraceLine::new("pid= and clone_flags="))?;
                Some(Self::Clone { child, flags })
            }
            "sched_prepare_exec" | "sched_process_exec" => Some(Self::Exec),
            "sched_process_exit" => Some(Self::Exit),
            _ => None,
        })
    }

    fn of_system_call(name: &str, arguments: &Arguments<'_>) -> Result<Option<Self>, BadTraceLine> {
        let get = |at| arguments.get(at);
        Ok(Some(match name {
            "sys_mmap" => Self::Mmap { length: get(1)?, protection: get(2)?, flags: get(3)? },
            "sys_munmap" => Self::Munmap { address: get(0)?, length: get(1)? },
            "sys_mremap" => Self::Mremap { address: get(0)?, old_length: get(1)?, new_length: get(2)? },
            "sys_madvise" => Self::Madvise { address: get(0)?, length: get(1)?, advice: get(2)? },
            "sys_brk" => Self::Brk,
            _ => return Ok(None),
        }))
    }
}

impl PipeEvent for CallEvent {
    fn parse(line: &str) -> Result<Option<Line<Self>>, BadTraceLine> {
        if line.starts_with('#') || line.trim_ascii().is_empty() {
            return Ok(None);
        }
        if let Ok(TraceLine::Lost(events)) = TraceLine::parse(line) {
            return Ok(Some(Line::Lost(events)));
        }
        let RawTraceLine { time_us, pid, cpu, text } = RawTraceLine::parse(line)?;
        let call = Call::parse(text.trim_ascii_end())?;
        Ok(call.map(|call| Line::Event(Self { time_us, task: pid, cpu, call })))
    }

    fn lost(time_us: u64, cpu: CpuId, events: u64) -> Self {
        Self { time_us, task: 0, cpu, call: Call::Lost(events) }
    }

    fn time_us(&self) -> u64 {
        self.time_us
    }

    fn at(self, time_us: u64) -> Self {
        Self { time_us, ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(text: &str) -> Option<Call> {
        let line = format!("  a b-7   [001] d....  4843.252989: {text}");
        match CallEvent::parse(&line).unwrap() {
            Some(Line::Event(event)) => {
                assert_eq!((event.task, event.cpu, event.time_us), (7, CpuId(1), 4_843_252_989));
                Some(event.call)
            }
            _ => None,
        }
    }

    #[test]
    fn each_tracepoint_is_read() {
        let fault = |is_write| Some(Call::Fault { address: 0x55c9_fc71_2cc8, is_write });
        assert_eq!(call("page_fault_user: address=0x55c9fc712cc8 ip=0x7ff1f9ddf109 error_code=0x6"), fault(true));
        assert_eq!(call("page_fault_kernel: address=0x55c9fc712cc8 ip=_copy_to_user error_code=0x0"), fault(false));
        assert_eq!(call("page_fault_kernel: address=init_task ip=f error_code=0x2"), None);
        let mmap = Some(Call::Mmap { length: 0x2000, protection: 3, flags: 0x22 });
        assert_eq!(call("sys_mmap(addr: 0, len: 0x2000, prot: 3, flags: 0x22, fd: 0xffffffff, off: 0)"), mmap);
        assert_eq!(call("sys_mmap(addr: 0, len: 2000, prot: 3, flags: 22, fd: ffffffff, off: 0)"), mmap);
        assert_eq!(call("sys_mmap -> 0x7f581400d000"), Some(Call::Returned(0x7f58_1400_d000)));
        assert_eq!(
            call("sys_munmap(addr: 0x5000, len: 0x957b)"),
            Some(Call::Munmap { address: 0x5000, length: 0x957b })
        );
        let mremap = Call::Mremap { address: 0x1000, old_length: 0x2000, new_length: 0x3000 };
        assert_eq!(
            call("sys_mremap(addr: 0x1000, old_len: 0x2000, new_len: 0x3000, flags: 1, new_addr: 0)"),
            Some(mremap)
        );
        let madvise = Call::Madvise { address: 0x1000, length: 0x2000, advice: 4 };
        assert_eq!(call("sys_madvise(start: 0x1000, len_in: 0x2000, behavior: 4)"), Some(madvise));
        assert_eq!(call("sys_brk(brk: 0x555aa6cbd000)"), Some(Call::Brk));
        let newtask = "task_newtask: pid=8 comm=a pid=1 b clone_flags=3d0f00 oom_score_adj=0";
        assert_eq!(call(newtask), Some(Call::Clone { child: 8, flags: 0x3d_0f00 }));
        assert_eq!(call("sched_prepare_exec: interp=/bin/a filename=/bin/a pid=7 comm=sh"), Some(Call::Exec));
        assert_eq!(call("sched_process_exit: comm=a pid=7 prio=120 group_dead=true"), Some(Call::Exit));
        assert_eq!((call("sched_switch: prev_comm=x"), call("sys_read(fd: 3)")), (None, None));
    }

    #[test]
    fn comments_and_lost_events_are_no_errors_and_bad_lines_are() {
        assert!(matches!(CallEvent::parse("# tracer: nop"), Ok(None)));
        assert!(matches!(CallEvent::parse("CPU:1 [LOST 37 EVENTS]"), Ok(Some(Line::Lost(37)))));
        assert!(CallEvent::parse("nonsense").is_err());
        assert!(CallEvent::parse("  a-7 [001] ..... 1.000001: sys_mmap(addr: 0)").is_err());
    }
}
