//! The pictures of the documentation, drawn from the texts beside them in `docs/pictures`.
//!
//! A line of a text is one of these; words stand before `|`, and lines of text between:
//!
//! ```text
//! title | What the picture shows
//! frame NAME X Y WIDTH HEIGHT | heading of an area
//! box NAME X Y WIDTH COLOUR | heading | line | line
//! arrow FROM TO SHIFT | label
//! both FROM TO SHIFT | label
//! note X Y | text
//! ```
//!
//! Boxes are as high as their lines. An arrow is horizontal or vertical where its ends allow that, moved by `SHIFT`.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use expect_test::expect_file;

const LINE: i32 = 20;
const COLOURS: [(&str, &str); 4] =
    [("kubernetes", "#e8f0fe"), ("program", "#e6f4ea"), ("cloud", "#fef3e0"), ("other", "#f1f3f4")];

#[derive(Clone, Copy, Debug)]
struct Area {
    x: i32,
    y: i32,
    width: i32,
    height: i32,
}

impl Area {
    fn right(self) -> i32 {
        self.x + self.width
    }

    fn bottom(self) -> i32 {
        self.y + self.height
    }

    fn overlaps(self, other: Self) -> bool {
        self.x < other.right() && other.x < self.right() && self.y < other.bottom() && other.y < self.bottom()
    }
}

/// The width of a text, in pixels.
fn width_of(text: &str) -> i32 {
    i32::try_from(text.chars().count()).unwrap() * 15 / 2
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

fn text(x: i32, y: i32, more: &str, words: &str) -> String {
    format!("  <text x=\"{x}\" y=\"{y}\" {more}fill=\"#111\">{}</text>\n", escaped(words))
}

/// Both ends of an arrow, and where its label begins.
fn arrow(from: Area, to: Area, shift: i32, label: &str) -> (Area, (i32, i32)) {
    let (top, bottom) = (from.y.max(to.y), from.bottom().min(to.bottom()));
    let (left, right) = (from.x.max(to.x), from.right().min(to.right()));
    if top < bottom {
        let y = i32::midpoint(top, bottom) + shift;
        let (x, end) = if from.x < to.x { (from.right(), to.x) } else { (from.x, to.right()) };
        (Area { x, y, width: end - x, height: 0 }, (i32::midpoint(x, end) - width_of(label) / 2, y - 6))
    } else {
        assert!(left < right, "an arrow has to be horizontal or vertical: {from:?} {to:?}");
        let x = i32::midpoint(left, right) + shift;
        let (y, end) = if from.y < to.y { (from.bottom(), to.y) } else { (from.y, to.bottom()) };
        (Area { x, y, width: 0, height: end - y }, (x + 8, i32::midpoint(y, end) + 5))
    }
}

/// The picture that a text describes.
fn draw(source: &str) -> String {
    let mut areas: BTreeMap<&str, Area> = BTreeMap::new();
    let mut boxes: Vec<(&str, Area)> = Vec::new();
    let mut labels: Vec<(&str, Area)> = Vec::new();
    let (mut title, mut below, mut above) = (String::new(), String::new(), String::new());
    for line in source.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let mut parts = line.split('|').map(str::trim);
        let words: Vec<&str> = parts.next().unwrap().split_whitespace().collect();
        let lines: Vec<&str> = parts.collect();
        let number = |word: &str| word.parse::<i32>().unwrap_or_else(|_| panic!("{word} is no number: {line}"));
        match words[..] {
            ["title"] => title = escaped(lines[0]),
            ["frame", name, x, y, width, height] => {
                let area = Area { x: number(x), y: number(y), width: number(width), height: number(height) };
                areas.insert(name, area);
                let _ = writeln!(
                    below,
                    "  <rect x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{height}\" rx=\"6\" fill=\"none\" stroke=\"#888\" \
                     stroke-dasharray=\"5 4\"/>"
                );
                below += &text(area.x + 10, area.y + 18, "", lines[0]);
                labels.push((lines[0], Area { x: area.x + 10, y: area.y + 4, width: width_of(lines[0]), height: 16 }));
            }
            ["box", name, x, y, width, colour] => {
                let height = i32::try_from(lines.len()).unwrap() * LINE + 16;
                let area = Area { x: number(x), y: number(y), width: number(width), height };
                for line in &lines {
                    assert!(width_of(line) + 20 <= area.width, "{name}: {line:?} is wider than its box");
                }
                areas.insert(name, area);
                boxes.push((name, area));
                let (_, fill) = COLOURS.iter().find(|(name, _)| *name == colour).unwrap();
                let _ = writeln!(
                    above,
                    "  <rect x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{height}\" rx=\"6\" fill=\"{fill}\" stroke=\"#444\"/>"
                );
                for (row, line) in (0..).zip(&lines) {
                    let bold = if row == 0 { "font-weight=\"bold\" " } else { "" };
                    above += &text(area.x + 12, area.y + 22 + row * LINE, bold, line);
                }
            }
            [kind @ ("arrow" | "both"), from, to, shift] => {
                let label = lines[0];
                let find = |name: &str| *areas.get(name).unwrap_or_else(|| panic!("{name} is not there yet: {line}"));
                let (path, (x, y)) = arrow(find(from), find(to), number(shift), label);
                let start = if kind == "both" { " marker-start=\"url(#arrow)\"" } else { "" };
                let _ = writeln!(
                    above,
                    "  <path d=\"M{} {}L{} {}\" stroke=\"#444\" fill=\"none\" marker-end=\"url(#arrow)\"{start}/>",
                    path.x,
                    path.y,
                    path.x + path.width,
                    path.y + path.height
                );
                if !label.is_empty() {
                    above += &text(x, y, "", label);
                    labels.push((label, Area { x, y: y - 12, width: width_of(label), height: 14 }));
                }
            }
            ["note", x, y] => {
                above += &text(number(x), number(y), "", lines[0]);
                labels
                    .push((lines[0], Area { x: number(x), y: number(y) - 12, width: width_of(lines[0]), height: 14 }));
            }
            _ => panic!("unknown: {line}"),
        }
    }
    for (index, (name, area)) in boxes.iter().enumerate() {
        let over = boxes[index + 1..].iter().find(|(_, other)| area.overlaps(*other));
        assert!(over.is_none(), "{name} is over {over:?}");
    }
    for (index, (label, area)) in labels.iter().enumerate() {
        let over = boxes.iter().chain(&labels[index + 1..]).find(|(_, other)| area.overlaps(*other));
        assert!(over.is_none(), "{label:?} is over {over:?}");
    }
    assert!(!title.is_empty(), "a picture has a title");
    let all = || areas.values().chain(labels.iter().map(|(_, area)| area));
    let width = all().map(|area| area.right()).max().unwrap() + 20;
    let height = all().map(|area| area.bottom()).max().unwrap() + 20;
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" height=\"{height}\" role=\"img\" \
         font-family=\"sans-serif\" font-size=\"14\" aria-labelledby=\"title\">\n  <title id=\"title\">{title}</title>\n  <defs><marker \
         id=\"arrow\" viewBox=\"0 0 8 8\" refX=\"8\" refY=\"4\" markerWidth=\"8\" markerHeight=\"8\" orient=\"auto-start-reverse\"><path d=\"M0 \
         0 8 4 0 8Z\" fill=\"#444\"/></marker></defs>\n  <rect width=\"{width}\" height=\"{height}\" fill=\"#fff\"/>\n{below}{above}</svg>\n"
    )
}

fn files(extension: &str) -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/pictures");
    let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<_> = files.filter(|path| path.extension().is_some_and(|found| found == extension)).collect();
    files.sort();
    files
}

#[test]
fn every_picture_is_what_its_text_says() {
    let sources = files("txt");
    assert!(sources.len() >= 7, "{sources:?}");
    for source in sources {
        let picture = draw(&std::fs::read_to_string(&source).unwrap());
        expect_file![source.with_extension("svg")].assert_eq(&picture);
    }
}

#[test]
fn every_picture_is_on_a_page() {
    let pages = crate::documents::pages(&["README.md", "docs"]);
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let all: String = pages.iter().map(|page| std::fs::read_to_string(root.join(page)).unwrap()).collect();
    for picture in files("svg") {
        let name = picture.file_name().unwrap().to_str().unwrap();
        assert!(all.contains(&format!("pictures/{name})")), "no page shows {name}");
    }
}

/// The picture of the status page has its sections, in their order.
#[test]
fn the_picture_of_the_status_page_has_its_sections() {
    let html = include_str!("../../src/app/page/html.rs");
    let (_, table) = html.split_once("SECTIONS").unwrap();
    let (table, _) = table.split_once("];").unwrap();
    let sections: Vec<&str> = table.split("\", \"").skip(1).filter_map(|rest| rest.split('"').next()).collect();
    let picture = include_str!("../../docs/pictures/status-page.txt");
    let drawn = picture.lines().filter(|line| line.starts_with("box section-"));
    let drawn: Vec<&str> = drawn.map(|line| line.split('|').nth(1).unwrap().trim()).collect();
    assert_eq!(drawn, sections);
}

/// The picture of who talks to whom has writes to each product of the cloud that the table of actions writes to.
#[test]
fn the_picture_of_who_talks_to_whom_has_the_writes() {
    let actions = include_str!("../../src/alibaba/actions.rs");
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/pictures/who-talks-to-whom.txt");
    let picture = std::fs::read_to_string(path).unwrap();
    for (product, arrow) in
        [("Ecs", "ccm ecs"), ("Vpc", "ccm vpc"), ("Slb", "writes balancers"), ("Nlb", "writes balancers")]
    {
        let line = picture.lines().find(|line| line.starts_with(&format!("arrow {arrow} "))).unwrap();
        let (_, label) = line.split_once('|').unwrap();
        assert_eq!(actions.contains(&format!("WriteAction {product} ")), label.contains("writes"), "{product}: {line}");
    }
}
