//! Options for when and how the memory map is initialised.

use std::num::NonZeroU32;

use clap::Args;
use clap::builder::TypedValueParser;
use frameyard::ByteSize;
use frameyard::boot::{InitJobs, InitMode, Initialiser, JobGranularity, MapInit, PcpReset};
use frameyard::page::MapContent;

use super::values::{named, positive_number, positive_size};
use crate::Failure;
use crate::machine::Machine;

/// When and how the memory map is initialised.
#[derive(Args, Clone, Copy, Debug, Default)]
#[command(next_help_heading = "Memory map")]
pub(crate) struct InitArgs {
    /// When the map is initialised [default: deferred for boot, else eager]
    #[arg(long, value_name = "WHEN", value_parser = mode())]
    pub(crate) init: Option<InitMode>,

    /// How its pages are written [default: none for content zero, stream for content kernel]
    #[arg(long, value_name = "HOW", value_parser = initialiser())]
    pub(crate) initialiser: Option<Initialiser>,

    /// Content of its pages
    #[arg(long, value_name = "WHAT", value_parser = content(), default_value_t)]
    pub(crate) content: MapContent,

    /// How the work is divided into jobs
    #[arg(long, value_name = "HOW", value_parser = granularity(), default_value_t)]
    pub(crate) granularity: JobGranularity,

    /// The most threads for a node [default: one for each of its CPUs]
    #[arg(long, value_name = "N", value_parser = positive_number)]
    pub(crate) threads: Option<NonZeroU32>,

    /// Chunks of a job end at multiples of this size [default: a section, or with ranges a maximum-order block]
    #[arg(long, value_name = "SIZE", value_parser = positive_size)]
    pub(crate) job_align: Option<ByteSize>,

    /// Smallest chunk of a job: fewer threads work where a job has fewer such chunks [default: as --job-align]
    #[arg(long, value_name = "SIZE", value_parser = positive_size)]
    pub(crate) job_min_chunk: Option<ByteSize>,
}

/// Reads when the map is initialised.
pub(crate) fn mode() -> impl TypedValueParser<Value = InitMode> {
    named(InitMode::ALL.iter().map(|mode| mode.name()))
}

/// Reads how pages are written.
pub(crate) fn initialiser() -> impl TypedValueParser<Value = Initialiser> {
    named(Initialiser::ALL.iter().map(|initialiser| initialiser.name()))
}

/// Reads the content of pages.
pub(crate) fn content() -> impl TypedValueParser<Value = MapContent> {
    named(MapContent::ALL.iter().map(|content| content.name()))
}

/// Reads a granularity of jobs.
pub(crate) fn granularity() -> impl TypedValueParser<Value = JobGranularity> {
    named(JobGranularity::ALL.iter().map(|granularity| granularity.name()))
}

/// Reads whether per-CPU lists are sized again.
pub(crate) fn pcp_reset() -> impl TypedValueParser<Value = PcpReset> {
    named(PcpReset::ALL.iter().map(|reset| reset.name()))
}

/// The usual initialiser for a content.
pub(crate) fn usual_initialiser(content: MapContent) -> Initialiser {
    match content {
        MapContent::Zero => Initialiser::None,
        MapContent::Kernel => Initialiser::Stream,
    }
}

impl InitArgs {
    /// The initialisation on a machine. `mode` applies unless the options name another.
    ///
    /// # Errors
    ///
    /// [`Failure::Input`] for an initialiser that cannot write the content, for more threads than the machine has
    /// CPUs, for an alignment that is no power of two or smaller than a maximum-order block, and for a smallest chunk that is
    /// no whole number of pages.
    pub(crate) fn map_init(&self, mode: InitMode, machine: &Machine) -> Result<MapInit, Failure> {
        let initialiser = self.initialiser.unwrap_or(usual_initialiser(self.content));
        if !initialiser.can_write(self.content) {
            let others = Initialiser::ALL.iter().filter(|other| other.can_write(self.content));
            let others: Vec<&str> = others.map(|other| other.name()).collect();
            return Err(Failure::input(format!(
                "--initialiser {initialiser} cannot write --content {}: choose {}, or content zero",
                self.content,
                others.join(", ")
            )));
        }
        let alignment = self.job_align.map(|size| aligned(size, machine)).transpose()?;
        let min_chunk = self.job_min_chunk.map(|size| whole_pages(size, machine)).transpose()?;
        let threads = self.threads.map(|threads| checked_threads(threads, machine)).transpose()?;
        Ok(MapInit {
            mode: self.init.unwrap_or(mode),
            content: self.content,
            initialiser,
            jobs: InitJobs { granularity: self.granularity, threads, alignment, min_chunk },
            ..MapInit::default()
        })
    }
}

fn checked_threads(threads: NonZeroU32, machine: &Machine) -> Result<usize, Failure> {
    let threads = threads.get() as usize;
    if threads > machine.cpus.len() {
        let cpus = machine.cpus.len();
        return Err(Failure::input(format!(
            "--threads {threads}: {} has {cpus} CPUs; write a number from 1 to {cpus}",
            machine.name
        )));
    }
    Ok(threads)
}

fn whole_pages(size: ByteSize, machine: &Machine) -> Result<frameyard::PageCount, Failure> {
    let page = machine.geometry.page_size();
    if !size.0.is_multiple_of(page.0) {
        return Err(Failure::input(format!("--job-min-chunk {size}: must be a multiple of a page ({page})")));
    }
    Ok(machine.geometry.pages_in(size))
}

fn aligned(size: ByteSize, machine: &Machine) -> Result<frameyard::PageCount, Failure> {
    let block = machine.geometry.size_of(machine.geometry.max_order().pages());
    if !size.0.is_power_of_two() || size < block {
        return Err(Failure::input(format!(
            "--job-align {size}: must be a power of two, at least a maximum-order block ({block})"
        )));
    }
    Ok(machine.geometry.pages_in(size))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::built_in;
    use frameyard::PageCount;

    fn read(line: &str) -> Result<InitArgs, String> {
        crate::args::read(line)
    }

    fn asked(line: &str) -> Result<MapInit, String> {
        let machine = built_in("desktop-8").unwrap();
        read(line)?.map_init(InitMode::Deferred, &machine).map_err(|error| error.to_string())
    }

    #[test]
    fn zero_pages_need_no_initialiser_and_kernel_pages_are_streamed_by_default() {
        let init = asked("").unwrap();
        assert_eq!(
            (init.mode, init.content, init.initialiser),
            (InitMode::Deferred, MapContent::Zero, Initialiser::None)
        );
        assert_eq!(init.jobs, InitJobs::default());
        assert_eq!(asked("--content kernel").unwrap().initialiser, Initialiser::Stream);
        assert_eq!(asked("--initialiser two-pass").unwrap().initialiser, Initialiser::TwoPass);
        assert_eq!(asked("--init eager").unwrap().mode, InitMode::Eager);
        assert_eq!(asked("--init lazy").unwrap().mode, InitMode::Lazy);
    }

    #[test]
    fn jobs_follow_their_options() {
        let jobs = asked("--granularity ranges --threads 8 --job-align 256M").unwrap().jobs;
        assert_eq!((jobs.granularity, jobs.threads), (JobGranularity::Ranges, Some(8)));
        assert_eq!((jobs.alignment, jobs.min_chunk), (Some(PageCount(1 << 16)), None));
        let jobs = asked("--job-min-chunk 12M").unwrap().jobs;
        assert_eq!((jobs.alignment, jobs.min_chunk), (None, Some(PageCount(3 << 10))));
    }

    #[test]
    fn refusals_name_a_correct_value() {
        for (line, says) in [
            ("--init later", "possible values: eager, deferred, lazy"),
            ("--initialiser fast", "possible values: none, two-pass, memset-per-page, stores-per-page, stream"),
            ("--content one", "possible values: zero, kernel"),
            ("--granularity nodes", "possible values: ranges, sections"),
            (
                "--initialiser none --content kernel",
                "choose two-pass, memset-per-page, stores-per-page, stream, or content zero",
            ),
            ("--threads 0", "from 1"),
            ("--threads 9", "desktop-8 has 8 CPUs; write a number from 1 to 8"),
            ("--job-align 12M", "must be a power of two, at least a maximum-order block (4M)"),
            ("--job-align 2M", "at least a maximum-order block (4M)"),
            ("--job-align 0", "more than nothing"),
            ("--job-min-chunk 0", "more than nothing"),
            ("--job-min-chunk 4097", "must be a multiple of a page (4K)"),
        ] {
            let error = asked(line).unwrap_err();
            assert!(error.contains(says), "{line}: {error}");
        }
    }
}
