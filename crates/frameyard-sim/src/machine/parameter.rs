//! A machine's numbers by path, as `costs.read_overlap` or `clock.mhz[4]`, with their bounds.

use std::ops::RangeInclusive;

use super::{Machine, MachineError};

/// A number at a fixed path.
struct Number {
    path: &'static str,
    bounds: (f64, f64),
    get: fn(&Machine) -> f64,
    set: fn(&mut Machine, f64),
}

macro_rules! numbers {
    ($($table:ident { $($key:ident: $least:literal to $most:literal,)* })*) => {
        &[$($(Number {
            path: concat!(stringify!($table), ".", stringify!($key)),
            bounds: ($least, $most),
            get: |machine| machine.$table.$key,
            set: |machine, value| machine.$table.$key = value,
        },)*)*]
    };
}

/// The bounds cover processors of the last fifteen years with a margin.
const NUMBERS: &[Number] = numbers! {
    costs {
        access_cycles: 0.5 to 30.0,
        atomic_cycles: 1.0 to 80.0,
        shared_hit_ns: 5.0 to 80.0,
        same_group_ns: 10.0 to 200.0,
        same_socket_ns: 10.0 to 250.0,
        other_socket_ns: 30.0 to 600.0,
        local_memory_ns: 40.0 to 250.0,
        remote_memory_ns: 60.0 to 500.0,
        store_overlap: 1.0 to 20.0,
        read_overlap: 1.0 to 20.0,
    }
    memory {
        node_gb_per_s: 2.0 to 500.0,
    }
    clock {
        smt_slowdown: 1.0 to 2.5,
    }
    lock {
        handover_transfers: 0.2 to 8.0,
        per_waiter_ns: 0.0 to 100.0,
    }
    kernel_overhead {
        exception_cycles: 100.0 to 5000.0,
        fault_path_cycles: 100.0 to 5000.0,
        zero_page_cycles: 100.0 to 5000.0,
        unmap_page_cycles: 50.0 to 3000.0,
        lru_page_cycles: 0.0 to 1000.0,
        zone_hold_cycles: 0.0 to 30000.0,
        map_call_cycles: 100.0 to 50000.0,
        copy_page_cycles: 100.0 to 10000.0,
        interrupt_cycles: 0.0 to 100000.0,
        block_checks: 0.0 to 1.0,
    }
    map_init {
        page_cycles: 1.0 to 500.0,
        lines_in_flight: 1.0 to 100.0,
        channel_share: 0.1 to 1.0,
        memset_transfers: 1.0 to 2.0,
    }
};

/// The path of all clocks together.
const ALL_CLOCKS: &str = "clock.mhz";
/// Bounds of a clock.
const MHZ: (f64, f64) = (500.0, 6000.0);

/// The index in `clock.mhz` of a path, as 4 in `clock.mhz[4]`.
pub(crate) fn clock_step(path: &str) -> Option<usize> {
    path.strip_prefix(ALL_CLOCKS)?.strip_prefix('[')?.strip_suffix(']')?.parse().ok()
}

impl Machine {
    /// The number at a path: `table.key` as below `[simulation]` in the machine's file, or `clock.mhz[N]` with N from
    /// 0. `clock.mhz` alone is the last clock, with all cores of the socket busy. `None` if there is no such
    /// number.
    #[must_use]
    pub fn parameter(&self, path: &str) -> Option<f64> {
        if path == ALL_CLOCKS {
            return self.clock.mhz.last().map(|mhz| f64::from(*mhz));
        }
        match clock_step(path) {
            Some(step) => self.clock.mhz.get(step).map(|mhz| f64::from(*mhz)),
            None => find(path).map(|number| (number.get)(self)),
        }
    }

    /// Sets the number at a [path](Self::parameter). `clock.mhz` alone scales all clocks so that the last becomes
    /// `value`, in whole MHz.
    ///
    /// # Errors
    ///
    /// [`MachineError::NoParameter`] if there is no such number, [`MachineError::OutOfBounds`] if the value is
    /// outside [its bounds](Self::parameter_bounds). The machine is then unchanged.
    pub fn set_parameter(&mut self, path: &str, value: f64) -> Result<(), MachineError> {
        let bounds = self.parameter_bounds(path).ok_or_else(|| MachineError::NoParameter(path.to_owned()))?;
        if !bounds.contains(&value) {
            let (least, most) = bounds.into_inner();
            return Err(MachineError::OutOfBounds { path: path.to_owned(), least, most });
        }
        if path == ALL_CLOCKS {
            let factor = value / self.parameter(path).unwrap_or(value);
            self.clock.mhz.iter_mut().for_each(|mhz| *mhz = (f64::from(*mhz) * factor).round() as u32);
        } else if let Some(step) = clock_step(path) {
            self.clock.mhz[step] = value.round() as u32;
        } else if let Some(number) = find(path) {
            (number.set)(self, value);
        }
        Ok(())
    }

    /// The bounds of the number at a path; `None` if there is no such number.
    #[must_use]
    pub fn parameter_bounds(&self, path: &str) -> Option<RangeInclusive<f64>> {
        self.parameter(path)?;
        let (least, most) = find(path).map_or(MHZ, |number| number.bounds);
        Some(least..=most)
    }
}

fn find(path: &str) -> Option<&'static Number> {
    NUMBERS.iter().find(|number| number.path == path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_can_be_read_and_set_alone() {
        let before = Machine::built_in("broadwell-40").unwrap();
        for Number { path, bounds: (least, most), .. } in NUMBERS {
            let mut machine = before.clone();
            let value = (least + most) / 2.0;
            machine.set_parameter(path, value).unwrap();
            assert_eq!(machine.parameter(path), Some(value), "{path}");
            for other in NUMBERS.iter().filter(|other| other.path != *path) {
                assert_eq!(machine.parameter(other.path), before.parameter(other.path), "{path} moved {}", other.path);
            }
        }
    }

    #[test]
    fn numbers_of_built_in_machines_are_within_their_bounds() {
        for name in Machine::names() {
            let machine = Machine::built_in(name).unwrap();
            let paths = NUMBERS.iter().map(|number| number.path.to_owned());
            let clocks = (0..machine.clock.mhz.len()).map(|step| format!("clock.mhz[{step}]"));
            for path in paths.chain(clocks) {
                let value = machine.parameter(&path).unwrap();
                assert!(machine.parameter_bounds(&path).unwrap().contains(&value), "{name}: {path} = {value}");
            }
        }
    }

    #[test]
    fn clocks_are_set_one_by_one_or_all_together() {
        let mut machine = Machine::built_in("broadwell-40").unwrap();
        machine.clock.mhz = vec![3000, 2000];
        machine.set_parameter("clock.mhz[0]", 3200.4).unwrap();
        assert_eq!(machine.clock.mhz, [3200, 2000]);
        machine.set_parameter("clock.mhz", 1000.0).unwrap();
        assert_eq!(machine.clock.mhz, [1600, 1000]);
        assert_eq!(machine.parameter("clock.mhz"), Some(1000.0));
        assert_eq!(machine.parameter("clock.mhz[2]"), None);
    }

    #[test]
    fn unknown_and_out_of_bounds_parameters_are_refused_without_a_change() {
        let before = Machine::built_in("broadwell-40").unwrap();
        let mut machine = before.clone();
        for path in ["costs", "costs.nothing", "clock.mhz[8]", "clock.mhz[x]", "topology.sockets"] {
            assert_eq!(machine.set_parameter(path, 1.0), Err(MachineError::NoParameter(path.to_owned())));
        }
        let refused = machine.set_parameter("clock.smt_slowdown", 0.5).unwrap_err().to_string();
        assert_eq!(refused, "clock.smt_slowdown must be from 1 to 2.5");
        assert!(machine.set_parameter("clock.smt_slowdown", f64::NAN).is_err());
        assert_eq!(machine, before);
    }
}
