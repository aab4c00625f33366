//! Tasks as threads of this process, in one address space.

use std::panic::{self, AssertUnwindSafe};
use std::sync::mpsc;
use std::thread;

use frameyard_host::HostPlatform;
use frameyard_vm::{AddressSpace, Vm};

use super::{Workers, WorkersError, panic_text};
use crate::error::WorkloadError;
use crate::exchange::Exchange;
use crate::host_runtime::HostRuntime;
use crate::report::TaskEvent;
use crate::stage::{Stage, Stages};
use crate::task::TaskSpec;

/// Runs each task on its own thread while `drive` drives them. In every case, also on an error, the tasks have ended when
/// this returns.
///
/// # Errors
///
/// Those of `drive`, and [`WorkloadError::RunTime`] if a thread cannot be started.
pub(crate) fn drive_threads<R>(
    vm: Vm<'_, HostPlatform>,
    common: &AddressSpace<'_, HostPlatform>,
    specs: &[TaskSpec],
    drive: impl FnOnce(&mut Workers<'_>) -> Result<R, WorkloadError>,
) -> Result<R, WorkloadError> {
    let (stages, exchange) = (&Stages::default(), &Exchange::default());
    let (sender, messages) = mpsc::channel();
    thread::scope(|scope| {
        // The scope waits for the tasks, so they must be told to stop on every path out of it.
        let _end = EndOnDrop(stages, exchange);
        for (task, spec) in specs.iter().enumerate() {
            let sender = sender.clone();
            let body = move || {
                // After an error the driver has dropped the receiver.
                let tell = |event| drop(sender.send((task, Some(event))));
                let cpus = vm.yard().platform().host().allowed();
                let runtime = HostRuntime { exchange, stages, cpus, tell: &tell };
                match panic::catch_unwind(AssertUnwindSafe(|| spec.run_here(vm, Some(common), runtime))) {
                    Ok(Ok(report)) => tell(TaskEvent::Done(report)),
                    Ok(Err(problem)) => tell(TaskEvent::Failed(problem.to_string())),
                    Err(panic) => tell(TaskEvent::Failed(panic_text(&*panic))),
                }
            };
            let started = thread::Builder::new().spawn_scoped(scope, body);
            started.map_err(WorkersError::Start).map_err(WorkloadError::run_time)?;
        }
        drop(sender);
        let announce = |stage| {
            stages.announce(stage);
            if stage == Stage::End {
                exchange.close();
            }
        };
        drive(&mut Workers::new(specs.len(), messages, &announce))
    })
}

struct EndOnDrop<'a>(&'a Stages, &'a Exchange);

impl Drop for EndOnDrop<'_> {
    fn drop(&mut self) {
        self.0.announce(Stage::End);
        self.1.close();
    }
}
