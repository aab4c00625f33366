//! What the depot counts.

use crate::zone::transfer::statistics::{counters, read};

counters! { |view, counts, cpu|
    let of = cpu.is_none().then(|| view.depot());
    "depot_batches" Gauge of Zone "Batches of blocks below pageblock order in the depot." = of.batches_racy();
    "depot_pushes" Counter of Zone "Batches pushed onto a stack of the depot." = of.sum(|stack| &stack.pushed);
    "depot_pops" Counter of Zone "Batches popped from a stack of the depot by refills." = of.popped();
    "depot_steals" Counter of Zone "Batches popped from the stack of another CPU." = of.sum(|stack| &stack.stolen);
    "depot_overflows" Counter of Zone "Batches pushed onto the zone's common stack because the CPU's was full."
        = of.sum(|stack| &stack.overflowed);
    "depot_collected" Counter of Zone "Batches returned from the depot to the free lists." = of.sum(|stack| &stack.collected);
    "depot_retries" Counter of Zone "Compare-exchanges on a stack of the depot that failed and were retried."
        = of.sum(|stack| &stack.retries);
    "depot_huge_blocks" Gauge of Zone "Blocks of pageblock order in the depot." = of.huge_blocks_racy();
    "depot_huge_pushed" Counter of Zone "Blocks of pageblock order pushed onto a stack of the depot."
        = of.huge_sum(|stack| &stack.pushed);
    "depot_huge_popped" Counter of Zone "Blocks of pageblock order popped from a stack of the depot by refills."
        = of.huge_popped();
    "depot_huge_stolen" Counter of Zone "Blocks of pageblock order popped from the stack of another CPU."
        = of.huge_sum(|stack| &stack.stolen);
    "depot_huge_overflowed" Counter of Zone
        "Blocks of pageblock order pushed onto the zone's common stack because the CPU's was full."
        = of.huge_sum(|stack| &stack.overflowed);
    "depot_huge_collected" Counter of Zone "Blocks of pageblock order returned from the depot to the free lists."
        = of.huge_sum(|stack| &stack.collected);
    "depot_huge_retries" Counter of Zone "Compare-exchanges on a stack of huge blocks that failed and were retried."
        = of.huge_sum(|stack| &stack.retries);
    let of = cpu.is_none().then_some(&view.zone.healing);
    "healing_draining" Gauge of Zone "Pageblocks that drain." = of.draining_racy().into();
    "healing_begun" Counter of Zone "Pageblocks that began to drain." = read(&of.begun);
    "healing_healed" Counter of Zone "Draining pageblocks that became whole." = read(&of.healed);
    "healing_given_up" Counter of Zone "Pageblocks that stopped draining because a request needed their frames." = read(&of.given_up);
    "healing_rested" Counter of Zone "Pageblocks that do not drain for a while because frames in them stay in use." = read(&of.rested);
}
