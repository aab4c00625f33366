//! Profiles of virtual time, as folded stacks.

use std::fs;
use std::path::{Path, PathBuf};

use crate::Failure;
use frameyard_workloads::Setting;
use frameyard_workloads::simulated::TimeSpent;

/// Writes the profile of each run: to the file where there is one run, else each to one of its own, named after its setting.
///
/// # Errors
///
/// [`Failure::RunTime`] where a file cannot be written.
pub(super) fn write<'s>(
    file: &Path,
    runs: impl ExactSizeIterator<Item = (Setting, &'s TimeSpent)>,
) -> Result<(), Failure> {
    let is_alone = runs.len() == 1;
    for (setting, spent) in runs {
        let path = if is_alone { file.to_owned() } else { named_after(file, &setting) };
        let text: String = spent.folded().map(|line| line + "\n").collect();
        let failed = |error| Failure::run_time(format!("{}: cannot write the profile: {error}", path.display()));
        fs::write(&path, text).map_err(failed)?;
    }
    Ok(())
}

/// The file of one of several runs: the name has the setting before its ending.
fn named_after(file: &Path, setting: &Setting) -> PathBuf {
    let mode = setting.mode.name();
    let Setting { tasks, zone, lru, .. } = setting;
    let stem = file.file_stem().unwrap_or_default().to_string_lossy();
    let name = format!("{stem}-{mode}-{tasks}-{}-{}", zone.name(), lru.name());
    match file.extension() {
        Some(ending) => file.with_file_name(format!("{name}.{}", ending.to_string_lossy())),
        None => file.with_file_name(name),
    }
}

#[cfg(test)]
mod tests {
    use frameyard_workloads::TaskMode;

    use super::*;
    use frameyard::ZonePolicy;
    use frameyard_vm::LruPolicy;
    use std::num::NonZeroU32;

    #[test]
    fn a_file_of_several_is_named_after_its_setting() {
        let setting = Setting {
            mode: TaskMode::Processes,
            tasks: NonZeroU32::new(40).unwrap(),
            zone: ZonePolicy::Vanilla416,
            lru: LruPolicy::Sharded,
        };
        let named = |file| named_after(Path::new(file), &setting).display().to_string();
        assert_eq!(named("a/b.folded"), "a/b-processes-40-vanilla-4.16-sharded.folded");
        assert_eq!(named("b"), "b-processes-40-vanilla-4.16-sharded");
    }
}
