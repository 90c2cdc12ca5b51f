//! The pages of `docs/zh` that are written from the English ones, phrase by phrase, with `docs/zh/translations.toml`.
//!
//! A phrase is a heading, a paragraph, a cell of a table or the comment of a key. One that changes in English has no
//! translation any more, so that no page says in Chinese what was true once.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use expect_test::expect_file;

const PHRASES: &str = "docs/zh/translations.toml";

fn path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

fn read(name: &str) -> String {
    std::fs::read_to_string(path(name)).unwrap()
}

/// One section of the phrases, and what was found wrong with it.
struct Translator {
    section: &'static str,
    phrases: BTreeMap<String, String>,
    used: BTreeSet<String>,
    missing: Vec<String>,
}

impl Translator {
    fn new(section: &'static str) -> Self {
        let mut all: BTreeMap<String, BTreeMap<String, String>> = toml::from_str(&read(PHRASES)).unwrap();
        Self { section, phrases: all.remove(section).unwrap(), used: BTreeSet::new(), missing: Vec::new() }
    }

    /// A phrase in Chinese; as it is if it has no translation.
    fn phrase(&mut self, english: &str) -> String {
        if is_identifier(english) {
            return english.to_owned();
        }
        self.used.insert(english.to_owned());
        self.phrases.get(english).cloned().unwrap_or_else(|| {
            self.missing.push(english.to_owned());
            english.to_owned()
        })
    }

    /// A page, or a part of one.
    fn markdown(&mut self, english: &str) -> String {
        let mut chinese = String::new();
        let mut paragraph: Vec<&str> = Vec::new();
        for line in english.lines().chain([""]) {
            let is_prose = !line.is_empty() && !line.starts_with(['|', '#']);
            if is_prose {
                paragraph.push(line);
                continue;
            }
            if !paragraph.is_empty() {
                let _ = writeln!(chinese, "{}", self.phrase(&std::mem::take(&mut paragraph).join(" ")));
            }
            let _ = writeln!(chinese, "{}", self.line(line));
        }
        chinese.pop();
        chinese
    }

    /// A row, a heading or nothing.
    fn line(&mut self, line: &str) -> String {
        if line.starts_with("|--") || line.is_empty() {
            return line.to_owned();
        }
        if let Some(row) = line.strip_prefix('|') {
            let cells = row.trim_end_matches('|').split('|').map(|cell| self.cell(cell));
            return format!("|{}|", cells.collect::<Vec<_>>().join("|"));
        }
        let (marks, heading) = line.split_once(' ').unwrap();
        format!("{marks} {}", self.phrase(heading))
    }

    fn cell(&mut self, cell: &str) -> String {
        if cell.trim().is_empty() { cell.to_owned() } else { format!(" {} ", self.phrase(cell.trim())) }
    }

    /// A file with comments, in which each sentence of a comment gets a line of its own.
    fn comments(&mut self, english: &str) -> String {
        let mut chinese = String::new();
        let mut comment: Vec<&str> = Vec::new();
        for line in english.lines() {
            if let Some(text) = line.strip_prefix("# ") {
                comment.push(text);
                continue;
            }
            if !comment.is_empty() {
                let text = self.phrase(&std::mem::take(&mut comment).join(" "));
                for sentence in text.split_inclusive('。') {
                    let _ = writeln!(chinese, "# {sentence}");
                }
            }
            let _ = writeln!(chinese, "{line}");
        }
        chinese
    }

    /// Fails with what to do about each phrase.
    fn check(&self) {
        let mut wrong = String::new();
        for phrase in &self.missing {
            let _ = writeln!(wrong, "lacks this line with its Chinese: {} = \"\"", toml::Value::from(phrase.as_str()));
        }
        for phrase in self.phrases.keys().filter(|phrase| !self.used.contains(*phrase)) {
            let _ = writeln!(wrong, "translates what is not said any more: {phrase:?}");
        }
        for (english, chinese) in self.phrases.iter().filter(|(english, chinese)| code(english) != code(chinese)) {
            let _ = writeln!(wrong, "changes what is in code: {english:?}: {chinese:?}");
        }
        assert!(wrong.is_empty(), "{PHRASES}, section [{}]:\n{wrong}", self.section);
    }
}

/// What stands between backticks, which is the same in every language.
fn code(text: &str) -> Vec<&str> {
    let mut code: Vec<&str> = text.split('`').skip(1).step_by(2).collect();
    code.sort_unstable();
    code
}

/// Whether there are no words outside of code.
fn is_identifier(text: &str) -> bool {
    let outside: String = text.split('`').step_by(2).collect::<Vec<_>>().join("`");
    !outside.as_bytes().windows(2).any(|pair| pair.iter().all(u8::is_ascii_lowercase))
}

#[test]
fn annotations_are_explained_in_chinese() {
    let mut chinese = Translator::new("annotations");
    let page = chinese.markdown(&read("docs/reference/annotations.md"));
    chinese.check();
    expect_file![path("docs/zh/reference/annotations.md")].assert_eq(&page);
}

#[test]
fn events_are_explained_in_chinese() {
    let mut chinese = Translator::new("events");
    let page = chinese.markdown(&read("docs/reference/events.md"));
    chinese.check();
    expect_file![path("docs/zh/reference/events.md")].assert_eq(&page);
}

#[test]
fn keys_of_the_configuration_are_explained_in_chinese() {
    let mut chinese = Translator::new("reference");
    // The schema of the editors is named relative to the file.
    let english = read("config/alicloud-ccm.reference.toml").replace("#:schema ./", "#:schema ../../../config/");
    let reference = chinese.comments(&english);
    chinese.check();
    expect_file![path("docs/zh/reference/alicloud-ccm.reference.toml")].assert_eq(&reference);
}

#[test]
fn effects_of_changed_keys_are_explained_in_chinese() {
    const MARKS: (&str, &str) = ("<!-- effects -->\n", "<!-- end of effects -->");
    let parts = |page: &str| {
        let (before, rest) = page.split_once(MARKS.0).unwrap();
        let (table, after) = rest.split_once(MARKS.1).unwrap();
        [before, table, after].map(str::to_owned)
    };
    let [_, english, _] = parts(&read("docs/reference/configuration.md"));
    let [before, _, after] = parts(&read("docs/zh/reference/configuration.md"));
    let mut chinese = Translator::new("configuration");
    let page = format!("{before}{}{}{}{after}", MARKS.0, chinese.markdown(&english), MARKS.1);
    chinese.check();
    expect_file![path("docs/zh/reference/configuration.md")].assert_eq(&page);
}

/// The pages that a text links to, without their folders and without headings, which each language has of its own.
fn linked(text: &str) -> Vec<&str> {
    let targets = text.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    let mut pages: Vec<_> = targets.filter_map(|target| target.split('#').next()?.rsplit('/').next()).collect();
    pages.sort_unstable();
    pages
}

/// What both languages have in common of a page, with the line where it is: headings by their level, paragraphs, items and rows
/// by the code and the links in them, blocks of code by their lines without comments.
fn parts(page: &str) -> Vec<(String, usize)> {
    let mut parts: Vec<(String, usize)> = Vec::new();
    let mut is_code = false;
    let mut paragraph: Option<(String, usize)> = None;
    for (number, line) in page.lines().chain([""]).map(str::trim).enumerate() {
        let is_fence = line.starts_with("```");
        let is_prose = !is_fence && !is_code && !line.is_empty() && !line.starts_with(['#', '|']);
        if !is_prose || is_item(line) {
            parts.extend(
                paragraph.take().map(|(text, number)| (format!("{:?} {:?}", code(&text), linked(&text)), number)),
            );
        }
        if is_fence || is_code {
            let code = line.split(" #").next().unwrap_or_default().trim_end();
            if !code.is_empty() && !code.starts_with('#') {
                parts.push((code.to_owned(), number + 1));
            }
            is_code ^= is_fence;
        } else if line.starts_with('#') {
            parts.push((line.split(' ').next().unwrap_or_default().to_owned(), number + 1));
        } else if line.starts_with('|') {
            parts.push((format!("|{:?} {:?}", code(line), linked(line)), number + 1));
        } else if is_prose {
            let (text, _) = paragraph.get_or_insert((String::new(), number + 1));
            text.push_str(line);
            text.push(' ');
        }
    }
    parts
}

/// Whether a line begins an item of a list.
fn is_item(line: &str) -> bool {
    line.starts_with("- ") || line.split_once(". ").is_some_and(|(number, _)| number.parse::<u8>().is_ok())
}

/// Each page links to the other one right below its title, and a Chinese page leads to Chinese ones where there are such.
#[test]
fn every_guide_has_a_chinese_page_and_no_link_leaves_the_language_without_need() {
    let mut wrong = Vec::new();
    for page in crate::documents::pages(&["docs/guides"]) {
        let name = page.file_name().unwrap().to_str().unwrap();
        let chinese = std::fs::read_to_string(path("docs/zh/guides").join(name)).unwrap_or_default();
        for (text, link) in [
            (read(page.to_str().unwrap()), format!("[中文](../zh/guides/{name})")),
            (chinese, format!("[English](../../guides/{name})")),
        ] {
            if text.split("\n\n").nth(1) != Some(&link) {
                wrong.push(format!("{name} lacks below a title {link}"));
            }
        }
    }
    for page in crate::documents::pages(&["docs/zh"]) {
        let text = read(page.to_str().unwrap());
        for target in text.split("](").skip(1).filter_map(|rest| rest.split([')', '#']).next()) {
            let to = path(page.parent().unwrap().to_str().unwrap()).join(target).canonicalize().unwrap_or_default();
            let is_own = to.file_name() == page.file_name();
            if let Ok(of_docs) = to.strip_prefix(path("docs"))
                && !is_own
                && path("docs/zh").join(of_docs).is_file()
            {
                wrong.push(format!("{} leads to the English {}", page.display(), of_docs.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn chinese_pages_follow_the_english_ones_paragraph_by_paragraph() {
    let mut differing = Vec::new();
    // These are translated phrase by phrase.
    let generated =
        ["docs/zh/README.md", "docs/zh/reference/annotations.md", "docs/zh/reference/events.md"].map(Path::new);
    let pages = crate::documents::pages(&["docs/zh"]).into_iter().filter(|page| !generated.contains(&page.as_path()));
    let pages =
        pages.map(|page| Path::new("docs").join(page.strip_prefix("docs/zh").unwrap()).to_str().unwrap().to_owned());
    let pages = pages.map(|page| (page.clone(), page.replacen("docs/", "docs/zh/", 1)));
    for (english, chinese) in pages.chain([("README.md".to_owned(), "docs/zh/README.md".to_owned())]) {
        // The reference has a Chinese copy; the README ends with other lists of pages.
        let text = read(&english).replace("`config/alicloud-ccm.reference.toml`", "`alicloud-ccm.reference.toml`");
        let (before, generated) = text.split_once("\n## All commands\n").unwrap_or((&text, ""));
        let after = generated.split_once("<!-- end of commands -->\n").map_or("", |(_, after)| after);
        let text = format!("{before}{after}");
        let ours = parts(text.split("\n## Documentation\n").next().unwrap());
        let theirs = read(&chinese);
        let theirs = parts(theirs.split("\n## 中文文档\n").next().unwrap());
        let place = (0..ours.len().max(theirs.len()))
            .find(|index| ours.get(*index).map(|part| &part.0) != theirs.get(*index).map(|part| &part.0));
        if let Some(index) = place {
            differing.push(format!("{english}: {:?}; {chinese}: {:?}", ours.get(index), theirs.get(index)));
        }
    }
    assert!(differing.is_empty(), "these differ from here on (text, line):\n{}", differing.join("\n"));
}
