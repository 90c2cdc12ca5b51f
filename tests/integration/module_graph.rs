//! Which module of the product names which other one, read from the source: `use` declarations and paths that begin with
//! `crate`, `self`, `super` or a child module. Tests do not count.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// A module by its path, such as `["plan", "clb", "diff"]`; the library itself is empty.
pub(crate) type Module = Vec<String>;

/// For each module, the modules that it names. Re-exports are followed to where the name is defined.
pub(crate) type Graph = BTreeMap<Module, BTreeSet<Module>>;

/// Reads a `src` folder.
pub(crate) fn read(src: &Path) -> Graph {
    let mut texts = BTreeMap::new();
    collect(src, &mut Vec::new(), &mut texts);
    let test_modules: BTreeSet<Module> = texts.iter().flat_map(|(module, text)| test_children(module, text)).collect();
    texts.retain(|module, _| {
        let test = |length: usize| test_modules.contains(&module[..length]) || module[length - 1] == "tests";
        !(1..=module.len()).any(test)
    });
    let modules: BTreeMap<Module, Source> =
        texts.into_iter().map(|(module, text)| (module, Source::parse(&without_tests(&text)))).collect();
    let edges = |(module, source): (&Module, &Source)| {
        let named = source.paths.iter().filter_map(|path| resolve(&modules, module, path));
        (module.clone(), named.filter(|named| named != module).collect())
    };
    modules.iter().map(edges).collect()
}

/// The sets of nodes that can all be reached from each other.
pub(crate) fn circles(edges: &BTreeMap<String, BTreeSet<String>>) -> Vec<BTreeSet<String>> {
    let reach = |from: &String| {
        let (mut seen, mut open) = (BTreeSet::new(), vec![from]);
        while let Some(next) = open.pop() {
            open.extend(edges.get(next).into_iter().flatten().filter(|to| seen.insert((*to).clone())));
        }
        seen
    };
    let reached: BTreeMap<&String, BTreeSet<String>> = edges.keys().map(|node| (node, reach(node))).collect();
    let circle = |node: &String| -> BTreeSet<String> {
        reached[node]
            .iter()
            .filter(|other| reached.get(other).is_some_and(|back| back.contains(node)))
            .cloned()
            .collect()
    };
    let found: BTreeSet<_> = edges.keys().map(circle).filter(|circle| circle.len() > 1).collect();
    found.into_iter().collect()
}

/// The edges between the direct children of a folder, each child with all that is below it. The folder's own file is not a
/// child: it opens the folder, and its children may use what it defines.
pub(crate) fn children(graph: &Graph, folder: &[String]) -> BTreeMap<String, BTreeSet<String>> {
    let child = |module: &Module| module.strip_prefix(folder).and_then(|rest| rest.first().cloned());
    let mut edges: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (module, named) in graph {
        let Some(from) = child(module) else { continue };
        let to = named.iter().filter_map(child).filter(|to| *to != from);
        edges.entry(from.clone()).or_default().extend(to);
    }
    edges
}

fn collect(folder: &Path, module: &mut Module, texts: &mut BTreeMap<Module, String>) {
    let mut entries: Vec<PathBuf> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    entries.sort();
    for path in entries {
        let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
        let crate_root = module.is_empty() && (name == "lib" || name == "main");
        if path.is_dir() {
            module.push(name);
            collect(&path, module, texts);
            module.pop();
        } else if path.extension().is_some_and(|extension| extension == "rs") && !crate_root {
            let text = without_comments_and_literals(&std::fs::read_to_string(&path).unwrap());
            texts.insert([module.as_slice(), &[name]].concat(), text);
        }
    }
}

/// What one file names.
struct Source {
    /// Paths as they are written, without renames.
    paths: Vec<Vec<String>>,
    /// Names that the module offers although another one defines them.
    exports: BTreeMap<String, Vec<String>>,
}

impl Source {
    fn parse(text: &str) -> Self {
        let tokens = tokens(text);
        let (mut paths, mut exports, mut at) = (Vec::new(), BTreeMap::new(), 0);
        while at < tokens.len() {
            if tokens[at] == "use" && (at == 0 || tokens[at - 1] != "::") {
                let public = is_public(&tokens[..at]);
                let end = at + tokens[at..].iter().position(|token| *token == ";").unwrap_or(1);
                let mut found = Vec::new();
                tree(&tokens[at + 1..end], &[], &mut found);
                for (path, name) in found {
                    if public {
                        exports.insert(name, path.clone());
                    } else {
                        paths.push(path);
                    }
                }
                at = end;
            } else if is_name(tokens[at]) && (at == 0 || tokens[at - 1] != "::") {
                let mut path = vec![tokens[at].to_owned()];
                while tokens.get(at + 1) == Some(&"::") && tokens.get(at + 2).is_some_and(|next| is_name(next)) {
                    path.push(tokens[at + 2].to_owned());
                    at += 2;
                }
                if path.len() > 1 {
                    paths.push(path);
                }
            }
            at += 1;
        }
        Self { paths, exports }
    }
}

/// Whether what these tokens end with makes the next item public.
fn is_public(before: &[&str]) -> bool {
    match before {
        [.., "pub"] => true,
        [.., ")"] => {
            before.iter().rposition(|token| *token == "(").is_some_and(|open| before[..open].ends_with(&["pub"]))
        }
        _ => false,
    }
}

/// The paths of a `use` tree, each with the name that it gets.
fn tree(tokens: &[&str], prefix: &[String], found: &mut Vec<(Vec<String>, String)>) {
    let (mut path, mut at) = (prefix.to_vec(), 0);
    while let Some(token) = tokens.get(at) {
        match *token {
            "{" => {
                let (mut depth, mut start) = (0, at + 1);
                for (position, token) in tokens.iter().enumerate().skip(at) {
                    match *token {
                        "{" => depth += 1,
                        "," if depth == 1 => {
                            tree(&tokens[start..position], &path, found);
                            start = position + 1;
                        }
                        "}" if depth == 1 => {
                            tree(&tokens[start..position], &path, found);
                            return;
                        }
                        "}" => depth -= 1,
                        _ => {}
                    }
                }
                return;
            }
            "as" => {
                found.push((path, tokens[at + 1].to_owned()));
                return;
            }
            // `a::{self, b}` names `a`.
            "self" if path.len() > prefix.len() || !prefix.is_empty() => {}
            name if is_name(name) => path.push(name.to_owned()),
            _ => {}
        }
        at += 1;
    }
    if path.len() > prefix.len() || !tokens.is_empty() {
        let name = path.last().cloned().unwrap_or_default();
        found.push((path, name));
    }
}

/// The module that defines what a path names; `None` if that is outside of the product.
fn resolve(modules: &BTreeMap<Module, Source>, from: &Module, path: &[String]) -> Option<Module> {
    let mut base: Module = match path.first()?.as_str() {
        "crate" => Vec::new(),
        "self" => from.clone(),
        "super" => from[..from.len() - 1].to_vec(),
        child => {
            let module = [from.as_slice(), &[child.to_owned()]].concat();
            if !modules.contains_key(&module) {
                return None;
            }
            module
        }
    };
    let mut rest = &path[1..];
    for _ in 0..32 {
        let Some(next) = rest.first() else { break };
        let below = [base.as_slice(), std::slice::from_ref(next)].concat();
        if next == "super" {
            base.pop();
        } else if modules.contains_key(&below) {
            base = below;
        } else if let Some(export) = modules.get(&base).and_then(|source| source.exports.get(next)) {
            return resolve(modules, &base, &[export.as_slice(), &rest[1..]].concat());
        } else {
            break;
        }
        rest = &rest[1..];
    }
    (!base.is_empty()).then_some(base)
}

fn is_name(token: &str) -> bool {
    token.starts_with(|c: char| c.is_alphabetic() || c == '_')
}

/// Names, `::`, and single characters.
fn tokens(text: &str) -> Vec<&str> {
    let (mut found, mut rest) = (Vec::new(), text.trim_start());
    while let Some(first) = rest.chars().next() {
        let name = |c: char| c.is_alphanumeric() || c == '_';
        let length = match first {
            c if name(c) => rest.find(|c| !name(c)).unwrap_or(rest.len()),
            ':' if rest.starts_with("::") => 2,
            c => c.len_utf8(),
        };
        found.push(&rest[..length]);
        rest = rest[length..].trim_start();
    }
    found
}

/// The child modules of a module that only exist in tests.
fn test_children(module: &Module, text: &str) -> Vec<Module> {
    let declared = text.split("#[cfg(test)]").skip(1).filter_map(|after| {
        let mut tokens = tokens(&after[..after.find(['{', ';'])?]).into_iter().skip_while(|token| *token != "mod");
        tokens.next()?;
        tokens.next()
    });
    declared.map(|name| [module.as_slice(), &[name.to_owned()]].concat()).collect()
}

/// Leaves out each item after `#[cfg(test)]`.
fn without_tests(text: &str) -> String {
    let mut parts = text.split("#[cfg(test)]");
    let mut kept = parts.next().unwrap_or_default().to_owned();
    let mut open = String::new();
    for part in parts {
        open.push_str(part);
        // Another test item inside of this one is a part of it.
        let Some(end) = end_of_item(&open) else { continue };
        kept.push_str(&open[end..]);
        open.clear();
    }
    kept
}

/// Where the item ends with which a text begins: at its `;`, or at the brace that closes its body.
fn end_of_item(text: &str) -> Option<usize> {
    let mut depth = 0;
    for (at, c) in text.char_indices() {
        match c {
            ';' if depth == 0 => return Some(at + 1),
            '{' => depth += 1,
            '}' => {
                depth -= 1;
                if depth == 0 {
                    return Some(at + 1);
                }
            }
            _ => {}
        }
    }
    None
}

/// Code alone: comments, strings and characters are cut out.
fn without_comments_and_literals(text: &str) -> String {
    let mut code = String::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let in_name = code.ends_with(|c: char| c.is_alphanumeric() || c == '_');
        let skipped = if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if rest.starts_with("/*") {
            block_comment(rest)
        } else if first == '"' {
            string(rest)
        } else if !in_name && let Some(length) = prefixed_string(rest) {
            length
        } else if first == '\'' {
            character(rest)
        } else {
            0
        };
        if skipped == 0 {
            code.push(first);
            rest = &rest[first.len_utf8()..];
        } else {
            code.push(' ');
            rest = &rest[skipped..];
        }
    }
    code
}

fn block_comment(text: &str) -> usize {
    let (mut depth, mut at) = (0, 0);
    while at < text.len() {
        if text[at..].starts_with("/*") {
            (depth, at) = (depth + 1, at + 2);
        } else if text[at..].starts_with("*/") {
            (depth, at) = (depth - 1, at + 2);
            if depth == 0 {
                return at;
            }
        } else {
            at += text[at..].chars().next().map_or(1, char::len_utf8);
        }
    }
    text.len()
}

/// The length of a string that begins with its quote.
fn string(text: &str) -> usize {
    let mut escaped = true;
    for (at, c) in text.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => return at + 1,
            _ => {}
        }
    }
    text.len()
}

/// The length of a raw, byte or C string.
fn prefixed_string(text: &str) -> Option<usize> {
    let letters = text.find(|c| !matches!(c, 'b' | 'c' | 'r')).filter(|letters| (1..=2).contains(letters))?;
    let hashes = text[letters..].find(|c| c != '#')?;
    let open = letters + hashes;
    if !text[open..].starts_with('"') {
        return None;
    }
    if !text[..letters].contains('r') {
        return Some(open + string(&text[open..]));
    }
    let close = format!("\"{}", "#".repeat(hashes));
    Some(text[open + 1..].find(&close).map_or(text.len(), |at| open + 1 + at + close.len()))
}

/// The length of a character; 0 for a lifetime.
fn character(text: &str) -> usize {
    let inside = &text[1..];
    let length = match inside.chars().next() {
        Some('\\') => 2 + inside[2..].find('\'').unwrap_or(0),
        Some(c) => c.len_utf8(),
        None => return 0,
    };
    if inside[length..].starts_with('\'') { length + 2 } else { 0 }
}

#[test]
fn names_are_found_wherever_they_stand() {
    let folder = tempfile::tempdir().unwrap();
    let write = |path: &str, text: &str| {
        let path = folder.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    };
    write("lib.rs", "pub mod a; pub mod b; pub mod c;");
    write("a.rs", "mod inner; pub use self::inner::{Deep as Shown, other}; use crate::{b, c::{self, more::C}};");
    write(
        "a/inner.rs",
        "use super::super::b::B; fn f<'a>(x: &'a str) -> char { crate::c::more::g(); '\"' } // crate::d",
    );
    write(
        "b.rs",
        "use crate::a::Shown; #[cfg(test)] mod tests { use crate::c::C; mod x { #[cfg(test)] use crate::c; } }",
    );
    write(
        "c.rs",
        "pub mod more; #[cfg(test)] mod fake; const T: &str = r#\"crate::b::B \"quoted\" \"#; /* crate::a */",
    );
    write("c/more.rs", "#[cfg(test)] mod tests; #[cfg(test)] use crate::b; pub struct C;");
    write("c/more/tests.rs", "use crate::a::x;");
    write("c/fake.rs", "use crate::a::x;");
    let graph = read(folder.path());
    let module = |path: &str| -> Module { path.split("::").map(str::to_owned).collect() };
    let named = |of: &str| graph[&module(of)].iter().map(|named| named.join("::")).collect::<Vec<_>>();
    assert_eq!(named("a"), ["b", "c", "c::more"]);
    assert_eq!(named("a::inner"), ["b", "c::more"]);
    assert_eq!(named("b"), ["a::inner"], "a name is followed to its definition");
    assert_eq!(named("c"), [""; 0]);
    assert_eq!(named("c::more"), [""; 0]);
    assert_eq!(graph.len(), 5, "{graph:?}");
    assert_eq!(circles(&children(&graph, &[])), [["a".to_owned(), "b".to_owned()].into()]);
}
