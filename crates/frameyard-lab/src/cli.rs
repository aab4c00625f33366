//! Reads the command line, and words its refusals.

use std::ffi::OsString;

use clap::error::ErrorKind;
use clap::{ArgMatches, CommandFactory, FromArgMatches};

use crate::Failure;
use crate::commands::Cli;
use crate::output::OutputFile;

/// Reads a command line, the program's own name first.
///
/// `--help` and `--version` are printed here, and end the program.
///
/// # Errors
///
/// [`Failure::Input`] in one line that names the mistake and a correct value.
pub(crate) fn parse<I, T>(arguments: I) -> Result<Cli, Failure>
where
    I: IntoIterator<Item = T>,
    T: Into<OsString> + Clone,
{
    let arguments: Vec<OsString> = arguments.into_iter().map(Into::into).collect();
    if let Some(cli) = Cli::hidden(&arguments) {
        return Ok(cli);
    }
    let matches = command().try_get_matches_from(arguments).map_err(|error| refusal(&error))?;
    open_output_files(&matches)?;
    Cli::from_arg_matches(&matches).map_err(|error| refusal(&error))
}

/// The command line, whose options take values that begin with a hyphen: `--memory -5G` is a bad size and no option `-5`.
fn command() -> clap::Command {
    fn take_hyphens(command: clap::Command) -> clap::Command {
        // An option with any number of values ends where the next option begins.
        let has_end = |arg: &clap::Arg| arg.get_num_args().is_none_or(|count| count.max_values() == 1);
        let takes_value = |arg: &clap::Arg| arg.get_action().takes_values() && !arg.is_positional() && has_end(arg);
        command
            .mut_args(|arg| if takes_value(&arg) { arg.allow_hyphen_values(true) } else { arg })
            .mut_subcommands(take_hyphens)
    }
    take_hyphens(Cli::command())
}

/// Opens the files that results go to, so that a bad path is refused before any work.
fn open_output_files(matches: &ArgMatches) -> Result<(), Failure> {
    for id in matches.ids() {
        if let Ok(Some(files)) = matches.try_get_many::<OutputFile>(id.as_str()) {
            files.into_iter().try_for_each(|file| file.open().map(drop))?;
        }
    }
    matches.subcommand().map_or(Ok(()), |(_, matches)| open_output_files(matches))
}

/// The refusal of clap in one line: without the usage, and without its own `error:`. Prints help and versions and ends.
fn refusal(error: &clap::Error) -> Failure {
    if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) {
        error.exit();
    }
    let text = error.render().to_string();
    let end = ["\nUsage:", "\nFor more information"].iter().filter_map(|mark| text.find(mark)).min();
    let paragraph = text[..end.unwrap_or(text.len())].trim();
    let paragraph = paragraph.strip_prefix("error:").unwrap_or(paragraph).trim();
    // A tip is a paragraph of its own.
    let line = paragraph.replace("\n\n", ";\n");
    let says_what_is_right =
        ["tip:", "[possible values:", "[subcommands:", "for '"].iter().any(|mark| line.contains(mark));
    Failure::input(if says_what_is_right { line } else { format!("{line}; see --help") })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every command below `command` that has no commands of its own, and the words that name it.
    fn commands(words: &str, command: &clap::Command, found: &mut Vec<(String, clap::Command)>) {
        for below in command.get_subcommands() {
            commands(&format!("{words} {}", below.get_name()), below, found);
        }
        found.push((words.to_owned(), command.clone()));
    }

    #[test]
    fn the_help_of_every_command_has_examples_that_can_be_read() {
        let mut found = Vec::new();
        commands("frameyard", &command(), &mut found);
        for (words, of) in found {
            let help = of.get_after_help().map(ToString::to_string).unwrap_or_default();
            let (_, examples) = help.split_once("Example").unwrap_or_else(|| panic!("{words}: no example: {help}"));
            let lines = examples.lines().map(str::trim).filter(|line| line.starts_with("frameyard"));
            assert!(lines.clone().any(|line| line.starts_with(&words)), "{words}: {help}");
            for line in lines {
                // Explanations stand apart; shells redirect.
                let line = line.split("   ").next().unwrap().split(" >").next().unwrap().replace('\'', "");
                let read = command().try_get_matches_from(line.split_whitespace());
                assert!(read.is_ok(), "{line}: {}", read.unwrap_err());
            }
        }
    }

    #[test]
    fn every_workload_states_its_duration_and_has_a_quick_run() {
        let mut found = Vec::new();
        commands("frameyard", &command(), &mut found);
        let workloads = found
            .iter()
            .filter(|(words, _)| words.starts_with("frameyard bench ") || words.starts_with("frameyard sim "));
        assert!(workloads.clone().count() > 25);
        for (words, of) in workloads {
            let help = of.get_after_help().map(ToString::to_string).unwrap_or_default();
            assert!(help.contains("Takes ") && help.contains("--quick"), "{words}: {help}");
            assert!(of.get_arguments().any(|arg| arg.get_id() == "quick"), "{words}");
        }
    }
}
