//! A tracefs instance of its own: other tracing goes on undisturbed, and removing the instance restores everything.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use frameyard::CpuId;
use rustix::fs::OFlags;
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};

use super::sources::{Subject, Tracepoints};
use crate::Failure;

/// Where tracefs usually is.
const USUAL: [&str; 2] = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];
/// Kilobytes of each CPU's buffer: some 500,000 events.
const BUFFER_KB: u32 = 32 << 10;

/// A mounted tracefs.
struct Tracefs {
    root: PathBuf,
    /// Whether it was mounted for this recording.
    is_own: bool,
}

impl Tracefs {
    /// Finds tracefs, or mounts it in a directory of its own.
    fn open() -> Result<Self, Failure> {
        if !rustix::process::geteuid().is_root() {
            return Err(Failure::run_time("trace record needs root: only root may read the kernel's tracepoints"));
        }
        let mounted = USUAL.iter().map(Path::new).find(|root| root.join("instances").is_dir());
        if let Some(root) = mounted {
            return Ok(Self { root: root.to_owned(), is_own: false });
        }
        let root = std::env::temp_dir().join(format!("frameyard-tracefs-{}", std::process::id()));
        let failed = |error: io::Error| {
            Failure::run_time(format!("tracefs is not mounted at {} and cannot be mounted: {error}", USUAL[0]))
        };
        fs::create_dir(&root).map_err(failed)?;
        // From here on, dropping it removes the directory.
        let own = Self { root, is_own: true };
        mount("tracefs", &own.root, "tracefs", MountFlags::empty(), None).map_err(|error| failed(error.into()))?;
        Ok(own)
    }
}

impl Drop for Tracefs {
    fn drop(&mut self) {
        if self.is_own {
            let _ = unmount(&self.root, UnmountFlags::DETACH);
            let _ = fs::remove_dir(&self.root);
        }
    }
}

/// An instance with buffers, tracepoints and options of its own. Dropping it removes it.
pub(super) struct Instance {
    path: PathBuf,
    /// Dropped after the instance is removed.
    _tracefs: Tracefs,
}

impl Instance {
    /// Creates an instance that does not trace yet.
    ///
    /// # Errors
    ///
    /// [`Failure::RunTime`] names what is missing: root, tracefs, or a file of it.
    pub(super) fn create() -> Result<Self, Failure> {
        let tracefs = Tracefs::open()?;
        let path = tracefs.root.join("instances").join(format!("frameyard-{}", std::process::id()));
        fs::create_dir(&path).map_err(|error| failure(&path, &error))?;
        let instance = Self { path, _tracefs: tracefs };
        instance.set("tracing_on", "0")?;
        // The clock that is the same on all CPUs.
        instance.set("trace_clock", "mono")?;
        instance.set("buffer_size_kb", &BUFFER_KB.to_string())?;
        Ok(instance)
    }

    /// Traces only this process and those that it starts from now on.
    pub(super) fn follow(&self, process: u32) -> Result<(), Failure> {
        self.set("options/event-fork", "1")?;
        self.set("set_event_pid", &process.to_string())
    }

    /// Starts tracing.
    ///
    /// # Errors
    ///
    /// [`Failure::RunTime`] that names a tracepoint which the kernel lacks.
    pub(super) fn start(&self, subject: Subject) -> Result<(), Failure> {
        let has = |name: &&str| self.path.join("events").join(name).exists();
        for tracepoints in subject.tracepoints() {
            match *tracepoints {
                Tracepoints::Needed(names) => names.iter().try_for_each(|name| self.enable(name))?,
                Tracepoints::Wanted(names) => {
                    names.iter().copied().filter(has).try_for_each(|name| self.enable(name))?;
                }
                Tracepoints::OneOf(names) => {
                    self.enable(names.iter().copied().find(has).unwrap_or(names[0]))?;
                }
            }
        }
        self.set("tracing_on", "1")
    }

    fn enable(&self, tracepoint: &str) -> Result<(), Failure> {
        match self.set(&format!("events/{tracepoint}/enable"), "1") {
            Err(_) if !self.path.join("events").join(tracepoint).exists() => Err(Failure::run_time(format!(
                "this kernel has no tracepoint {tracepoint}: kmem needs CONFIG_TRACEPOINTS, syscalls need CONFIG_FTRACE_SYSCALLS, and \
                 exceptions are those of x86"
            ))),
            result => result,
        }
    }

    /// Stops tracing. What was traced can still be read.
    pub(super) fn stop(&self) -> Result<(), Failure> {
        self.set("tracing_on", "0")
    }

    /// The events of each CPU as text. Reading takes them out of the buffer, and fails with [`io::ErrorKind::WouldBlock`] where there
    /// is none.
    pub(super) fn pipes(&self) -> Result<Vec<(CpuId, File)>, Failure> {
        let cpus = self.path.join("per_cpu");
        let mut pipes = Vec::new();
        for entry in fs::read_dir(&cpus).map_err(|error| failure(&cpus, &error))? {
            let entry = entry.map_err(|error| failure(&cpus, &error))?;
            let name = entry.file_name();
            let cpu = name.to_str().and_then(|name| name.strip_prefix("cpu")?.parse().ok());
            let Some(cpu) = cpu.map(CpuId) else { continue };
            let path = entry.path().join("trace_pipe");
            let nonblocking = OFlags::NONBLOCK.bits().cast_signed();
            let pipe = File::options().read(true).custom_flags(nonblocking).open(&path);
            pipes.push((cpu, pipe.map_err(|error| failure(&path, &error))?));
        }
        pipes.sort_by_key(|(cpu, _)| *cpu);
        Ok(pipes)
    }

    /// The time of the trace's clock, in µs.
    pub(super) fn now_us(&self) -> Result<u64, Failure> {
        let path = self.path.join("per_cpu/cpu0/stats");
        let stats = fs::read_to_string(&path).map_err(|error| failure(&path, &error))?;
        now_of(&stats).ok_or_else(|| Failure::run_time(format!("{}: no time", path.display())))
    }

    /// Events that the kernel dropped because a CPU's buffer was full.
    pub(super) fn lost(&self) -> Result<u64, Failure> {
        let cpus = self.path.join("per_cpu");
        let mut lost = 0;
        for cpu in fs::read_dir(&cpus).map_err(|error| failure(&cpus, &error))? {
            let path = cpu.map_err(|error| failure(&cpus, &error))?.path().join("stats");
            let stats = fs::read_to_string(&path).map_err(|error| failure(&path, &error))?;
            lost += overruns(&stats);
        }
        Ok(lost)
    }

    fn set(&self, file: &str, value: &str) -> Result<(), Failure> {
        let path = self.path.join(file);
        fs::write(&path, value).map_err(|error| failure(&path, &error))
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        let _ = self.stop();
        let _ = fs::remove_dir(&self.path);
    }
}

/// The sum of `overrun` and `dropped events` of a CPU.
fn overruns(stats: &str) -> u64 {
    let of = |name: &str| {
        stats.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix(": ")?.parse::<u64>().ok()).sum::<u64>()
    };
    of("overrun") + of("dropped events")
}

/// The present time of a CPU's trace clock.
fn now_of(stats: &str) -> Option<u64> {
    let (seconds, micros) = stats.lines().find_map(|line| line.strip_prefix("now ts: "))?.trim().split_once('.')?;
    let micros = micros.get(..6)?.parse::<u64>().ok()?;
    Some(seconds.parse::<u64>().ok()?.checked_mul(1_000_000)? + micros)
}

fn failure(path: &Path, error: &io::Error) -> Failure {
    Failure::run_time(format!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lost_events_are_those_overwritten_and_dropped() {
        let stats = "entries: 10\noverrun: 3\ncommit overrun: 7\nbytes: 2\ndropped events: 4\nread events: 1\n";
        assert_eq!(overruns(stats), 7);
        assert_eq!(now_of(stats), None);
        assert_eq!(now_of("oldest event ts:  0.000000\nnow ts:  12.000345\n"), Some(12_000_345));
    }

    #[test]
    fn an_instance_is_removed_when_dropped_and_takes_tracefs_with_it() {
        let instance = match Instance::create() {
            Ok(instance) => instance,
            Err(error) => return println!("skipped: {error}"),
        };
        let (path, root, is_own) = (instance.path.clone(), instance._tracefs.root.clone(), instance._tracefs.is_own);
        assert!(path.is_dir());
        let missing = instance.enable("syscalls/sys_enter_nothing").unwrap_err().to_string();
        assert!(missing.contains("no tracepoint syscalls/sys_enter_nothing: "), "{missing}");
        drop(instance);
        assert!(!path.exists() && root.exists() != is_own);
    }
}
