//! Prints predicted and published times of initialising the memory maps of simulated machines.
//!
//! ```console
//! cargo run -p frameyard-sim --example deferred_init
//! ```

use std::error::Error;

use frameyard_sim::Machine;
use frameyard_sim::deferred_init::{self, DeferredInit, InitThreads};

/// Machine, and the times in ms of one thread per node and of one thread per CPU.
fn published() -> Vec<(&'static str, [f64; 2])> {
    let table = include_str!("../../../data/published/deferred-init.csv");
    let mut lines = table.lines();
    let names: Vec<&str> = lines.next().unwrap_or_default().split(',').collect();
    let columns = ["machine", "deferred_init_base_ms", "deferred_init_parallel_ms"];
    let [machine, base, parallel] = columns.map(|name| names.iter().position(|other| *other == name).unwrap());
    let row = |line: &'static str| {
        let fields: Vec<&str> = line.split(',').collect();
        (fields[machine], [fields[base], fields[parallel]].map(|field| field.parse().unwrap()))
    };
    lines.map(row).collect()
}

fn main() -> Result<(), Box<dyn Error>> {
    println!("{:<24}{:<10}{:>12}{:>12}{:>9}{:>9}", "machine", "kernel", "published", "predicted", "error", "threads");
    for (name, times) in published() {
        let machine = Machine::built_in(name)?;
        let ways = [("base", InitThreads::OnePerNode), ("parallel", InitThreads::OnePerCpu)];
        for ((kernel, threads), published) in ways.into_iter().zip(times) {
            let run = deferred_init::run(&machine, &DeferredInit::of_kernel(threads))?;
            let ms = run.time.as_ns() / 1e6;
            let threads = run.nodes.iter().map(|node| node.threads).sum::<usize>();
            let error = (ms / published - 1.0) * 100.0;
            println!("{name:<24}{kernel:<10}{published:>9.1} ms{ms:>9.1} ms{error:>7.1} %{threads:>9}");
        }
    }
    Ok(())
}
