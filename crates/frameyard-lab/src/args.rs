//! Options that several commands share, and the values of options.
//!
//! Each group of options is one struct that commands flatten into their own arguments.

mod comparison;
mod extent;
pub(crate) mod init;
mod machine;
mod sim_run;
pub(crate) mod values;
mod yard;

pub(crate) use crate::output::{OutputArgs, PlotArgs};
pub(crate) use comparison::{ComparedArgs, ComparisonArgs, PolicyArgs};
pub(crate) use extent::{DurationArgs, FullArgs, QuickArgs, VirtualDurationArgs};
pub(crate) use init::InitArgs;
pub(crate) use machine::{GeometryArgs, MachineArgs};
pub(crate) use sim_run::{ListAccessArg, SimRunArgs};
pub(crate) use values::{Amount, TaskRange};
pub(crate) use yard::YardArgs;

/// Reads the arguments of a command as tests write them.
#[cfg(test)]
pub(crate) fn read<A: clap::Args>(line: &str) -> Result<A, String> {
    let words = std::iter::once("x").chain(line.split_whitespace());
    let matches = A::augment_args(clap::Command::new("x")).try_get_matches_from(words);
    matches.and_then(|matches| A::from_arg_matches(&matches)).map_err(|error| error.to_string())
}

/// Asserts that each line is refused, and that the refusal names a correct value.
#[cfg(test)]
pub(crate) fn assert_refused<A: clap::Args + std::fmt::Debug>(lines: &[(&str, &str)]) {
    for (line, says) in lines {
        let error = read::<A>(line).unwrap_err();
        assert!(error.contains(says), "{line}: {error}");
    }
}
