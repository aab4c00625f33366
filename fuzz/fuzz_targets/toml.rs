//! Any text: a valid machine that prints to the same machine, or an error of one line.
#![no_main]

use frameyard_machines::from_toml;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| match from_toml("fuzz", text) {
    Ok(machine) => {
        assert_eq!(machine.validate(), Ok(()));
        assert_eq!(from_toml("fuzz", &machine.to_toml()), Ok(machine));
    }
    Err(error) => assert!(!error.to_string().contains('\n'), "{error}"),
});
