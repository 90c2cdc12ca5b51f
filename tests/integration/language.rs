//! What every page keeps to, so that it is easy to read: short sentences, short cells, a named reader and a next page.
//!
//! Of a sentence, each word counts, and code as one word. Chinese has no spaces: each character counts, and a word of another
//! script or code as one. Its words have about two characters, so a sentence may have twice as many of them as an English one has
//! words. Of a cell, the columns count that a reader sees: a Chinese character has two, and the address of a link none.

use std::path::Path;
use std::sync::LazyLock;

use regex::Regex;

use crate::documents::pages;

const WORDS: usize = 30;
const CHARACTERS: usize = 2 * WORDS;
const COLUMNS: usize = 120;

fn is_wide(letter: char) -> bool {
    matches!(letter, '\u{2e80}'..='\u{9fff}' | '\u{ff00}'..='\u{ffef}')
}

/// Text as a reader sees it: links without addresses; code as one word, or as it is.
fn visible(text: &str, code_is_one_word: bool) -> String {
    static LINKS: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"!?\[([^\]]*)\]\([^)]*\)").unwrap());
    static CODE: LazyLock<Regex> = LazyLock::new(|| Regex::new("`[^`]*`").unwrap());
    let text = LINKS.replace_all(text, "$1");
    if code_is_one_word { CODE.replace_all(&text, "X").into_owned() } else { text.replace('`', "") }
}

fn sentences(text: &str) -> Vec<String> {
    static END: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"[.!?]\s|[。！？；]").unwrap());
    let text = visible(text, true);
    END.split(&text).map(|sentence| sentence.trim().to_owned()).filter(|sentence| !sentence.is_empty()).collect()
}

/// How long a sentence is, and how long it may be.
fn length(sentence: &str) -> (usize, usize) {
    let wide = sentence.chars().filter(|letter| is_wide(*letter) && letter.is_alphabetic()).count();
    let words = sentence
        .split(|letter: char| letter.is_whitespace() || is_wide(letter))
        .filter(|word| word.contains(char::is_alphanumeric));
    (wide + words.count(), if wide > 0 { CHARACTERS } else { WORDS })
}

/// Texts, each with its line.
type Lines = Vec<(usize, String)>;

/// Paragraphs and items, and cells.
fn parts(page: &str) -> (Lines, Lines) {
    let (mut prose, mut cells): (Lines, Lines) = (Vec::new(), Vec::new());
    let (mut is_code, mut goes_on) = (false, false);
    for (number, line) in (1..).zip(page.lines().map(str::trim)) {
        let is_fence = line.starts_with("```");
        is_code ^= is_fence;
        if is_code || is_fence || line.is_empty() || line.starts_with(['#', '<']) {
            goes_on = false;
        } else if line.starts_with('|') {
            goes_on = false;
            let row = line.trim_matches('|').replace("\\|", "/");
            cells.extend(
                row.split('|').map(|cell| (number, cell.trim().to_owned())).filter(|(_, cell)| !cell.starts_with("--")),
            );
        } else {
            let is_item =
                line.starts_with("- ") || line.split_once(". ").is_some_and(|(start, _)| start.parse::<u8>().is_ok());
            match prose.last_mut().filter(|_| goes_on && !is_item) {
                Some((_, text)) => *text += &format!(" {line}"),
                None => prose.push((number, line.to_owned())),
            }
            goes_on = true;
        }
    }
    (prose, cells)
}

#[test]
fn sentences_and_cells_are_short() {
    let mut long = Vec::new();
    for page in pages(&["README.md", "CONTRIBUTING.md", "docs", "config", "deploy"]) {
        let text = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(&page)).unwrap();
        let (prose, cells) = parts(&text);
        for (line, text) in prose.iter().chain(&cells) {
            for sentence in sentences(text) {
                let (found, allowed) = length(&sentence);
                if found > allowed {
                    long.push(format!("{}:{line}: {found} words: {sentence}", page.display()));
                }
            }
        }
        for (line, cell) in &cells {
            let text = visible(cell, false);
            let columns: usize = text.chars().map(|letter| if is_wide(letter) { 2 } else { 1 }).sum();
            if columns > COLUMNS {
                long.push(format!("{}:{line}: a cell of {columns} columns: {text}", page.display()));
            }
        }
    }
    assert!(long.is_empty(), "{} are too long:\n{}", long.len(), long.join("\n"));
}

/// After its title and the link to the other language, a page says for whom it is; its last line says what comes next.
#[test]
fn every_page_names_its_reader_and_its_next_page() {
    let mut without = Vec::new();
    let is_on_a_shelf = |page: &Path| page.components().count() > if page.starts_with("docs/zh") { 3 } else { 2 };
    for page in pages(&["docs"]).iter().filter(|page| is_on_a_shelf(page)) {
        let text = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(page)).unwrap();
        let (reader, next) =
            if page.starts_with("docs/zh") { ("读者：", "下一页：[") } else { ("For ", "Next: [") };
        let mut paragraphs = text.split("\n\n").skip(1).skip_while(|paragraph| paragraph.starts_with('['));
        if !paragraphs.next().is_some_and(|first| first.starts_with(reader)) {
            without.push(format!("{} names no reader", page.display()));
        }
        if !text.trim_end().lines().last().is_some_and(|last| last.starts_with(next)) {
            without.push(format!("{} names no next page", page.display()));
        }
    }
    assert!(without.is_empty(), "{}", without.join("\n"));
}

#[test]
fn the_readme_is_short_and_begins_with_what_needs_no_cloud() {
    let text = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("README.md")).unwrap();
    let words = text.split_whitespace().count();
    assert!(words <= 900, "{words} words");
    let commands: Vec<&str> =
        text.split("```console\n").skip(1).filter_map(|rest| rest.split("\n```").next()).collect();
    assert_eq!(commands[..2], ["cargo run --example playground", "cargo test --workspace"]);
}
