//! Tasks as threads of this process, in one address space.

use std::panic::{self, AssertUnwindSafe};
use std::sync::mpsc;
use std::thread;

use frameyard_host::HostPlatform;
use frameyard_vm::{AddressSpace, Vm};

use super::{Crew, CrewError, Note, panic_text};
use crate::Failure;
use crate::workload::course::HostCourse;
use crate::workload::exchange::Exchange;
use crate::workload::stage::{Stage, Stages};
use crate::workload::task::{Site, TaskOrder};

/// Runs each order on a thread of its own while `lead` leads them. However that ends, the tasks are told to stop and
/// have stopped when this returns.
///
/// # Errors
///
/// What `lead` returns; or that a thread cannot be had.
pub(crate) fn lead_threads<R>(
    vm: Vm<'_, HostPlatform>,
    common: &AddressSpace<'_, HostPlatform>,
    orders: &[TaskOrder],
    lead: impl FnOnce(&mut Crew<'_>) -> Result<R, Failure>,
) -> Result<R, Failure> {
    let (stages, exchange) = (&Stages::default(), &Exchange::default());
    let (sender, messages) = mpsc::channel();
    thread::scope(|scope| {
        // However this ends: else the tasks would be waited for without an end.
        let _end = EndOnDrop(stages, exchange);
        for (task, order) in orders.iter().enumerate() {
            let sender = sender.clone();
            let body = move || {
                // Who leads may have gone, and then nobody wants to know.
                let tell = |note| drop(sender.send((task, Some(note))));
                let cpus = vm.yard().platform().host().allowed();
                let course = HostCourse { exchange, stages, cpus, tell: &tell };
                let site = Site { vm, common: Some(common), course };
                match panic::catch_unwind(AssertUnwindSafe(|| site.run(order))) {
                    Ok(Ok(report)) => tell(Note::Done(report)),
                    Ok(Err(problem)) => tell(Note::Failed(problem.to_string())),
                    Err(panic) => tell(Note::Failed(panic_text(&*panic))),
                }
            };
            thread::Builder::new().spawn_scoped(scope, body).map_err(CrewError::Start).map_err(Failure::run_time)?;
        }
        drop(sender);
        let announce = |stage| {
            stages.announce(stage);
            if stage == Stage::End {
                exchange.close();
            }
        };
        lead(&mut Crew::new(orders.len(), messages, &announce))
    })
}

struct EndOnDrop<'a>(&'a Stages, &'a Exchange);

impl Drop for EndOnDrop<'_> {
    fn drop(&mut self) {
        self.0.announce(Stage::End);
        self.1.close();
    }
}
