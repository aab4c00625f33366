//! The rows of the sweep.

use std::collections::BTreeSet;

use frameyard::ByteSize;
use frameyard::boot::{InitMode, Initialiser, JobGranularity};
use frameyard::page::{MapContent, Page};
use frameyard_host::HostTopology;

use super::MemmapArgs;
use super::machine::{nodes, section_frames};
use crate::Failure;

/// The largest map without `--full`.
const USUAL_LIMIT: ByteSize = ByteSize::gib(1);
const USUAL_SIZES: [ByteSize; 2] = [ByteSize::mib(64), USUAL_LIMIT];
const FULL_SIZE: ByteSize = ByteSize::gib(16);
/// Frames of lazy rows.
const USUAL_FRAMES: [u64; 4] = [1 << 18, 1 << 22, 1 << 25, 1 << 28];
/// The frames that links can name, less two sections at most.
const MOST_FRAMES: u64 = (1 << 32) - (1 << 16);
/// Holes of the rows that compare the granularities.
const USUAL_HOLES: u64 = 4096;

/// A number of frames and of threads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Place {
    pub(super) frames: u64,
    /// Of all nodes together.
    pub(super) threads: usize,
    pub(super) faulted: Faulted,
}

/// Whether the map is faulted in before its initialisation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Faulted {
    Before,
    OnTheWay,
}

/// One row.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Case {
    pub(super) place: Place,
    pub(super) initialiser: Initialiser,
    pub(super) content: MapContent,
    pub(super) mode: InitMode,
    pub(super) granularity: JobGranularity,
    pub(super) holes: u64,
}

/// All rows. Rows of one place share the memory of their map.
#[derive(Clone, Debug)]
pub(super) struct Sweep {
    pub(super) groups: Vec<(Place, Vec<Case>)>,
}

impl Sweep {
    /// The rows of the command line on this host.
    pub(super) fn of(args: &MemmapArgs, host: &HostTopology) -> Result<Self, Failure> {
        let threads = threads(args, host)?;
        let sizes = map_sizes(args, host)?;
        let mut groups = Vec::new();
        for &frames in &sizes {
            for &count in &threads {
                let place = Place { frames, threads: count, faulted: Faulted::Before };
                let mut cases = args.cases(place, &args.granularities, args.holes.unwrap_or(0));
                if args.is_bare() && threads.last() == Some(&count) {
                    cases.extend(fragmented(args, place));
                }
                groups.push((place, cases));
            }
        }
        for frames in lazy_frames(args, host)? {
            let place = Place { frames, threads: 1, faulted: Faulted::OnTheWay };
            // Without a pass there are no jobs.
            groups.push((place, args.cases(place, &args.granularities[..1], args.holes.unwrap_or(0))));
        }
        groups.retain(|(_, cases)| !cases.is_empty());
        let sweep = Self { groups };
        sweep.check()?;
        Ok(sweep)
    }

    /// All rows.
    pub(super) fn cases(&self) -> impl Iterator<Item = &Case> {
        self.groups.iter().flat_map(|(_, cases)| cases)
    }

    fn check(&self) -> Result<(), Failure> {
        if self.groups.is_empty() {
            let reason = "no row is left: initialiser none cannot write content kernel; choose another of either";
            return Err(Failure::input(reason));
        }
        match self.cases().find(|case| case.holes > case.place.frames / 2) {
            Some(case) => {
                Err(Failure::input(format!("--holes {}: at most half of the {} frames", case.holes, case.place.frames)))
            }
            None => Ok(()),
        }
    }
}

impl MemmapArgs {
    /// Whether the sweep is complete, which includes the rows that compare the granularities.
    fn is_bare(&self) -> bool {
        let all = (&Initialiser::ALL[..], &MapContent::ALL[..], &InitMode::ALL[..]);
        self.holes.is_none()
            && JobGranularity::ALL.iter().all(|granularity| self.granularities.contains(granularity))
            && (&self.initialisers[..], &self.contents[..], &self.modes[..]) == all
    }

    /// All combinations at a place.
    fn cases(&self, place: Place, granularities: &[JobGranularity], holes: u64) -> Vec<Case> {
        let mut cases = Vec::new();
        for &mode in self.modes.iter().filter(|mode| (**mode == InitMode::Lazy) == (place.faulted == Faulted::OnTheWay))
        {
            for &content in &self.contents {
                for &initialiser in self.initialisers.iter().filter(|initialiser| initialiser.can_write(content)) {
                    for &granularity in granularities {
                        cases.push(Case { place, initialiser, content, mode, granularity, holes });
                    }
                }
            }
        }
        cases
    }
}

/// Two rows that differ only in the granularity, on memory full of holes.
fn fragmented(args: &MemmapArgs, place: Place) -> Vec<Case> {
    let cases = args.cases(place, &JobGranularity::ALL, USUAL_HOLES);
    let is_best = |case: &&Case| case.initialiser == Initialiser::Stream && case.mode == InitMode::Deferred;
    let chosen = cases.iter().rev().find(is_best).or(cases.last()).copied();
    let with = |granularity: &JobGranularity| chosen.map(|case| Case { granularity: *granularity, ..case });
    JobGranularity::ALL.iter().filter_map(with).collect()
}

/// Numbers of threads: multiples of the number of nodes.
fn threads(args: &MemmapArgs, host: &HostTopology) -> Result<Vec<usize>, Failure> {
    let cpus = host.allowed().as_slice().len().max(1);
    let nodes = nodes(host).len();
    let mut chosen: Vec<usize> = args.threads.iter().map(|threads| threads.get() as usize).collect();
    if let Some(wrong) = chosen.iter().find(|threads| **threads > cpus) {
        return Err(Failure::input(format!(
            "--threads {wrong}: this process may use {cpus} CPUs; write numbers from 1 to {cpus}"
        )));
    }
    if chosen.is_empty() {
        let powers = (0..usize::BITS).map(|shift| 1 << shift).take_while(|threads| *threads <= cpus);
        chosen = if args.quick.quick { vec![cpus] } else { powers.chain([cpus]).collect() };
    }
    let all: BTreeSet<usize> = chosen.into_iter().map(|threads| (threads / nodes).max(1) * nodes).collect();
    Ok(all.into_iter().collect())
}

fn map_sizes(args: &MemmapArgs, host: &HostTopology) -> Result<Vec<u64>, Failure> {
    let sizes = match args.map_sizes.as_slice() {
        [] if args.full.full => [&USUAL_SIZES[..], &[FULL_SIZE]].concat(),
        [] => USUAL_SIZES.to_vec(),
        sizes => sizes.to_vec(),
    };
    if args.modes.iter().all(|mode| *mode == InitMode::Lazy) {
        return Ok(Vec::new());
    }
    let page = size_of::<Page>() as u64;
    let step = section_frames() * page * nodes(host).len() as u64;
    let available = host.available_memory().map_err(Failure::run_time)?;
    for size in &sizes {
        if !size.0.is_multiple_of(step) {
            let step = ByteSize(step);
            return Err(Failure::input(format!(
                "--map-size {size}: write multiples of {step}, whole sections on each node"
            )));
        }
        if *size > USUAL_LIMIT && !args.full.full {
            return Err(Failure::input(format!(
                "--map-size {size}: more than {USUAL_LIMIT} is measured only with --full"
            )));
        }
        if *size > available || size.0 / page > MOST_FRAMES {
            let says = format!("--map-size {size}: this host has {available} available, which the map has to fit");
            return Err(Failure::input(says));
        }
    }
    Ok(sizes.iter().map(|size| size.0 / page).collect())
}

fn lazy_frames(args: &MemmapArgs, host: &HostTopology) -> Result<Vec<u64>, Failure> {
    let step = section_frames() * nodes(host).len() as u64;
    let given = args.frames.iter().map(|frames| frames.get());
    let frames: Vec<u64> = if args.frames.is_empty() { USUAL_FRAMES.to_vec() } else { given.collect() };
    match frames.iter().find(|frames| !frames.is_multiple_of(step) || **frames > MOST_FRAMES) {
        Some(wrong) if !args.frames.is_empty() => Err(Failure::input(format!(
            "--frames {wrong}: write multiples of {step}, whole sections on each node, up to {MOST_FRAMES}"
        ))),
        // Hosts have few nodes: usual numbers are rounded.
        Some(_) => Ok(frames.iter().map(|frames| frames.next_multiple_of(step)).collect()),
        None => Ok(frames),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sweep(line: &str) -> Result<Sweep, String> {
        let args: MemmapArgs = crate::args::read(line).unwrap();
        Sweep::of(&args, &HostTopology::current().unwrap()).map_err(|failure| failure.to_string())
    }

    #[test]
    fn the_bare_sweep_has_every_possible_combination() {
        let sweep = sweep("").unwrap();
        for mode in InitMode::ALL {
            for content in MapContent::ALL {
                for initialiser in Initialiser::ALL {
                    let rows = sweep
                        .cases()
                        .filter(|case| (case.mode, case.content, case.initialiser) == (mode, content, initialiser));
                    assert_eq!(rows.count() > 0, initialiser.can_write(content), "{mode} {content} {initialiser}");
                }
            }
        }
        let largest = |mode| sweep.cases().filter(|case| case.mode == mode).map(|case| case.place.frames).max();
        assert_eq!(largest(InitMode::Eager), Some(USUAL_LIMIT.0 / 64));
        assert_eq!(largest(InitMode::Lazy), Some(1 << 28));
        assert!(sweep.cases().all(|case| case.place.frames % section_frames() == 0));
    }

    #[test]
    fn granularities_are_compared_on_memory_with_holes() {
        let all = sweep("--map-size 64M").unwrap();
        let pair: Vec<&Case> = all.cases().filter(|case| case.holes > 0).collect();
        assert_eq!(pair.iter().map(|case| case.granularity).collect::<Vec<_>>(), JobGranularity::ALL);
        assert_eq!(Case { granularity: pair[1].granularity, ..*pair[0] }, *pair[1]);
        assert_eq!(
            (pair[0].holes, pair[0].initialiser, pair[0].content),
            (4096, Initialiser::Stream, MapContent::Kernel)
        );
        assert!(sweep("--map-size 64M --holes 0").unwrap().cases().all(|case| case.holes == 0));
    }

    #[test]
    fn threads_go_up_in_powers_of_two_to_all_cpus() {
        let all = sweep("--init eager --map-size 64M --initialiser stream --content zero").unwrap();
        let threads: Vec<usize> = all.cases().map(|case| case.place.threads).collect();
        let host = HostTopology::current().unwrap();
        assert!(threads.is_sorted() && threads[0] == nodes(&host).len());
        assert!(*threads.last().unwrap() <= host.allowed().as_slice().len().max(nodes(&host).len()));
    }

    #[test]
    fn refusals_name_a_correct_value() {
        for (line, says) in [
            ("--threads 100000", "write numbers from 1 to"),
            ("--map-size 2G", "only with --full"),
            ("--map-size 63M", "write multiples of"),
            ("--map-size 512T --full", "available"),
            ("--frames 1000", "write multiples of"),
            ("--frames 2^40", "up to"),
            ("--holes 1000000000", "at most half"),
            ("--initialiser none --content kernel", "no row is left"),
        ] {
            let error = sweep(line).unwrap_err();
            assert!(error.contains(says), "{line}: {error}");
        }
    }
}
