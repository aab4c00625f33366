//! Workers of a task: CPUs that begin during a run, and tasks that wait for them.

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

    /// The running CPU's spans.
    pub(crate) fn stack(&self) -> StackId {
        self.context.stack
    }

    /// Returns the running CPU to these spans after a panic has left inner spans open.
    pub(crate) fn return_to(&mut self, stack: StackId) {
        self.set_stack(stack);
    }

    /// Starts a task on an idle CPU, from the running CPU's time on and in the running CPU's spans.
    pub(crate) fn start(&mut self, cpu: usize) {
        let at = self.now().max(self.cpus[cpu].clock);
        let idle = at - self.cpus[cpu].clock;
        self.profile.add(0, Spent::Idle.slot(), idle);
        self.cpus[cpu].clock = at;
        self.cpus[cpu].stack = self.context.stack;
        self.change_task(cpu, Task::Ready);
        self.make_ready(cpu);
    }

    /// The running CPU sleeps, idle, until another CPU calls [`awaken`](Self::awaken).
    pub(crate) fn sleep_idle(&mut self) {
        self.wait(Task::Asleep);
    }

    /// Wakes a sleeping CPU, not before a time.
    pub(crate) fn awaken(&mut self, cpu: usize, at: Picos) {
        let at = at.max(self.cpus[cpu].clock);
        self.wake(cpu, at, Spent::Idle);
    }

    /// The running CPU is idle until a time.
    pub(crate) fn idle_until(&mut self, at: Picos) {
        let idle = at - self.now();
        self.charge(Spent::Idle.slot(), idle);
    }

    /// Records a finished pass over the map of a node.
    pub(crate) fn note_node_init(&mut self, done: NodeInit) {
        self.node_inits.push(done);
    }

    /// The finished passes over nodes' maps.
    pub(crate) fn node_inits(&self) -> &[NodeInit] {
        &self.node_inits
    }
}
