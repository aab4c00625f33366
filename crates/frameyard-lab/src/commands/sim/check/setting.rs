//! `--set`: predictions for several values of a machine's numbers.

use std::str::FromStr;

use frameyard_sim::Machine;

use crate::Failure;
use crate::output::{Report, Row};

/// Values of one number of a machine.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Setting {
    /// As in [`Machine::parameter`].
    path: String,
    values: Vec<f64>,
}

impl FromStr for Setting {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text}: write a number and its values, as in kernel_overhead.lru_page_cycles=60,120");
        let (path, values) = text.split_once('=').ok_or_else(wrong)?;
        let values = values.split(',').map(|value| value.parse().map_err(|_| wrong())).collect::<Result<_, _>>()?;
        Ok(Self { path: path.to_owned(), values })
    }
}

/// The report of `predict` for each combination of values. Each row begins with its values, under the last parts of their
/// numbers' paths.
pub(super) fn with_each(
    machine: &Machine,
    settings: &[Setting],
    predict: impl Fn(&Machine) -> Result<Report, Failure>,
) -> Result<Report, Failure> {
    if settings.is_empty() {
        return predict(machine);
    }
    let mut rows = Vec::new();
    for (machine, values) in combinations(machine, settings)? {
        rows.extend(predict(&machine)?.rows().iter().map(|row| values.clone().followed_by(row.clone())));
    }
    Ok(Report::new("sim check", rows).of_machine(&machine.name))
}

/// The machine with each combination of values, and the values as columns.
fn combinations(machine: &Machine, settings: &[Setting]) -> Result<Vec<(Machine, Row)>, Failure> {
    let mut all = vec![(machine.clone(), Row::new())];
    for Setting { path, values } in settings {
        let key = path.rsplit('.').next().unwrap_or(path);
        let mut next = Vec::new();
        for (machine, row) in &all {
            for value in values {
                let mut machine = machine.clone();
                machine.set_parameter(path, *value).map_err(Failure::input)?;
                next.push((machine, row.clone().column(key.to_owned(), key.to_owned(), *value)));
            }
        }
        all = next;
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_combination_of_values_has_its_rows() {
        let machine = Machine::built_in("skylake-4s").unwrap();
        let settings =
            ["kernel_overhead.lru_page_cycles=1,2", "costs.access_cycles=5,7.5"].map(|text| text.parse().unwrap());
        let predict = |machine: &Machine| {
            let sum =
                ["kernel_overhead.lru_page_cycles", "costs.access_cycles"].map(|path| machine.parameter(path).unwrap());
            Ok(Report::new("sim check", vec![Row::new().data("sum", sum.iter().sum::<f64>())]))
        };
        let report = with_each(&machine, &settings, predict).unwrap();
        let of = |row: &Row| ["lru_page_cycles", "access_cycles", "sum"].map(|key| row.number(key).unwrap());
        let rows: Vec<[f64; 3]> = report.rows().iter().map(of).collect();
        assert_eq!(rows, [[1.0, 5.0, 6.0], [1.0, 7.5, 8.5], [2.0, 5.0, 7.0], [2.0, 7.5, 9.5]]);
    }

    #[test]
    fn unknown_numbers_and_values_are_refused() {
        assert!("costs.access_cycles".parse::<Setting>().unwrap_err().contains("as in"));
        assert!("costs.access_cycles=1,x".parse::<Setting>().is_err());
        let machine = Machine::built_in("skylake-4s").unwrap();
        let refused = combinations(&machine, &["costs.nothing=1".parse().unwrap()]).err().unwrap();
        assert!(refused.to_string().contains("no parameter"), "{refused}");
    }
}
