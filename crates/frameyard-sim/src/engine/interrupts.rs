//! Interrupts by which a CPU ends the restartable sequences of other CPUs.

use super::{Engine, Task};
use crate::machine::KernelCost;

impl Engine {
    /// The running CPU interrupts another CPU, or all, and waits for the answers. Only CPUs with a task that is awake are interrupted:
    /// on all other CPUs, no sequence can be in progress.
    ///
    /// An interrupted CPU spends the time of an exception when it runs next.
    pub(crate) fn interrupt(&mut self, cpu: Option<usize>) {
        let mut interrupted = 0;
        for (at, other) in self.cpus.iter_mut().enumerate() {
            let is_meant = cpu.is_none_or(|cpu| cpu == at) && at != self.context.cpu;
            if is_meant && matches!(other.task, Task::Ready | Task::Waiting) {
                other.interrupts += 1;
                interrupted += 1;
            }
        }
        if interrupted > 0 {
            self.spend_kernel(KernelCost::Interrupt, interrupted);
        }
    }

    /// The running CPU spends the time of interrupts that came while other CPUs ran.
    #[inline(always)]
    pub(super) fn answer_interrupts(&mut self) {
        let interrupts = std::mem::take(&mut self.cpus[self.context.cpu].interrupts);
        if interrupts > 0 {
            self.spend_kernel(KernelCost::Exception, interrupts);
        }
    }
}
