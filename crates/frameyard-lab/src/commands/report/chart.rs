//! Charts as SVG for a page: text and axes in the colour of the page's text, series in colours that are legible on light and
//! dark pages. A legend is part of the page, where it wraps on narrow screens.

use std::error::Error;
use std::ops::Range;

use plotters::coord::ranged1d::{Ranged, ValueFormatter};
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

/// Size in pixels; the page scales it. The width is that of a phone's page, where text has the size that it has here.
const WIDTH: u32 = 360;
const HEIGHT: u32 = 280;
/// `plotters` writes text of 1.24 times the size in pixels.
const FONT: (&str, u32) = ("sans-serif", 14);
/// Height of a bar with its name above, and of what is above and below the bars.
const BAR: u32 = 40;
const AROUND_BARS: u32 = 60;
/// The part of a bar's height that its name has.
const NAME: f64 = 0.45;
/// Room for half a label at the ends of the axis.
const MARGIN: u32 = 12;

/// Colours of series, in order.
const COLOURS: [RGBColor; 8] = [
    RGBColor(0x3b, 0x82, 0xd6),
    RGBColor(0xd9, 0x82, 0x2b),
    RGBColor(0x2e, 0x9e, 0x5b),
    RGBColor(0xb9, 0x5f, 0xc0),
    RGBColor(0xd9, 0x53, 0x4f),
    RGBColor(0x1f, 0x9a, 0xa5),
    RGBColor(0x9a, 0x8f, 0x1d),
    RGBColor(0x8a, 0x8a, 0x8a),
];

/// The colour of a series, as CSS writes it.
pub(super) fn css_colour(number: usize) -> String {
    let RGBColor(red, green, blue) = COLOURS[number % COLOURS.len()];
    format!("#{red:02x}{green:02x}{blue:02x}")
}

/// How the points of a series are drawn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Style {
    /// A line with its points.
    Curve,
    /// A line alone.
    Outline,
    /// Crosses: published values.
    Crosses,
    /// Large dots: values measured here.
    Dots,
}

/// A series of a chart.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Series {
    pub(super) label: String,
    pub(super) style: Style,
    pub(super) points: Vec<(f64, f64)>,
    /// The number of the colour: series about the same thing share one.
    pub(super) colour: usize,
}

/// The scale of the horizontal axis.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Scale {
    Linear,
    Log,
}

/// A chart of points and lines.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Chart {
    pub(super) x: &'static str,
    pub(super) y: &'static str,
    pub(super) scale: Scale,
    pub(super) series: Vec<Series>,
}

/// Horizontal bars, each of one or more parts, with marks.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Bars {
    pub(super) x: &'static str,
    pub(super) names: Vec<String>,
    /// Label and lengths for each bar.
    pub(super) parts: Vec<(String, Vec<f64>)>,
    /// A value that each bar is compared with.
    pub(super) marks: Option<(String, Vec<Option<f64>>)>,
}

impl Chart {
    /// The SVG element.
    ///
    /// # Errors
    ///
    /// Why it cannot be drawn: there is no point.
    pub(super) fn svg(&self) -> Result<String, String> {
        let points = || self.series.iter().flat_map(|series| &series.points);
        let range = |of: fn(&(f64, f64)) -> f64| {
            let values = points().map(of).filter(|value| value.is_finite());
            values.fold(None, |range: Option<(f64, f64)>, value| {
                Some(range.map_or((value, value), |(least, most)| (least.min(value), most.max(value))))
            })
        };
        let (Some(x), Some((_, top))) = (range(|point| point.0), range(|point| point.1)) else {
            return Err("no point to draw".to_owned());
        };
        let y = 0.0..if top > 0.0 { top * 1.1 } else { 1.0 };
        let mut svg = String::new();
        let drawn = match self.scale {
            Scale::Linear => self.draw(&mut svg, 0.0..(x.1 * 1.05).max(1.0), y),
            Scale::Log => self.draw(&mut svg, (x.0.max(1e-9)..(x.1 * 1.1)).log_scale(), y),
        };
        drawn?;
        Ok(for_page(&svg, WIDTH, HEIGHT))
    }

    fn draw<X>(&self, svg: &mut String, x: X, y: Range<f64>) -> Result<(), String>
    where
        X: plotters::coord::ranged1d::AsRangedCoord<Value = f64>,
        X::CoordDescType: ValueFormatter<f64> + Ranged<ValueType = f64>,
    {
        self.try_draw(svg, x, y).map_err(|error| error.to_string())
    }

    fn try_draw<'s, X>(&self, svg: &'s mut String, x: X, y: Range<f64>) -> Result<(), Box<dyn Error + 's>>
    where
        X: plotters::coord::ranged1d::AsRangedCoord<Value = f64>,
        X::CoordDescType: ValueFormatter<f64> + Ranged<ValueType = f64>,
    {
        let area = SVGBackend::with_string(svg, (WIDTH, HEIGHT)).into_drawing_area();
        let mut chart = ChartBuilder::on(&area)
            .margin(MARGIN)
            .x_label_area_size(40)
            .y_label_area_size(52)
            .build_cartesian_2d(x, y)?;
        let mut mesh = chart.configure_mesh();
        mesh.x_desc(self.x)
            .y_desc(self.y)
            .label_style(FONT)
            .axis_desc_style(FONT)
            .x_labels(5)
            .y_labels(6)
            .max_light_lines(0);
        mesh.y_label_formatter(&|value| short(*value)).x_label_formatter(&|value| short(*value)).draw()?;
        for series in &self.series {
            let colour = COLOURS[series.colour % COLOURS.len()];
            let points = series.points.iter().copied();
            let line = colour.stroke_width(2);
            match series.style {
                Style::Curve => chart.draw_series(LineSeries::new(points, line).point_size(3))?,
                Style::Outline => chart.draw_series(LineSeries::new(points, line))?,
                Style::Crosses => chart.draw_series(points.map(|point| Cross::new(point, 4, line)))?,
                Style::Dots => chart.draw_series(points.map(|point| Circle::new(point, 5, colour.filled())))?,
            };
        }
        area.present()?;
        Ok(())
    }
}

impl Bars {
    /// The SVG element.
    ///
    /// # Errors
    ///
    /// Why it cannot be drawn: there is no bar.
    pub(super) fn svg(&self) -> Result<String, String> {
        let lengths = (0..self.names.len()).map(|bar| self.parts.iter().map(|(_, values)| values[bar]).sum::<f64>());
        let marks = self.marks.iter().flat_map(|(_, values)| values.iter().copied().flatten());
        let most = lengths.chain(marks).fold(0.0, f64::max);
        if self.names.is_empty() || most <= 0.0 {
            return Err("no bar to draw".to_owned());
        }
        let height = AROUND_BARS + BAR * self.names.len() as u32;
        let mut svg = String::new();
        self.draw(&mut svg, height, most * 1.05).map_err(|error| error.to_string())?;
        Ok(for_page(&svg, WIDTH, height))
    }

    fn draw<'s>(&self, svg: &'s mut String, height: u32, most: f64) -> Result<(), Box<dyn Error + 's>> {
        let count = self.names.len();
        let area = SVGBackend::with_string(svg, (WIDTH, height)).into_drawing_area();
        let mut chart = ChartBuilder::on(&area)
            .margin(MARGIN)
            .x_label_area_size(40)
            .build_cartesian_2d(0.0..most, 0.0..count as f64)?;
        let mut mesh = chart.configure_mesh();
        mesh.x_desc(self.x).label_style(FONT).axis_desc_style(FONT).x_labels(5).y_labels(0);
        mesh.max_light_lines(0).disable_y_mesh().x_label_formatter(&|value| short(*value)).draw()?;
        let above = Pos::new(HPos::Left, VPos::Bottom);
        for (bar, name) in self.names.iter().enumerate() {
            // The first bar is on top.
            let row = (count - 1 - bar) as f64;
            let (bottom, top) = (row + 0.1, row + 1.0 - NAME);
            let (x, y) = chart.backend_coord(&(0.0, top));
            area.draw(&Text::new(name.as_str(), (x + 2, y - 2), FONT.into_text_style(&area).pos(above)))?;
            let mut from = 0.0;
            for (number, (_, values)) in self.parts.iter().enumerate() {
                let to = from + values[bar];
                let colour = COLOURS[number % COLOURS.len()].filled();
                chart.draw_series([Rectangle::new([(from, bottom), (to, top)], colour)])?;
                from = to;
            }
            let mark = self.marks.as_ref().and_then(|(_, values)| values[bar]);
            let line = |value| PathElement::new([(value, row), (value, top + 0.1)], BLACK.stroke_width(2));
            chart.draw_series(mark.map(line))?;
        }
        area.present()?;
        Ok(())
    }
}

/// A number of an axis.
fn short(value: f64) -> String {
    match value.abs() {
        0.0 => "0".to_owned(),
        large if large >= 1e6 => format!("{}M", value / 1e6),
        large if large >= 1e4 => format!("{}k", value / 1e3),
        _ => format!("{}", (value * 1e3).round() / 1e3),
    }
}

/// The SVG as the page takes it: scaled by the page, black in the colour of the text.
fn for_page(svg: &str, width: u32, height: u32) -> String {
    let begin = svg.find('>').map_or(0, |end| end + 1);
    let body = svg[begin..].replace("\"#000000\"", "\"currentColor\"");
    format!("<svg viewBox=\"0 0 {width} {height}\" role=\"img\">{body}")
}

/// The SVG of a page as a file of its own, on a white ground.
pub(super) fn standalone(svg: &str) -> String {
    let ground = "<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>";
    let begin = svg.find('>').map_or(0, |end| end + 1);
    let element = svg[..begin].replace("<svg ", "<svg xmlns=\"http://www.w3.org/2000/svg\" color=\"#1b1b1b\" ");
    format!("{element}{ground}{}", &svg[begin..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chart_takes_the_colour_of_the_page_and_has_its_points() {
        let series =
            Series { label: "a".to_owned(), style: Style::Dots, points: vec![(1.0, 2.0), (2.0, 3.0)], colour: 1 };
        let chart = Chart { x: "tasks", y: "rate", scale: Scale::Linear, series: vec![series] };
        let svg = chart.svg().unwrap();
        assert!(svg.starts_with("<svg viewBox=\"0 0 360 280\"") && svg.trim_end().ends_with("</svg>"), "{svg}");
        assert!(!svg.contains("#000000") && svg.contains("currentColor"));
        assert_eq!(svg.matches("<circle").count(), 2);
        let empty = Chart { series: Vec::new(), ..chart };
        assert!(empty.svg().is_err());
    }

    #[test]
    fn bars_have_a_rectangle_for_each_part_and_a_mark() {
        let bars = Bars {
            x: "share",
            names: vec!["one".to_owned(), "two".to_owned()],
            parts: vec![("p".to_owned(), vec![1.0, 2.0]), ("q".to_owned(), vec![3.0, 4.0])],
            marks: Some(("limit".to_owned(), vec![Some(5.0), None])),
        };
        let svg = bars.svg().unwrap();
        assert_eq!(svg.matches("<rect").count(), 4, "{svg}");
        assert!(svg.contains("one") && svg.contains("two"));
        assert!(Bars { names: Vec::new(), parts: Vec::new(), marks: None, ..bars }.svg().is_err());
    }
}
