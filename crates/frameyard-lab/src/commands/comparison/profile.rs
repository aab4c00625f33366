//! Profiles of virtual time, as folded stacks.

use std::path::{Path, PathBuf};

use frameyard::watermarks::PcpSizing;
use frameyard_workloads::Setting;
use frameyard_workloads::sim::TimeSpent;

use crate::Failure;
use crate::output::OutputFile;

/// Writes the profile of each run: to the file if there is one run, else each run to its own file, with the run's name.
///
/// # Errors
///
/// [`Failure::RunTime`] where a file cannot be written.
pub(in crate::commands) fn write<'s>(
    file: &OutputFile,
    runs: impl ExactSizeIterator<Item = (String, &'s TimeSpent)>,
) -> Result<(), Failure> {
    let is_alone = runs.len() == 1;
    for (name, spent) in runs {
        let file = if is_alone { file.clone() } else { OutputFile::create(named_after(file.path(), &name))? };
        file.write(|out| spent.folded().try_for_each(|line| writeln!(out, "{line}")))?;
    }
    Ok(())
}

/// The name of a run with a setting, and with a sizing of per-CPU lists if runs differ in it.
pub(super) fn name_of(Setting { mode, tasks, zone, lru }: Setting, sizing: Option<PcpSizing>) -> String {
    let sizing = sizing.map_or_else(String::new, |sizing| format!("-{sizing}").replace(':', "-"));
    format!("{}-{tasks}-{}-{}{sizing}", mode.name(), zone.name(), lru.name())
}

/// The file of one of several runs: the run's name stands before the extension.
fn named_after(file: &Path, run: &str) -> PathBuf {
    let stem = file.file_stem().unwrap_or_default().to_string_lossy();
    let name = format!("{stem}-{run}");
    match file.extension() {
        Some(extension) => file.with_file_name(format!("{name}.{}", extension.to_string_lossy())),
        None => file.with_file_name(name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use frameyard::policy::ZonePolicy;
    use frameyard_vm::LruPolicy;
    use frameyard_workloads::TaskMode;
    use std::num::NonZeroU32;

    #[test]
    fn a_file_of_several_is_named_after_its_setting() {
        let setting = Setting {
            mode: TaskMode::Processes,
            tasks: NonZeroU32::new(40).unwrap(),
            zone: ZonePolicy::Vanilla416,
            lru: LruPolicy::Sharded,
        };
        let named = |file| named_after(Path::new(file), &name_of(setting, None)).display().to_string();
        assert_eq!(named("a/b.folded"), "a/b-processes-40-vanilla-4.16-sharded.folded");
        assert_eq!(named("b"), "b-processes-40-vanilla-4.16-sharded");
        assert_eq!(name_of(setting, "fraction:8".parse().ok()), "processes-40-vanilla-4.16-sharded-fraction-8");
    }
}
