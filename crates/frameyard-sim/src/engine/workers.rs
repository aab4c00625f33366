//! Workers of a task: CPUs that begin in the middle of a run, and tasks that wait until others have ended.

use frameyard::platform::NodeInit;

use super::{Engine, Task};
use crate::account::Spent;
use crate::profile::StackId;
use crate::time::Picos;

impl Engine {
    /// The first CPU of a node that has no task.
    pub(crate) fn idle_cpu(&self, node: usize) -> Option<usize> {
        let is_idle = |cpu: &super::Cpu| cpu.task == Task::None && usize::from(cpu.place.socket) == node;
        self.cpus.iter().position(is_idle)
    }

    /// The spans that the running CPU is in.
    pub(crate) fn stack(&self) -> StackId {
        self.turn.stack
    }

    /// The running CPU is in those spans again, where a panic has left others open.
    pub(crate) fn return_to(&mut self, stack: StackId) {
        self.set_stack(stack);
    }

    /// A CPU that was idle has a task from the running CPU's time on, in the spans that the running CPU is in.
    pub(crate) fn start(&mut self, cpu: usize) {
        let at = self.now().max(self.cpus[cpu].clock);
        let idle = at - self.cpus[cpu].clock;
        self.profile.add(0, Spent::Idle.slot(), idle);
        self.cpus[cpu].clock = at;
        self.cpus[cpu].stack = self.turn.stack;
        self.change_task(cpu, Task::Ready);
        self.make_ready(cpu);
    }

    /// The running CPU sleeps until somebody calls [`awaken`](Self::awaken); meanwhile it is idle.
    pub(crate) fn await_workers(&mut self) {
        self.wait(Task::Asleep);
    }

    /// A CPU that sleeps goes on, not before a time.
    pub(crate) fn awaken(&mut self, cpu: usize, at: Picos) {
        let at = at.max(self.cpus[cpu].clock);
        self.wake(cpu, at, Spent::Idle);
    }

    /// The running CPU is idle until a time.
    pub(crate) fn idle_until(&mut self, at: Picos) {
        let idle = at - self.now();
        self.charge(Spent::Idle.slot(), idle);
    }

    /// A pass over the map of a node is done.
    pub(crate) fn note_node_init(&mut self, done: NodeInit) {
        self.node_inits.push(done);
    }

    /// The passes over nodes so far.
    pub(crate) fn node_inits(&self) -> &[NodeInit] {
        &self.node_inits
    }
}
