//! Rules about the modules of a package: dependencies go from upper to lower layers only.

use std::collections::{BTreeMap, BTreeSet};

use super::tree::File;

/// The top-level modules of a package, from the top layer down. Modules of one layer may use each other, without cycles.
struct Map {
    source: &'static str,
    layers: &'static [&'static [&'static str]],
}

const MAPS: &[Map] = &[
    Map {
        source: "proxy/src/",
        layers: &[
            &["main"],
            &["lib"],
            &["proxy", "hook", "commands"],
            &["mcp", "relay"],
            &["deliver"],
            &["local", "link"],
            &["logs"],
            &["config"],
            &["client"],
        ],
    },
    Map {
        source: "coordinator/src/",
        layers: &[
            &["main"],
            &["lib"],
            &["cli"],
            &["server"],
            &["session", "duties"],
            &["notify"],
            &["request"],
            &["audit"],
            &[
                "store",
                "presence",
                "policy",
                "limit",
                "guard",
                "auth",
                "metrics",
                "data_folder",
                "unfinished",
            ],
            &["config"],
            &["trusted"],
            &[
                "address",
                "bytes",
                "clock",
                "files",
                "fleet",
                "json",
                "listen",
                "log",
                "memory",
                "ntfy_flags",
                "pace",
                "values",
            ],
            &["names"],
        ],
    },
];

impl Map {
    fn of(file: &File) -> Option<&'static Self> {
        MAPS.iter()
            .find(|map| file.is_rust() && file.path.starts_with(map.source))
    }

    fn layer(&self, module: &str) -> Option<usize> {
        self.layers.iter().position(|layer| layer.contains(&module))
    }

    /// Returns the top-level module of a file.
    fn module<'a>(&self, file: &'a File) -> &'a str {
        let inside = &file.path[self.source.len()..];
        inside
            .split_once('/')
            .map_or(inside.trim_end_matches(".rs"), |(folder, _)| folder)
    }

    /// Returns the other top-level modules that a file refers to, each with its line.
    fn named<'a>(&self, file: &'a File) -> Vec<(usize, &'a str)> {
        let own = self.module(file);
        let depth = file.path[self.source.len()..]
            .trim_end_matches("/mod.rs")
            .matches('/')
            .count()
            + 1;
        let from_root = format!("{}{}", "super::".repeat(depth - 1), "super::");
        let mut named = Vec::new();
        for (at, _) in file
            .code
            .match_indices("crate::")
            .chain(file.code.match_indices(&from_root))
        {
            let line = file.code[..at].matches('\n').count() + 1;
            let prefix = if file.code[at..].starts_with("crate::") {
                "crate::"
            } else {
                from_root.as_str()
            };
            let names = first_names(&file.code[at + prefix.len()..]).into_iter();
            named.extend(
                names
                    .filter(|name| *name != own && self.layer(name).is_some())
                    .map(|name| (line, name)),
            );
        }
        named
    }
}

/// Returns the next name of a path, or the first names of the items in a `{…}` list.
fn first_names(path: &str) -> Vec<&str> {
    let word = |text: &'_ str| {
        text.find(|c: char| c != '_' && !c.is_alphanumeric())
            .unwrap_or(text.len())
    };
    let Some(list) = path.strip_prefix('{') else {
        return vec![&path[..word(path)]];
    };
    let (mut names, mut depth, mut start) = (Vec::new(), 0_usize, true);
    for (at, c) in list.char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth == 0 => break,
            '}' => depth -= 1,
            ',' if depth == 0 => start = true,
            c if start && !c.is_whitespace() => {
                names.push(&list[at..at + word(&list[at..])]);
                start = false;
            }
            _ => {}
        }
    }
    names
}

/// Returns the modules that refer to an upper layer, and those missing in the map.
pub(super) fn upward_arrows(file: &File) -> Vec<String> {
    let Some(map) = Map::of(file) else {
        return Vec::new();
    };
    let own = map.module(file);
    let Some(layer) = map.layer(own) else {
        return vec![format!(
            "{}: the map in tests/tidy/modules.rs has no module {own}",
            file.path
        )];
    };
    let upward = map
        .named(file)
        .into_iter()
        .filter(|(_, name)| map.layer(name).is_some_and(|other| other < layer));
    upward
        .map(|(line, name)| {
            format!(
                "{}:{line}: {own} is below {name} and must not know it",
                file.path
            )
        })
        .collect()
}

/// Returns the cycles between top-level modules.
pub(super) fn circles(files: &[File]) -> Vec<String> {
    let mut found = Vec::new();
    for map in MAPS {
        let mut arrows: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        for file in files
            .iter()
            .filter(|file| file.is_rust() && file.path.starts_with(map.source))
        {
            arrows
                .entry(map.module(file))
                .or_default()
                .extend(map.named(file).into_iter().map(|(_, name)| name));
        }
        let circular = arrows
            .keys()
            .filter(|start| reachable(&arrows, start).contains(*start));
        let circular: Vec<_> = circular.copied().collect();
        if !circular.is_empty() {
            found.push(format!(
                "{}: these modules go in a circle: {}",
                map.source,
                circular.join(", ")
            ));
        }
    }
    found
}

fn reachable<'a>(
    arrows: &BTreeMap<&'a str, BTreeSet<&'a str>>,
    start: &'a str,
) -> BTreeSet<&'a str> {
    let mut reached = BTreeSet::new();
    let mut next: Vec<&str> = vec![start];
    while let Some(module) = next.pop() {
        next.extend(
            arrows
                .get(module)
                .into_iter()
                .flatten()
                .copied()
                .filter(|name| reached.insert(*name)),
        );
    }
    reached
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_off_paths() {
        assert_eq!(first_names("link::Link;"), ["link"]);
        assert_eq!(
            first_names("{config::{A, B}, link::Link, mcp};"),
            ["config", "link", "mcp"]
        );
        assert_eq!(
            first_names("{\n    config,\n    link::*,\n};"),
            ["config", "link"]
        );
    }

    #[test]
    fn arrows_up_are_caught() {
        let check = |breaches, path, text| {
            let found = upward_arrows(&File::new(path, text));
            assert_eq!(found.len(), breaches, "{path}: {text}: {found:?}");
        };
        check(1, "proxy/src/link/dial.rs", "use crate::mcp::Server;");
        check(
            1,
            "proxy/src/link/dial.rs",
            "use super::super::mcp::Server;",
        );
        check(1, "proxy/src/link/mod.rs", "use super::mcp::Server;");
        check(
            1,
            "proxy/src/config/mod.rs",
            "fn f() -> crate::link::Link {}",
        );
        check(
            1,
            "coordinator/src/store/mod.rs",
            "use crate::{config::Config, request::Request};",
        );
        check(1, "coordinator/src/unheard_of.rs", "");
        check(
            0,
            "proxy/src/link/dial.rs",
            "use crate::config::Config; // crate::mcp is above",
        );
        check(
            0,
            "proxy/src/mcp/mod.rs",
            "use crate::{deliver::Inbox, link};",
        );
        check(0, "proxy/src/link/dial.rs", "use super::mcp;");
        check(0, "shared/src/ids.rs", "use crate::wire::Frame;");
    }

    #[test]
    fn circles_are_caught() {
        let file = |path, text| File::new(path, text);
        let circle = [
            file("coordinator/src/store/mod.rs", "use crate::presence;"),
            file("coordinator/src/presence.rs", "use crate::limit;"),
            file("coordinator/src/limit.rs", "use crate::store::Store;"),
        ];
        assert_eq!(circles(&circle).len(), 1);
        assert!(circles(&circle).concat().contains("limit, presence, store"));
        assert!(circles(&circle[..2]).is_empty());
    }
}
