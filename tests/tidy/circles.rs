//! Import cycles between files: follows every `use` and every path from file to file, and finds the cycles.
//!
//! A re-exported name (`pub use`) leads to the file that defines it. An arrow to the `mod.rs` above is ignored, because a
//! folder's files may use the item that the folder is named after.

use std::collections::{BTreeMap, BTreeSet};

use super::tree::File;

/// The packages, by their source folders.
const PACKAGES: [&str; 5] = [
    "shared/src/",
    "proxy/src/",
    "coordinator/src/",
    "tests/harness/",
    "tests/inside/src/",
];

/// The files of a package by module path, such as `link::run`, and the re-exports of each module.
struct Package<'a> {
    files: BTreeMap<String, &'a File>,
    exports: BTreeMap<(String, String), String>,
}

/// A path in a `use`, and the name that it introduces.
struct Named {
    path: String,
    name: String,
    passed_on: bool,
}

impl Named {
    fn new(leaf: &str, passed_on: bool) -> Self {
        let (path, alias) = leaf
            .split_once(" as ")
            .map_or((leaf, None), |(path, name)| (path, Some(name)));
        let path = path.trim_end_matches("::self").trim();
        let name = alias
            .or(path.rsplit("::").next())
            .unwrap_or_default()
            .trim();
        Self {
            path: path.to_owned(),
            name: name.to_owned(),
            passed_on,
        }
    }
}

/// Returns the import cycles of each package, as file paths.
pub(super) fn circles(files: &[File]) -> Vec<Vec<&str>> {
    PACKAGES
        .iter()
        .flat_map(|source| Package::new(source, files).circles())
        .collect()
}

impl<'a> Package<'a> {
    fn new(source: &str, files: &'a [File]) -> Self {
        let inside = |file: &'a File| {
            Some((
                module(file.path.strip_prefix(source)?.strip_suffix(".rs")?),
                file,
            ))
        };
        let files: BTreeMap<_, _> = files.iter().filter_map(inside).collect();
        let mut exports = BTreeMap::new();
        for (module, file) in &files {
            let passed_on = uses(production(file))
                .0
                .into_iter()
                .filter(|named| named.passed_on);
            exports.extend(passed_on.map(|named| ((module.clone(), named.name), named.path)));
        }
        Self { files, exports }
    }

    fn circles(&self) -> Vec<Vec<&'a str>> {
        let arrows: BTreeMap<_, _> = self
            .files
            .iter()
            .map(|(module, file)| (module, self.arrows(module, file)))
            .collect();
        let reached: BTreeMap<_, _> = arrows
            .keys()
            .map(|module| (*module, reachable(&arrows, module)))
            .collect();
        let mut circles = BTreeSet::new();
        for module in arrows
            .keys()
            .filter(|module| reached[*module].contains(module.as_str()))
        {
            let others = reached[module]
                .iter()
                .filter(|other| reached[*other].contains(module.as_str()));
            circles.insert(
                others
                    .map(|module| self.files[module].path.as_str())
                    .collect(),
            );
        }
        circles.into_iter().collect()
    }

    /// Returns the modules that a file refers to, without the modules that contain it.
    fn arrows(&self, module: &str, file: &File) -> BTreeSet<String> {
        let (used, between) = uses(production(file));
        let used = used
            .into_iter()
            .filter(|named| !named.passed_on)
            .map(|named| named.path);
        let ends = used
            .chain(paths(&between))
            .filter_map(|path| self.end(module, &path));
        ends.filter(|end| {
            end != module && !end.is_empty() && !module.starts_with(&format!("{end}::"))
        })
        .collect()
    }

    /// Returns the module whose file defines the target of a path in `module`; `None` if the path leaves the package.
    fn end(&self, module: &str, path: &str) -> Option<String> {
        let (mut at, mut rest) = (module.to_owned(), path);
        if let Some(inside) = path.strip_prefix("crate::") {
            (at, rest) = (String::new(), inside);
        } else if let Some(inside) = path.strip_prefix("self::") {
            rest = inside;
        } else if path.starts_with("super::") {
            while let Some(inside) = rest.strip_prefix("super::") {
                (at, rest) = (parent(&at), inside);
            }
        } else if !self
            .files
            .contains_key(&join(module, path.split("::").next()?))
        {
            return None;
        }
        for (number, name) in rest.split("::").enumerate() {
            let inner = join(&at, name);
            if self.files.contains_key(&inner) {
                at = inner;
            } else if let Some(passed_on) = self.exports.get(&(at.clone(), name.to_owned())) {
                let further: Vec<_> = rest.split("::").skip(number + 1).collect();
                let path = [&[passed_on.as_str()], further.as_slice()]
                    .concat()
                    .join("::");
                return Some(self.end(&at, &path).unwrap_or(at));
            } else {
                break;
            }
        }
        Some(at)
    }
}

/// Returns the module path of a file, from its path without the extension.
fn module(inside: &str) -> String {
    match inside {
        "lib" => String::new(),
        _ => inside.trim_end_matches("/mod").replace('/', "::"),
    }
}

fn join(module: &str, name: &str) -> String {
    if module.is_empty() {
        name.to_owned()
    } else {
        format!("{module}::{name}")
    }
}

fn parent(module: &str) -> String {
    module
        .rsplit_once("::")
        .map_or(String::new(), |(parent, _)| parent.to_owned())
}

/// Returns the code of a file without its test module.
fn production(file: &File) -> &str {
    file.code
        .split("#[cfg(test)]\nmod tests")
        .next()
        .unwrap_or_default()
}

/// Returns the paths of all `use` items, and the code between them.
fn uses(code: &str) -> (Vec<Named>, String) {
    let (mut named, mut between, mut rest) = (Vec::new(), String::new(), code);
    while let Some((before, after)) = rest.split_once("use ") {
        let line = before.rsplit('\n').next().unwrap_or_default().trim();
        let passed_on = line.starts_with("pub") && !line.contains(';');
        between.push_str(before);
        rest = after;
        if line.is_empty() || passed_on {
            let (tree, after) = after.split_once(';').unwrap_or((after, ""));
            named.extend(
                leaves(tree)
                    .into_iter()
                    .map(|leaf| Named::new(&leaf, passed_on)),
            );
            rest = after;
        }
    }
    (named, between + rest)
}

/// Returns the paths in a `use` tree: `a::{b, c::d}` contains `a::b` and `a::c::d`.
fn leaves(tree: &str) -> Vec<String> {
    let Some((prefix, list)) = tree.split_once('{') else {
        return vec![tree.trim().to_owned()];
    };
    let list = list.trim_end().strip_suffix('}').unwrap_or(list);
    let (mut depth, mut start, mut found) = (0_usize, 0, Vec::new());
    for (at, c) in list.char_indices().chain([(list.len(), ',')]) {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                let part = list[start..at].trim();
                found.extend(leaves(part).into_iter().filter(|leaf| !leaf.is_empty()));
                start = at + 1;
            }
            _ => {}
        }
    }
    found
        .into_iter()
        .map(|leaf| format!("{}{leaf}", prefix.trim()))
        .collect()
}

/// Returns every path of at least two names in the code.
fn paths(code: &str) -> impl Iterator<Item = String> {
    let words = code.split(|c: char| !(c.is_alphanumeric() || c == '_' || c == ':'));
    words
        .map(|word| word.trim_matches(':'))
        .filter(|word| word.contains("::"))
        .map(str::to_owned)
}

fn reachable(arrows: &BTreeMap<&String, BTreeSet<String>>, start: &String) -> BTreeSet<String> {
    let mut reached = BTreeSet::new();
    let mut next = vec![start];
    while let Some(module) = next.pop() {
        next.extend(
            arrows
                .get(module)
                .into_iter()
                .flatten()
                .filter(|name| reached.insert((*name).clone())),
        );
    }
    reached
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(expected: &[&[&str]], files: &[(&str, &str)]) {
        let files: Vec<_> = files
            .iter()
            .map(|(path, text)| File::new(&format!("proxy/src/{path}"), text))
            .collect();
        let expected: Vec<Vec<String>> = expected
            .iter()
            .map(|circle| {
                circle
                    .iter()
                    .map(|path| format!("proxy/src/{path}"))
                    .collect()
            })
            .collect();
        assert_eq!(circles(&files), expected);
    }

    #[test]
    fn files_that_lead_back_are_a_circle() {
        let (run, queue) = (
            ("link/run.rs", "use super::queue;"),
            ("link/queue.rs", "use super::rest::Rest;"),
        );
        let rest = ("link/rest.rs", "fn f() { crate::link::run::run() }");
        let folder = ("link/mod.rs", "mod queue;\nmod rest;\nmod run;");
        check(
            &[&["link/queue.rs", "link/rest.rs", "link/run.rs"]],
            &[folder, run, queue, rest],
        );
        check(&[], &[run, queue]);
        check(
            &[],
            &[
                run,
                queue,
                (
                    "link/rest.rs",
                    "#[cfg(test)]\nmod tests {\n    use super::super::run::run;\n}",
                ),
            ],
        );
        check(
            &[],
            &[
                ("a.rs", "// crate::b::B"),
                ("b.rs", "use crate::a::{A, self};"),
            ],
        );
        check(
            &[&["a.rs", "b.rs"]],
            &[
                ("a.rs", "use crate::{c, b::{self, B}};"),
                ("b.rs", "use super::a as c;"),
            ],
        );
    }

    #[test]
    fn names_that_are_passed_on_lead_to_their_file() {
        let map = (
            "commands/mod.rs",
            "pub(crate) use session::{Failure, Session as Asker};\nmod print;\nmod session;",
        );
        let session = ("commands/session.rs", "use super::print;");
        check(
            &[&["commands/print.rs", "commands/session.rs"]],
            &[map, session, ("commands/print.rs", "use super::Asker;")],
        );
        check(
            &[],
            &[map, session, ("commands/print.rs", "use super::Other;")],
        );
    }

    #[test]
    fn a_folder_and_its_files_are_no_circle() {
        let child = ("link/run.rs", "use super::Link;");
        check(
            &[],
            &[
                ("link/mod.rs", "fn f() { run::run() }\npub struct Link;"),
                child,
                ("lib.rs", "use link::Link;"),
            ],
        );
    }
}
