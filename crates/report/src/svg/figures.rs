//! Heat maps and charts of numbers, one below the other.

use super::layout::MARGIN;
use super::pen::{Font, Pen, Rect, fit, px};

/// Steps of the colours between best and worst.
const STEPS: usize = 6;

const CHART_WIDTH: i32 = 520;
const CHART_HEIGHT: i32 = 260;

/// A drawing that grows downwards.
#[derive(Debug)]
pub(crate) struct Figures {
    pen: Pen,
    title: String,
    y: i32,
    width: i32,
}

/// How a direction of a chart is divided.
#[derive(Clone, Debug)]
pub(crate) struct Axis {
    name: String,
    is_log2: bool,
    /// Numbers are bytes and shown as such.
    is_bytes: bool,
}

impl Axis {
    /// From 0 on, in equal steps.
    pub(crate) fn linear(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            is_log2: false,
            is_bytes: false,
        }
    }

    /// Each step is twice the one before.
    pub(crate) fn log2(name: &str) -> Self {
        Self {
            is_log2: true,
            ..Self::linear(name)
        }
    }

    /// Sizes, each step twice the one before.
    pub(crate) fn bytes(name: &str) -> Self {
        Self {
            is_bytes: true,
            ..Self::log2(name)
        }
    }

    fn place(&self, value: f64) -> f64 {
        if self.is_log2 {
            value.max(f64::MIN_POSITIVE).log2()
        } else {
            value
        }
    }

    fn tick(&self, value: f64) -> String {
        if self.is_bytes {
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "sizes are whole"
            )]
            let bytes = value as u64;
            return homenode_units::Bytes(bytes).to_string();
        }
        if value.abs() >= 10.0 || value.fract().abs() < 1e-9 {
            format!("{value:.0}")
        } else {
            format!("{value:.1}")
        }
    }
}

/// A curve with a band around it.
#[derive(Clone, Debug)]
pub(crate) struct Curve {
    pub(crate) name: String,
    /// x, y, lower and upper end of the band.
    points: Vec<[f64; 4]>,
}

impl Curve {
    pub(crate) fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            points: Vec::new(),
        }
    }

    pub(crate) fn add(&mut self, x: f64, y: f64, low: f64, high: f64) {
        self.points.push([x, y, low, high]);
    }

    /// Puts the points in order; whether there are enough for a line.
    pub(crate) fn sort(&mut self) -> bool {
        self.points.sort_by(|a, b| a[0].total_cmp(&b[0]));
        self.points.len() > 1
    }
}

/// A length in pixels.
#[expect(
    clippy::cast_possible_truncation,
    reason = "a drawing is some hundred pixels large"
)]
fn pixels(length: f64) -> i32 {
    length.round().clamp(-1e6, 1e6) as i32
}

impl Figures {
    /// Begins a drawing about a machine.
    pub(crate) fn new(machine: &str) -> Self {
        let mut pen = Pen::default();
        let machine = if machine.is_empty() {
            "an unnamed processor"
        } else {
            machine
        };
        let title = format!("measured on {machine}");
        let shown = fit(&title, CHART_WIDTH, Font::Head);
        pen.text(MARGIN, MARGIN + 12, Font::Head, "", &shown);
        Self {
            pen,
            title,
            y: MARGIN + 24,
            width: CHART_WIDTH + 2 * MARGIN,
        }
    }

    /// Adds a matrix: the best value is light, the worst dark, and each cell has its number.
    pub(crate) fn heat(
        &mut self,
        title: &str,
        (rows, columns): (&[String], &[String]),
        values: &[Vec<Option<f64>>],
        shown: impl Fn(f64) -> String,
        is_lower_better: bool,
    ) {
        let all = || values.iter().flatten().flatten().copied();
        let (Some(least), Some(most)) = (all().reduce(f64::min), all().reduce(f64::max)) else {
            return;
        };
        let widest = all()
            .map(|value| Font::Small.width(&shown(value)))
            .max()
            .unwrap_or(0);
        let cell = if columns.len() > 24 {
            12
        } else {
            (widest + 8).max(28)
        };
        let label = rows
            .iter()
            .map(|name| Font::Small.width(name))
            .max()
            .unwrap_or(0)
            + 8;
        self.heading(title);
        let (left, top) = (MARGIN + label, self.y + 14);
        for (index, name) in columns.iter().enumerate() {
            let x = left + px(index) * cell + cell / 2;
            self.pen.text(x, top - 4, Font::Small, "faint middle", name);
        }
        for (row, name) in rows.iter().enumerate() {
            let y = top + px(row) * cell;
            self.pen
                .text(left - 4, y + cell / 2 + 3, Font::Small, "faint end", name);
            for (column, value) in values[row].iter().enumerate() {
                let rect = Rect::new(left + px(column) * cell, y, cell, cell);
                let text = value.map_or_else(|| "n/a".to_owned(), &shown);
                let class = match value {
                    Some(value) => {
                        let share = if most > least {
                            (value - least) / (most - least)
                        } else {
                            0.0
                        };
                        let share = if is_lower_better || most <= least {
                            share
                        } else {
                            1.0 - share
                        };
                        format!("cell step-{}", pixels(share * f64::from(px(STEPS))))
                    }
                    None => "cell".to_owned(),
                };
                let words = format!("{name} to {}: {text}", columns[column]);
                self.pen.open_pair(&class, name, &columns[column], &words);
                self.pen.rect(rect, "");
                if cell >= 20 {
                    let (x, y) = rect.middle();
                    self.pen.text(x, y + 3, Font::Small, "middle", &text);
                }
                self.pen.close();
            }
        }
        self.width = self.width.max(left + px(columns.len()) * cell + MARGIN);
        self.y = top + px(rows.len()) * cell + 24;
    }

    /// Adds a chart; y begins at 0.
    pub(crate) fn chart(&mut self, title: &str, x: &Axis, y: &Axis, curves: &[Curve]) {
        let points = || curves.iter().flat_map(|curve| &curve.points);
        let xs = || points().map(|point| x.place(point[0]));
        let (Some(first), Some(last)) = (xs().reduce(f64::min), xs().reduce(f64::max)) else {
            return;
        };
        let top_value = points()
            .map(|point| point[3].max(point[1]))
            .fold(0.0, f64::max);
        let step = nice_step(top_value);
        let top_value = (top_value / step).ceil().max(1.0) * step;
        self.heading(title);
        let left = MARGIN + 56;
        let (width, height) = (CHART_WIDTH - 56, CHART_HEIGHT);
        let bottom = self.y + 18 + height;
        let across = |value: f64| {
            let share = if last > first {
                (x.place(value) - first) / (last - first)
            } else {
                0.5
            };
            left + pixels(share * f64::from(width))
        };
        let up = |value: f64| bottom - pixels(value / top_value * f64::from(height));
        self.pen.open(None, "axis", None);
        self.pen
            .text(MARGIN, self.y + 10, Font::Small, "faint", &y.name);
        for number in 0..=pixels(top_value / step) {
            let value = f64::from(number) * step;
            self.pen
                .path((left, up(value)), None, (left + width, up(value)));
            self.pen.text(
                left - 6,
                up(value) + 3,
                Font::Small,
                "faint end",
                &y.tick(value),
            );
        }
        let mut taken = i32::MIN;
        for value in ticks(x, points().map(|point| point[0]).collect()) {
            let text = x.tick(value);
            let at = across(value);
            let half = Font::Small.width(&text) / 2 + 3;
            if at - half > taken {
                self.pen
                    .text(at, bottom + 14, Font::Small, "faint middle", &text);
                taken = at + half;
            }
        }
        self.pen
            .text(left + width, bottom + 28, Font::Small, "faint end", &x.name);
        self.pen.close();
        for (number, curve) in curves.iter().enumerate() {
            self.pen.open(
                None,
                &format!("curve series-{}", number % SERIES),
                Some(&curve.name),
            );
            let line: Vec<(i32, i32)> = curve
                .points
                .iter()
                .map(|point| (across(point[0]), up(point[1])))
                .collect();
            let upper = curve
                .points
                .iter()
                .map(|point| (across(point[0]), up(point[3])));
            let lower = curve
                .points
                .iter()
                .rev()
                .map(|point| (across(point[0]), up(point[2])));
            self.pen.polygon(&upper.chain(lower).collect::<Vec<_>>());
            self.pen.polyline(&line);
            for &point in &line {
                self.pen.marker(point, number % SERIES);
            }
            self.pen.close();
        }
        self.y = bottom + 36;
        self.legend(curves, left);
        self.y += 16;
    }

    /// The names of the curves, with their markers.
    fn legend(&mut self, curves: &[Curve], left: i32) {
        let mut x = left;
        for (number, curve) in curves.iter().enumerate() {
            let taken = 18 + Font::Text.width(&curve.name) + 16;
            if x > left && x + taken > left + CHART_WIDTH {
                x = left;
                self.y += 18;
            }
            self.pen
                .open(None, &format!("curve series-{}", number % SERIES), None);
            self.pen.polyline(&[(x, self.y), (x + 12, self.y)]);
            self.pen.marker((x + 6, self.y), number % SERIES);
            self.pen.close();
            self.pen
                .text(x + 18, self.y + 4, Font::Text, "", &curve.name);
            x += taken;
        }
        self.y += 18;
    }

    fn heading(&mut self, title: &str) {
        self.y += 8;
        let title = fit(title, CHART_WIDTH, Font::Text);
        self.pen.text(MARGIN, self.y + 10, Font::Text, "", &title);
        self.y += 18;
    }

    pub(crate) fn finish(self) -> String {
        super::document(&self.title, self.width, self.y + MARGIN, &self.pen.finish())
    }
}

/// Colours and markers of curves.
const SERIES: usize = 6;

/// A step of 1, 2 or 5 times a power of ten that divides a height into four to ten parts.
fn nice_step(top: f64) -> f64 {
    let rough = (top / 5.0).max(1e-9);
    let power = 10f64.powf(rough.log10().floor());
    let digit = rough / power;
    power
        * if digit > 5.0 {
            10.0
        } else if digit > 2.0 {
            5.0
        } else if digit > 1.0 {
            2.0
        } else {
            1.0
        }
}

/// Where numbers stand below a chart: at the points of a logarithmic axis, else in equal steps.
fn ticks(axis: &Axis, mut values: Vec<f64>) -> Vec<f64> {
    values.sort_by(f64::total_cmp);
    values.dedup();
    if axis.is_log2 {
        return values;
    }
    let most = values.last().copied().unwrap_or(0.0);
    let step = nice_step(most);
    let least = values.first().copied().unwrap_or(0.0);
    (0..=pixels(most / step))
        .map(|number| f64::from(number) * step)
        .filter(|&value| value >= least)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_round_numbers() {
        for (top, step) in [
            (100.0, 20.0),
            (37.0, 10.0),
            (9.0, 2.0),
            (1.0, 0.2),
            (260.0, 100.0),
        ] {
            assert!(
                (nice_step(top) - step).abs() < 1e-9,
                "{top}: {}",
                nice_step(top)
            );
        }
    }

    #[test]
    fn figures_stay_inside_their_paper_and_show_every_number() {
        let mut figures = Figures::new("a <processor>");
        let names = ["0".to_owned(), "1".to_owned()];
        let values = vec![vec![Some(80.8), Some(136.2)], vec![None, Some(79.7)]];
        figures.heat(
            "latency",
            (&names, &names),
            &values,
            |value| format!("{value:.1}"),
            true,
        );
        let mut curve = Curve::new("local");
        curve.add(8192.0, 2.0, 1.9, 2.1);
        curve.add(4096.0, 1.0, 1.0, 1.0);
        assert!(curve.sort());
        figures.chart(
            "by size",
            &Axis::bytes("size"),
            &Axis::linear("ns"),
            &[curve],
        );
        let svg = figures.finish();
        for text in [
            "80.8",
            "136.2",
            "79.7",
            "n/a",
            "4 KiB",
            "8 KiB",
            "local",
            "&lt;processor&gt;",
        ] {
            assert!(svg.contains(text), "{text}");
        }
        // The fastest cell is the lightest.
        assert!(svg.contains("cell step-0") && svg.contains("cell step-6"));
        assert!(!svg.contains("NaN") && !svg.contains("inf"));
    }
}
