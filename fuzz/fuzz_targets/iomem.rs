//! Any text: a valid machine that scales and prints to the same machine, or an error of one line.
#![no_main]

use frameyard_machines::{from_iomem, from_toml};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| match from_iomem("fuzz", text) {
    Ok(machine) => {
        assert_eq!(machine.validate(), Ok(()));
        assert_eq!(from_toml("fuzz", &machine.to_toml()).as_ref(), Ok(&machine));
        let size = machine.installed_bytes();
        if let Ok(scaled) = machine.scaled(frameyard::ByteSize(size.0 / 2)) {
            assert_eq!(scaled.validate(), Ok(()));
        }
    }
    Err(error) => assert!(!error.to_string().contains('\n'), "{error}"),
});
