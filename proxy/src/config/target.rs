//! The URLs of coordinators: as people write them, and as links use them.

use c3po_shared::wire;
use tokio_tungstenite::tungstenite::http::Uri;

/// The default URL of a coordinator.
pub const DEFAULT_URL: &str = "http://127.0.0.1:8420";

/// Returns the problem of one or several URLs of coordinators, separated by commas.
pub fn problem_of_urls(urls: &str) -> Option<String> {
    targets(urls).err()
}

/// Parses one or several URLs, separated by commas, into link URLs.
pub(crate) fn targets(urls: &str) -> Result<Vec<String>, String> {
    let targets: Vec<_> = urls
        .split(',')
        .map(str::trim)
        .filter(|url| !url.is_empty())
        .map(target)
        .collect::<Result<_, _>>()?;
    if targets.is_empty() {
        Err(format!(
            "C3PO_COORDINATOR_URL is '{urls}', which has no URL"
        ))
    } else {
        Ok(targets)
    }
}

fn target(url: &str) -> Result<String, String> {
    let wrong =
        |why: &str| format!("C3PO_COORDINATOR_URL: '{url}' {why}; write it like {DEFAULT_URL}");
    let (scheme, rest) = match url.split_once("://") {
        Some(parts) => parts,
        // A single word is more often a mistake than a host at port 80.
        None if url.contains(':') => ("http", url),
        None => return Err(wrong("is not a URL")),
    };
    let scheme = match scheme.to_ascii_lowercase().as_str() {
        "http" | "ws" => "ws",
        "https" | "wss" => "wss",
        _ => return Err(wrong("is neither http:// nor https://")),
    };
    let rest = rest.trim_end_matches('/');
    let place = rest.strip_suffix(wire::PATH).unwrap_or(rest);
    let target = format!("{scheme}://{place}{}", wire::PATH);
    match target.parse::<Uri>() {
        Ok(uri) if uri.host().is_some_and(|host| !host.is_empty()) => Ok(target),
        _ => Err(wrong("is not a URL")),
    }
}

/// Returns a target as people write it: `ws://a:1/acp` becomes `http://a:1`, and `wss` becomes `https`.
pub fn as_written(target: &str) -> String {
    let (scheme, place) = target.split_once("://").unwrap_or(("ws", target));
    let scheme = if scheme == "wss" { "https" } else { "http" };
    format!(
        "{scheme}://{}",
        place.strip_suffix(wire::PATH).unwrap_or(place)
    )
}

/// Returns whether each of those targets is in the file too.
pub(super) fn are_among(urls: &[String], file: &str) -> bool {
    let written = targets(file).unwrap_or_default();
    urls.iter()
        .all(|url| written.iter().any(|known| known.eq_ignore_ascii_case(url)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_become_targets() {
        let check = |urls: &str, expected: Result<&[&str], ()>| {
            let found = targets(urls);
            let found: Result<Vec<_>, ()> = found
                .as_ref()
                .map(|all| all.iter().map(String::as_str).collect())
                .map_err(|_| ());
            assert_eq!(found, expected.map(<[&str]>::to_vec), "{urls}");
        };
        check(
            "http://a:1, ws://b:2/",
            Ok(&["ws://a:1/acp", "ws://b:2/acp"]),
        );
        check("ws://a:1/acp", Ok(&["ws://a:1/acp"]));
        check("nas:8420", Ok(&["ws://nas:8420/acp"]));
        check("http://[::1]:8420", Ok(&["ws://[::1]:8420/acp"]));
        check(
            "https://nas:8420/,wss://b/acp",
            Ok(&["wss://nas:8420/acp", "wss://b/acp"]),
        );
        for bad in [
            "ftp://a",
            "http://",
            ",",
            "http://a b",
            "nonsense",
            "nas:8420,nonsense",
        ] {
            check(bad, Err(()));
        }
    }

    #[test]
    fn targets_are_shown_as_people_write_them() {
        let check = |target: &str, expected: &str| assert_eq!(as_written(target), expected);
        check("ws://nas:8420/acp", "http://nas:8420");
        check("wss://nas/c3po/acp", "https://nas/c3po");
        check("", "http://");
    }
}
