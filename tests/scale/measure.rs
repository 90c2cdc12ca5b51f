//! What a scenario came to, and how that is printed.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt::Write as _;
use std::time::{Duration, Instant};

use sim::testbed::Testbed;

use super::controller::{Controller, Usage};

/// Name of the objects that the election locks.
const LOCK: &str = "ccm";
/// Time between two looks.
const LOOK: Duration = Duration::from_millis(20);

/// One scenario, measured.
#[derive(Debug, Default)]
pub(crate) struct Row {
    pub(crate) name: String,
    /// From the cause to the last effect; `None` where time is not the question.
    pub(crate) took: Option<Duration>,
    /// Of the single objects.
    pub(crate) each: Vec<Duration>,
    /// Cloud calls by action, and whether the action writes.
    pub(crate) calls: BTreeMap<(bool, String), usize>,
    /// The minimum of cloud calls.
    pub(crate) floor: usize,
    /// Calls that the cloud refused for their number.
    pub(crate) throttled: usize,
    /// Writes to the API server, locks of the election aside.
    pub(crate) cluster_writes: usize,
    pub(crate) cpu: Duration,
    pub(crate) usage: Usage,
    /// Whether it only says how long some effects of the row before took.
    pub(crate) is_part: bool,
}

impl Row {
    /// The sum of these, in which every call counts once.
    pub(crate) fn of_all(name: &str, took: Duration, rows: &[Self]) -> Self {
        let mut all = Self { name: name.to_owned(), took: Some(took), ..Self::default() };
        for row in rows.iter().filter(|row| !row.is_part) {
            for (action, count) in &row.calls {
                *all.calls.entry(action.clone()).or_default() += count;
            }
            all.floor += row.floor;
            all.throttled += row.throttled;
            all.cluster_writes += row.cluster_writes;
            all.cpu += row.cpu;
            all.usage.resident = row.usage.resident;
            all.usage.peak = all.usage.peak.max(row.usage.peak);
        }
        all
    }

    /// How long each of several effects of one kind took.
    pub(crate) fn of_each(label: &str, each: Vec<Duration>) -> Self {
        Self {
            name: format!("  {label} ({})", each.len()),
            took: each.iter().max().copied(),
            each,
            is_part: true,
            ..Self::default()
        }
    }
}

/// Takes the measure of one scenario.
pub(crate) struct Stopwatch<'a> {
    testbed: &'a Testbed,
    before: Usage,
    patience: Duration,
    began: Instant,
    took: Option<Duration>,
    each: Vec<Duration>,
    born: HashMap<String, Instant>,
}

impl<'a> Stopwatch<'a> {
    /// From now on. Calls before are forgotten.
    pub(crate) fn start(testbed: &'a Testbed, controller: Option<&Controller>, patience: Duration) -> Self {
        let _ = testbed.cloud.take_calls();
        testbed.cluster.clear_calls();
        let before = controller.and_then(Controller::usage).unwrap_or_default();
        Self { testbed, before, patience, began: Instant::now(), took: None, each: Vec::new(), born: HashMap::new() }
    }

    /// The time of this object counts from now on.
    pub(crate) fn born(&mut self, name: String) {
        self.born.insert(name, Instant::now());
    }

    /// Waits until `names` gives `count` different names, and notes how long each took.
    pub(crate) async fn until_all(
        &mut self,
        what: &str,
        count: usize,
        names: impl Fn(&Testbed) -> Vec<String>,
    ) -> Result<(), String> {
        let mut seen = BTreeSet::new();
        self.each.clear();
        loop {
            let looking = Instant::now();
            for name in names(self.testbed) {
                let born = self.born.get(&name).unwrap_or(&self.began);
                if !seen.contains(&name) {
                    self.each.push(born.elapsed());
                    seen.insert(name);
                }
            }
            if seen.len() >= count {
                self.took = Some(self.began.elapsed());
                return Ok(());
            }
            if self.began.elapsed() > self.patience {
                return Err(format!("{what}: {} of {count} after {} s", seen.len(), self.patience.as_secs()));
            }
            // Looks take from the same processors.
            tokio::time::sleep(LOOK.max(10 * looking.elapsed())).await;
        }
    }

    /// Waits until it is so.
    pub(crate) async fn until(&mut self, what: &str, is_so: impl Fn(&Testbed) -> bool) -> Result<(), String> {
        self.until_looked(what, LOOK, is_so).await
    }

    /// The same, with a look every `period`.
    pub(crate) async fn until_looked(
        &mut self,
        what: &str,
        period: Duration,
        is_so: impl Fn(&Testbed) -> bool,
    ) -> Result<(), String> {
        while !is_so(self.testbed) {
            if self.began.elapsed() > self.patience {
                return Err(format!("{what}: not within {} s", self.patience.as_secs()));
            }
            tokio::time::sleep(period).await;
        }
        self.took = Some(self.began.elapsed());
        Ok(())
    }

    /// Waits until no call was made for `quiet`; the time of the last one counts.
    pub(crate) async fn until_quiet(&mut self, quiet: Duration) -> Result<(), String> {
        self.took = Some(self.quiet(quiet).await?);
        Ok(())
    }

    /// Waits until no call was made for `quiet`; tells when the last one was.
    pub(crate) async fn quiet(&self, quiet: Duration) -> Result<Duration, String> {
        let changes = self.testbed.cloud.changes();
        let mut seen = 0;
        let mut last = Instant::now();
        while last.elapsed() < quiet {
            let now = *changes.borrow();
            if now != seen {
                (seen, last) = (now, Instant::now());
            }
            if self.began.elapsed() > self.patience {
                return Err(format!("never quiet within {} s", self.patience.as_secs()));
            }
            tokio::time::sleep(LOOK).await;
        }
        Ok(last.saturating_duration_since(self.began))
    }

    /// Nothing was waited for but time.
    pub(crate) fn elapsed(&mut self) {
        self.took = Some(self.began.elapsed());
    }

    /// What came of the last wait, as a row without calls.
    pub(crate) fn so_far(&self, name: &str, floor: usize) -> Row {
        Row { name: name.to_owned(), took: self.took, each: self.each.clone(), floor, ..Row::default() }
    }

    /// The result.
    pub(crate) fn stop(self, name: &str, floor: usize, controller: Option<&Controller>) -> Row {
        let usage = controller.and_then(Controller::usage).unwrap_or_default();
        let mut row = Row {
            name: name.to_owned(),
            took: self.took,
            each: self.each,
            floor,
            cpu: usage.cpu.saturating_sub(self.before.cpu),
            usage,
            ..Row::default()
        };
        for call in self.testbed.cloud.calls() {
            row.throttled += usize::from(call.outcome.starts_with("Throttling"));
            if call.product != "metadata" {
                *row.calls.entry((call.write, call.action)).or_default() += 1;
            }
        }
        let writes = self.testbed.cluster.writes();
        row.cluster_writes = writes.iter().filter(|call| call.resource != "leases" && call.name != LOCK).count();
        row
    }
}

pub(crate) fn percentile(sorted: &[Duration], share: usize) -> Option<Duration> {
    sorted.get((sorted.len() * share / 100).min(sorted.len().saturating_sub(1))).copied()
}

fn seconds(duration: Option<Duration>) -> String {
    duration.map_or_else(|| "-".to_owned(), |duration| format!("{:.2}", duration.as_secs_f64()))
}

/// One line for each scenario.
pub(crate) fn table(rows: &[Row]) -> String {
    let head = [
        "scenario",
        "seconds",
        "p50",
        "p99",
        "calls",
        "floor",
        "writes",
        "throttled",
        "k8s writes",
        "CPU s",
        "MiB",
        "peak",
    ];
    let mut lines = vec![head.map(str::to_owned).to_vec()];
    for row in rows {
        let mut each = row.each.clone();
        each.sort_unstable();
        let sum =
            |writes: bool| row.calls.iter().filter(|((write, _), _)| *write == writes).map(|(_, n)| n).sum::<usize>();
        let mut line =
            vec![row.name.clone(), seconds(row.took), seconds(percentile(&each, 50)), seconds(percentile(&each, 99))];
        if !row.is_part {
            line.extend([
                (sum(true) + sum(false)).to_string(),
                row.floor.to_string(),
                sum(true).to_string(),
                row.throttled.to_string(),
                row.cluster_writes.to_string(),
                format!("{:.2}", row.cpu.as_secs_f64()),
                format!("{:.1}", row.usage.resident),
                format!("{:.1}", row.usage.peak),
            ]);
        }
        line.resize(head.len(), String::new());
        lines.push(line);
    }
    let width = |column: usize| lines.iter().map(|line| line[column].len()).max().unwrap_or_default();
    let widths: Vec<usize> = (0..head.len()).map(width).collect();
    let mut text = String::new();
    for line in &lines {
        for (column, cell) in line.iter().enumerate() {
            let _ = match column {
                0 => write!(text, "{cell:<0$}", widths[column]),
                _ => write!(text, "  {cell:>0$}", widths[column]),
            };
        }
        text.push('\n');
    }
    text
}

/// The calls of each scenario.
pub(crate) fn calls_by_action(rows: &[Row]) -> String {
    let mut text = String::new();
    for row in rows.iter().filter(|row| !row.is_part) {
        let actions = row.calls.iter().map(|((_, action), count)| format!("{count} {action}"));
        let _ = writeln!(text, "{}: {}", row.name, actions.collect::<Vec<_>>().join(", "));
    }
    text
}

/// Memory in MiB over the time of a day, and when its parts begin.
#[derive(Debug, Default)]
pub(crate) struct Picture {
    pub(crate) memory: Vec<(Duration, f64)>,
    pub(crate) parts: Vec<(Duration, &'static str)>,
}

/// Of the picture, and its margins.
const WIDTH: f64 = 760.0;
const HEIGHT: f64 = 320.0;
const LEFT: f64 = 56.0;
const BOTTOM: f64 = 44.0;
const MARGIN: f64 = 16.0;
/// A picture has no more points, so that it stays small.
const POINTS: usize = 400;

impl Picture {
    /// As SVG, with a background of its own: it is read in light and in dark.
    pub(crate) fn draw(&self) -> String {
        let end = self.memory.last().map_or(1.0, |(at, _)| at.as_secs_f64().max(1.0));
        let most = self.memory.iter().map(|(_, memory)| *memory).fold(1.0, f64::max);
        // Lines at round numbers, four at most.
        let step =
            [1.0, 2.0, 5.0, 10.0, 20.0, 25.0, 50.0, 100.0].into_iter().find(|step| most / step <= 4.0).unwrap_or(200.0);
        let top = (most / step).ceil() * step;
        let y = |memory: f64| HEIGHT - BOTTOM - memory / top * (HEIGHT - BOTTOM - MARGIN);
        let x = |seconds: f64| LEFT + seconds / end * (WIDTH - LEFT - MARGIN);
        let title = "Resident memory of the leader in MiB over the minutes of the day";
        let mut text = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" width=\"{WIDTH}\" \
             height=\"{HEIGHT}\" role=\"img\" font-family=\"sans-serif\" font-size=\"12\" fill=\"#111\" \
             aria-labelledby=\"title\">\n<title id=\"title\">{title}</title>\n\
             <rect width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"#fff\"/>\n"
        );
        let mut draw = |element: std::fmt::Arguments<'_>| {
            let _ = writeln!(text, "{element}");
        };
        for line in 0..=(top / step) as u32 {
            let memory = f64::from(line) * step;
            let (at, label, right) = (y(memory), LEFT - 6.0, WIDTH - MARGIN);
            draw(format_args!("<path d=\"M{LEFT} {at:.1}H{right}\" stroke=\"#ccc\"/>"));
            draw(format_args!(
                "<text x=\"{label}\" y=\"{at:.1}\" text-anchor=\"end\" dominant-baseline=\"middle\">{memory}</text>"
            ));
        }
        for (begin, part) in &self.parts {
            let (at, foot) = (x(begin.as_secs_f64()), HEIGHT - BOTTOM);
            draw(format_args!("<path d=\"M{at:.1} {MARGIN}V{foot}\" stroke=\"#ccc\" stroke-dasharray=\"3\"/>"));
            draw(format_args!(
                "<text transform=\"translate({:.1} {}) rotate(-90)\" fill=\"#666\">{part}</text>",
                at + 14.0,
                foot - 6.0
            ));
        }
        for fifth in 0..=5 {
            let seconds = end * f64::from(fifth) / 5.0;
            let (at, foot, minutes) = (x(seconds), HEIGHT - BOTTOM + 16.0, seconds / 60.0);
            draw(format_args!("<text x=\"{at:.1}\" y=\"{foot}\" text-anchor=\"middle\">{minutes:.1}</text>"));
        }
        let (middle, centre, foot) = ((LEFT + WIDTH - MARGIN) / 2.0, (HEIGHT - BOTTOM + MARGIN) / 2.0, HEIGHT - 8.0);
        draw(format_args!("<text x=\"{middle}\" y=\"{foot}\" text-anchor=\"middle\">minutes</text>"));
        draw(format_args!(
            "<text transform=\"translate(16 {centre}) rotate(-90)\" text-anchor=\"middle\">resident memory, MiB</text>"
        ));
        let highest = |some: &[(Duration, f64)]| some.iter().copied().reduce(|a, b| if b.1 > a.1 { b } else { a });
        let points = self.memory.chunks(self.memory.len().div_ceil(POINTS).max(1)).filter_map(highest);
        let points: Vec<String> =
            points.map(|(at, memory)| format!("{:.1},{:.1}", x(at.as_secs_f64()), y(memory))).collect();
        let points = points.join(" ");
        draw(format_args!(
            "<polyline points=\"{points}\" fill=\"none\" stroke=\"#06c\" stroke-width=\"1.5\"/>\n</svg>"
        ));
        text
    }
}
