//! `report`: runs benchmarks, simulations and replays as named jobs, stores their results, and renders them as one page.
//!
//! `jobs` lists the jobs, `run_jobs` runs and stores them, `merge` joins the results of several machines. What follows
//! depends on the stored results alone: `tables` compares them with published figures, `claims` judges them, `plots` draws
//! them, `page` writes the page.

mod chart;
mod claims;
mod job;
mod jobs;
mod merge;
mod page;
mod plots;
mod render;
mod results;
mod run_jobs;
mod stored;
mod tables;

use std::path::{Path, PathBuf};

use clap::{Args, ValueHint};

use crate::Failure;
use crate::args::OutputArgs;
use crate::output::{Format, Report, Row};
use claims::JudgedClaim;
use job::{Job, Shard};
use jobs::Effort;
use results::Results;
use stored::Stored;

/// What follows the options in the help text.
const HELP: &str = "\
Without --full, takes three minutes on 2 idle CPUs. --full takes hours. An interrupted report continues where it was.

Examples:
  frameyard report
  frameyard report --full -o full-report
  frameyard report --full --jobs
  frameyard report --full --shard 2/8 -o part-2
  frameyard report --merge part-1 part-2 -o whole";

/// Runs everything that the project claims, and writes one page with the results
#[derive(Args, Clone, Debug)]
#[command(after_help = HELP)]
pub(super) struct ReportArgs {
    /// Jobs that take three minutes on 2 idle CPUs; the default
    #[arg(long)]
    quick: bool,

    /// Whole tables and curves
    #[arg(long, conflicts_with = "quick")]
    full: bool,

    /// The folder of results and page
    #[arg(short = 'o', long = "output", value_name = "DIR", default_value = "frameyard-report", value_hint = ValueHint::DirPath)]
    folder: PathBuf,

    /// Recordings to replay [default: those in the checkout that this runs in]
    #[arg(long = "trace", value_name = "FILES", value_delimiter = ',', value_hint = ValueHint::FilePath)]
    recordings: Vec<PathBuf>,

    /// Run only jobs whose names begin so
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    only: Vec<String>,

    /// List the jobs and run none
    #[arg(long)]
    jobs: bool,

    /// Run the I-th of N parts of the jobs, and write no page
    #[arg(long, value_name = "I/N", conflicts_with = "jobs")]
    shard: Option<Shard>,

    /// Join the results in these folders instead of running jobs
    #[arg(long, value_name = "DIR", num_args = 1.., conflicts_with_all = ["jobs", "shard", "only"], value_hint = ValueHint::DirPath)]
    merge: Vec<PathBuf>,

    #[command(flatten)]
    output: OutputArgs,
}

const NAME: &str = "report";
/// Recordings in a checkout.
const CHECKOUT_RECORDINGS: [&str; 1] = ["recordings/cargo-check.fytrace"];

/// Lists or runs the jobs, or joins results; then renders.
pub(super) fn run(args: &ReportArgs) -> Result<(), Failure> {
    if !args.merge.is_empty() {
        let joined = merge::joined(&args.merge)?;
        stored::create_folder(&args.folder)?;
        joined.iter().try_for_each(|stored| stored.write(&args.folder))?;
        return render(args);
    }
    let jobs = chosen(args)?;
    if args.jobs {
        return Report::new(NAME, jobs.iter().map(job_row).collect()).print(&args.output);
    }
    stored::create_folder(&args.folder)?;
    let outcome = run_jobs::run_missing(&jobs, &args.folder)?;
    match args.shard {
        Some(shard) => shard_report(shard, outcome, &args.folder).print(&args.output),
        None => render(args),
    }
}

/// The jobs that the command line names.
fn chosen(args: &ReportArgs) -> Result<Vec<Job>, Failure> {
    let effort = if args.full { Effort::Full } else { Effort::Quick };
    let recordings = if args.recordings.is_empty() {
        CHECKOUT_RECORDINGS.iter().map(PathBuf::from).filter(|path| path.is_file()).collect()
    } else {
        args.recordings.clone()
    };
    if let Some(missing) = recordings.iter().find(|path| !path.is_file()) {
        return Err(Failure::input(format!("{}: no such recording", missing.display())));
    }
    let mut jobs = jobs::jobs(effort, &recordings);
    if let Some(unknown) = args.only.iter().find(|begin| !jobs.iter().any(|job| job.name.starts_with(*begin))) {
        return Err(Failure::input(format!("--only {unknown}: no job has such a name; report --jobs lists them")));
    }
    if !args.only.is_empty() {
        jobs.retain(|job| args.only.iter().any(|begin| job.name.starts_with(begin)));
    }
    Ok(match args.shard {
        Some(shard) => shard.of(jobs),
        None => jobs,
    })
}

fn job_row(job: &Job) -> Row {
    Row::new()
        .column("job", "job", job.name.clone())
        .column("kind", "kind", job.kind.name())
        .column("deterministic", "deterministic", job.kind.is_deterministic())
        .minor()
        .column("command", "command", job.command())
}

fn shard_report(shard: Shard, outcome: run_jobs::Outcome, folder: &Path) -> Report {
    let row = Row::new()
        .column("shard", "shard", shard.to_string())
        .column("run", "run", outcome.run)
        .column("kept", "kept", outcome.kept)
        .column("failed", "failed", outcome.failed);
    Report::new(NAME, vec![row])
        .note(format!("frameyard report --merge {} … -o DIR joins the parts.", folder.display()))
}

/// Renders the stored results, and prints a line for each claim.
fn render(args: &ReportArgs) -> Result<(), Failure> {
    let results = Results::new(Stored::read_all(&args.folder)?);
    let claims = render::write(&results, &args.folder)?;
    let held = claims.iter().filter(|claim| claim.held == Some(true)).count();
    let page = args.folder.join("index.html");
    let note = format!("{held} of {} claims held. The page: {}", claims.len(), page.display());
    let report = Report::new(NAME, claims.iter().map(claim_row).collect());
    report.total("jobs", results.all().len()).total("page", page.display().to_string()).note(note).print(&args.output)
}

fn claim_row(claim: &JudgedClaim) -> Row {
    let figure = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), page::number);
    let figures = format!(
        "{} {} {} {} ({} {} {})",
        figure(claim.left_value),
        claim.relation.sign(),
        figure(claim.right_value),
        claim.unit,
        claim.left,
        claim.relation.sign(),
        claim.right
    );
    Row::new()
        .column("claim", "claim", claim.claim)
        .column("verdict", "verdict", claim.verdict())
        .data("says", claim.says)
        .data("left_value", claim.left_value)
        .data("right_value", claim.right_value)
        .data("unit", claim.unit)
        .remark("figures", Format::Plain, figures)
        .column("why", "why not", claim.why.clone())
}
