//! Rows as lines of a plot, in an SVG file.

use std::collections::BTreeMap;
use std::error::Error;
use std::io;

use clap::{Args, ValueHint};
use plotters::prelude::*;

use super::{OutputFile, Row};
use crate::Failure;

/// Where a plot goes.
#[derive(Args, Clone, Debug)]
pub(crate) struct PlotArgs {
    /// Also plot the rows to a file (SVG)
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    plot: Option<OutputFile>,
}

/// What a plot shows of each row. Both scales are logarithmic.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plot {
    /// The line above the plot.
    pub(crate) title: &'static str,
    /// The keys of the columns whose values each have a line, together.
    pub(crate) line: &'static [&'static str],
    /// The key and the label of the horizontal axis.
    pub(crate) x: (&'static str, &'static str),
    /// The key and the label of the vertical axis.
    pub(crate) y: (&'static str, &'static str),
    /// What values of the vertical axis are divided by.
    pub(crate) y_unit: f64,
}

/// The size in pixels.
const SIZE: (u32, u32) = (960, 600);
const FONT: (&str, u32) = ("sans-serif", 15);

/// The points of each line, in order of the rows.
type Lines = BTreeMap<String, Vec<(f64, f64)>>;

impl Plot {
    /// Writes the plot of some rows to the file that was asked for, if any.
    ///
    /// # Errors
    ///
    /// As for [`write`](Self::write).
    pub(crate) fn write_if_asked(&self, rows: &[Row], args: &PlotArgs) -> Result<(), Failure> {
        args.plot.as_ref().map_or(Ok(()), |file| self.write(rows, file))
    }

    /// Writes the plot of some rows. A row without one of the values has no point.
    ///
    /// # Errors
    ///
    /// [`Failure::Input`] if no row has a point, [`Failure::RunTime`] if the file cannot be written.
    fn write(&self, rows: &[Row], file: &OutputFile) -> Result<(), Failure> {
        let lines = self.lines(rows);
        if lines.is_empty() {
            return Err(Failure::input(format!("{}: no row has a point to plot", file.path().display())));
        }
        file.write(|out| {
            let mut svg = String::new();
            self.draw(&lines, &mut svg).map_err(|error| io::Error::other(error.to_string()))?;
            out.write_all(svg.as_bytes())
        })
    }

    fn lines(&self, rows: &[Row]) -> Lines {
        let mut lines = Lines::new();
        for row in rows {
            let names: Option<Vec<&str>> = self.line.iter().map(|key| row.text(key)).collect();
            if let (Some(names), Some(x), Some(y)) = (names, row.number(self.x.0), row.number(self.y.0)) {
                lines.entry(names.join(", ")).or_default().push((x, y / self.y_unit));
            }
        }
        lines
    }

    fn draw<'a>(&self, lines: &'a Lines, svg: &'a mut String) -> Result<(), Box<dyn Error + 'a>> {
        let points = || lines.values().flatten();
        let range = |of: fn(&(f64, f64)) -> f64, margin: f64| {
            let (least, most) = (points().map(of).fold(f64::MAX, f64::min), points().map(of).fold(f64::MIN, f64::max));
            (least / margin..most * margin).log_scale()
        };
        let area = SVGBackend::with_string(svg, SIZE).into_drawing_area();
        area.fill(&WHITE)?;
        let mut chart = ChartBuilder::on(&area)
            .caption(self.title, FONT)
            .margin(15)
            .x_label_area_size(45)
            .y_label_area_size(60)
            .build_cartesian_2d(range(|point| point.0, 1.1), range(|point| point.1, 1.2))?;
        chart.configure_mesh().x_desc(self.x.1).y_desc(self.y.1).label_style(FONT).axis_desc_style(FONT).draw()?;
        for (number, (name, points)) in lines.iter().enumerate() {
            let colour = Palette99::pick(number).to_rgba();
            let drawn =
                chart.draw_series(LineSeries::new(points.iter().copied(), colour.stroke_width(2)).point_size(3))?;
            drawn.label(name).legend(move |(x, y)| PathElement::new([(x, y), (x + 20, y)], colour.stroke_width(2)));
        }
        let mut legend = chart.configure_series_labels();
        legend.background_style(WHITE.mix(0.8)).border_style(BLACK).label_font(FONT).draw()?;
        area.present()?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLOT: Plot = Plot { title: "Times", line: &["name"], x: ("n", "threads"), y: ("ns", "ms"), y_unit: 1e6 };

    fn row(name: &'static str, n: u64, ns: Option<u64>) -> Row {
        Row::new().data("name", name).data("n", n).data("ns", ns)
    }

    #[test]
    fn each_name_is_a_line_and_each_value_a_point() {
        let rows = [
            row("alpha", 1, Some(4_000_000)),
            row("beta", 1, Some(9)),
            row("alpha", 2, None),
            row("alpha", 4, Some(1)),
        ];
        let lines = PLOT.lines(&rows);
        assert_eq!(lines["alpha"], [(1.0, 4.0), (4.0, 1e-6)]);
        let mut svg = String::new();
        PLOT.draw(&lines, &mut svg).unwrap();
        assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>"));
        for text in ["Times", "threads", "ms", "alpha", "beta"] {
            assert!(svg.lines().any(|line| line.trim() == text), "{text}: {svg}");
        }
        assert_eq!(svg.matches("<circle").count(), 3);
    }

    #[test]
    fn rows_without_points_are_refused() {
        let path = std::env::temp_dir().join(format!("frameyard-plot-{}.svg", std::process::id()));
        let file = OutputFile::create(&path).unwrap();
        assert_eq!(PLOT.write(&[row("alpha", 2, None)], &file).unwrap_err().code(), 2);
        std::fs::remove_file(path).unwrap();
    }
}
