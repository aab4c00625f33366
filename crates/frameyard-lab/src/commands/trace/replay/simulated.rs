//! `trace replay --machine`: copies of a recording at once on a simulated machine.

use std::num::NonZeroU32;

use frameyard_traces::replay::{Detail, ReplayPlan, SetUp};
use frameyard_workloads::sim::{SimReplay, SimReplayPlan, whole_ns};
use serde_json::Map;

use super::ReplayArgs;
use crate::Failure;
use crate::commands::comparison::contended_share;
use crate::commands::simulated_machine::machine;
use crate::fixture::refuse_beyond_host;
use crate::output::{Format, Report, Row, progress_bar, rounded};

const NOTE: &str = "Times are virtual. contended: acquisitions of zone locks that found the lock held. waiting: time of busy CPUs that they \
    waited for zone locks. Pages through the zone lock are for 1000 pages allocated, here and in the recorded kernel.";

/// Replays under each policy.
pub(super) fn run(args: &ReplayArgs, name: &str, plan: &ReplayPlan) -> Result<Report, Failure> {
    let machine = machine(name)?;
    let copies = SimReplayPlan::new(plan, &machine, args.copies).map_err(Failure::input)?;
    refuse_beyond_host(&machine.name, copies.memory(), copies.host_memory_needed(), "run fewer --copies")?;
    let bar = progress_bar(super::NAME, copies.operations() * args.policy.len() as u64);
    let mut rows = Vec::new();
    for policy in &args.policy {
        let set_up = SetUp { policy: *policy, start: args.start.start(), seed: args.seed, detail: Detail::Totals };
        let replay = copies.replay(set_up, &|operations| bar.inc(operations)).map_err(Failure::run_time)?;
        rows.push(row(plan, copies.copies(), &replay));
    }
    bar.finish_and_clear();
    Ok(Report::new(super::NAME, rows).of_machine(machine.name.clone()).note(NOTE))
}

/// The row of a policy.
fn row(plan: &ReplayPlan, copies: NonZeroU32, replay: &SimReplay) -> Row {
    let (kernel, lock, [_, end]) = (plan.kernel(), replay.yard.lock, &replay.free);
    let ns = replay.time_per_operation().map(|time| rounded(time.as_ns()));
    let waiting = replay.spent.lock(frameyard::platform::LockKind::Zone);
    Row::new()
        .column("policy", "policy", replay.policy.name())
        .column("copies", "copies", copies.get())
        .data("events", kernel.events)
        .data("operations", replay.counts.operations)
        .data("pages_allocated", replay.counts.pages_allocated)
        .column("zone_locked_pages_per_1000", "zone lock/1000", replay.zone_locked_per_1000().map(rounded))
        .column("kernel_zone_locked_pages_per_1000", "kernel's", kernel.zone_locked_per_1000().map(rounded))
        .column("zone_lock_acquisitions", "acquisitions", lock.acquisitions)
        .data("zone_lock_contended", lock.contended)
        .column_as("zone_lock_contended_share", "contended", Format::percent(2), contended_share(lock))
        .column("pcp_pages_held", "held in lists", end.per_cpu.0)
        .column("free_order9_blocks", "free order 9", end.order9_blocks())
        .data("free_blocks", end.blocks.to_vec())
        .data("blocks_in_bits", end.blocks_in_bits.to_vec())
        .column("extfrag_events", "fallbacks", replay.yard.extfrag)
        .data("kernel_extfrag_events", kernel.extfrag)
        .column("failures", "failed", replay.counts.failures)
        .data("kernel_failures", kernel.failures)
        .data("skipped_frees", replay.counts.skipped_frees)
        .data("unplaced_free_pages", replay.missing_pages.0)
        .column("virtual_ns_per_operation", "ns/operation", ns)
        .remark("waiting", Format::percent(2), waiting)
        .data("virtual_ns", whole_ns(replay.spent.length()))
        .data("list_access", replay.lists.name())
        .followed_by(replay.spent.shares().map(|(name, share)| (name, share.into())).collect::<Map<_, _>>().into())
}
