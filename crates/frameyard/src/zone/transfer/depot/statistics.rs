//! What the depot counts.

use crate::zone::transfer::statistics::counters;

counters! { |view, counts, cpu|
    let of = cpu.is_none().then(|| view.depot());
    "depot_batches" Gauge of Zone "Batches in the depot." = of.batches_racy();
    "depot_pushes" Counter of Zone "Batches pushed onto a stack of the depot." = of.sum(|stack| &stack.pushed);
    "depot_pops" Counter of Zone "Batches popped from a stack of the depot by refills." = of.popped();
    "depot_steals" Counter of Zone "Batches popped from the stack of another CPU group." = of.sum(|stack| &stack.stolen);
    "depot_overflows" Counter of Zone "Batches pushed onto the zone's common stack because the group's was full."
        = of.sum(|stack| &stack.overflowed);
    "depot_collected" Counter of Zone "Batches returned from the depot to the free lists." = of.sum(|stack| &stack.collected);
    "depot_retries" Counter of Zone "Compare-exchanges on a stack of the depot that failed and were retried."
        = of.sum(|stack| &stack.retries);
}
