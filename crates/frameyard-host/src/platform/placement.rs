//! The choice of CPUs for the workers of a job.

use std::collections::{BTreeMap, HashMap};
use std::sync::Mutex;

use frameyard::CpuId;

use crate::cpu_list::CpuList;
use crate::sys::lock::{Locked, lock};

/// The number of workers on each CPU, over all jobs of a platform that run side by side or inside each other.
#[derive(Debug, Default)]
pub(super) struct CpuLoads(Mutex<BTreeMap<CpuId, usize>>);

/// A CPU that counts a worker until this is dropped.
#[derive(Debug)]
struct Claim<'a> {
    loads: &'a CpuLoads,
    cpu: CpuId,
}

/// The CPUs of a worker.
#[derive(Debug)]
pub(super) struct Place<'a> {
    cpus: CpuList,
    /// Held while the job runs, if the worker has a CPU of its own.
    _claim: Option<Claim<'a>>,
}

impl CpuLoads {
    /// Chooses places for the workers of one job. Each entry of `wanted` is the set of CPUs that a worker may run on.
    ///
    /// If a set has a CPU for each of its workers, each gets its own: the CPUs with the fewest workers so far.
    /// Otherwise all share the set. `caller` is the CPU of worker 0, which stays there unless another CPU has fewer
    /// workers.
    pub(super) fn places(&self, wanted: Vec<CpuList>, caller: CpuId) -> Vec<Place<'_>> {
        let mut workers: HashMap<CpuList, usize> = HashMap::new();
        for cpus in &wanted {
            *workers.entry(cpus.clone()).or_default() += 1;
        }
        let mut preferred = Some(caller);
        let mut taken = Vec::new();
        let place = |cpus: CpuList| {
            let preferred = preferred.take();
            let claim =
                if workers[&cpus] <= cpus.as_slice().len() { self.claim(&cpus, &taken, preferred) } else { None };
            taken.extend(claim.as_ref().map(|claim| claim.cpu));
            let cpus = claim.as_ref().map_or(cpus, |claim| CpuList::from_iter([claim.cpu]));
            Place { cpus, _claim: claim }
        };
        wanted.into_iter().map(place).collect()
    }

    fn claim(&self, cpus: &CpuList, taken: &[CpuId], preferred: Option<CpuId>) -> Option<Claim<'_>> {
        let mut loads = self.locked();
        let load = |cpu: CpuId| loads.get(&cpu).copied().unwrap_or(0);
        let burden = |cpu: &CpuId| (taken.contains(cpu), load(*cpu), Some(*cpu) != preferred, *cpu);
        let cpu = cpus.as_slice().iter().copied().min_by_key(burden)?;
        *loads.entry(cpu).or_default() += 1;
        Some(Claim { loads: self, cpu })
    }

    fn locked(&self) -> Locked<'_, BTreeMap<CpuId, usize>> {
        lock(&self.0)
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        let mut loads = self.loads.locked();
        match loads.get_mut(&self.cpu) {
            Some(load) if *load > 1 => *load -= 1,
            _ => {
                loads.remove(&self.cpu);
            }
        }
    }
}

impl Place<'_> {
    /// Moves the calling thread there for good.
    pub(super) fn move_here(&self) {
        // A job also works elsewhere, only slower.
        let _ = self.cpus.pin_this_thread();
    }

    /// Moves the calling thread there until the visit is dropped. Stays if the way back is unknown.
    pub(super) fn visit(&self) -> Visit {
        let home = CpuList::of_this_thread().ok();
        if home.is_some() {
            self.move_here();
        }
        Visit { home }
    }
}

/// A temporary move of a thread. Dropped on that thread, it restores the CPUs that the thread could run on before.
#[derive(Debug)]
pub(super) struct Visit {
    home: Option<CpuList>,
}

impl Drop for Visit {
    fn drop(&mut self) {
        if let Some(home) = &self.home {
            // Fails only if the host has taken all those CPUs away. It has chosen new ones itself then.
            let _ = home.pin_this_thread();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(text: &str) -> CpuList {
        text.parse().unwrap()
    }

    fn places<'a>(loads: &'a CpuLoads, wanted: &[&str], caller: u32) -> (Vec<Place<'a>>, Vec<String>) {
        let places = loads.places(wanted.iter().map(|cpus| list(cpus)).collect(), CpuId(caller));
        let cpus = places.iter().map(|place| place.cpus.to_string()).collect();
        (places, cpus)
    }

    #[test]
    fn workers_get_a_cpu_each_if_their_node_has_enough() {
        let loads = CpuLoads::default();
        assert_eq!(places(&loads, &["0-3", "0-3", "4-5", "4-5"], 9).1, ["0", "1", "4", "5"]);
        assert_eq!(places(&loads, &["0-3", "4-5", "4-5", "4-5"], 9).1, ["0", "4-5", "4-5", "4-5"]);
        assert_eq!(places(&loads, &[""], 0).1, [""]);
    }

    #[test]
    fn the_caller_keeps_its_cpu_if_possible() {
        let loads = CpuLoads::default();
        assert_eq!(places(&loads, &["0-3", "0-3", "0-3"], 2).1, ["2", "0", "1"]);
    }

    #[test]
    fn jobs_side_by_side_share_the_cpus_evenly_until_they_end() {
        let loads = CpuLoads::default();
        let (first, _) = places(&loads, &["0-3", "0-3"], 0);
        let (second, cpus) = places(&loads, &["0-3", "0-3"], 0);
        assert_eq!(cpus, ["2", "3"]);
        drop(first);
        let (third, cpus) = places(&loads, &["0-3", "0-3", "0-3"], 3);
        assert_eq!(cpus, ["0", "1", "2"]);
        drop((second, third));
        assert!(loads.locked().is_empty());
    }
}
