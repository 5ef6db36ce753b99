//! Masking of secrets in the texts of pushes, which pass through a server of others and stay on lock screens.

/// The replacement for a secret.
const MASK: &str = "[masked]";
/// The prefixes of tokens of known services.
const PREFIXES: [&str; 18] = [
    "sk-",
    "sk_live_",
    "rk_live_",
    "ghp_",
    "gho_",
    "ghs_",
    "ghu_",
    "github_pat_",
    "glpat-",
    "xoxb-",
    "xoxp-",
    "xoxa-",
    "AKIA",
    "ASIA",
    "AIza",
    "npm_",
    "tk_",
    "c3po",
];
/// The ends of names whose values are secrets.
const NAMES: [&str; 10] = [
    "password",
    "passwd",
    "passphrase",
    "secret",
    "token",
    "apikey",
    "api_key",
    "api-key",
    "access_key",
    "private_key",
];
/// The least length of a token with a known prefix, and of a word that looks random.
const TOKEN_MIN: usize = 16;
const RANDOM_MIN: usize = 32;

/// The longest first line of a private key that is looked for, in characters: a text may have thousands of such beginnings.
const PEM_HEAD_MAX: usize = 80;

/// Returns the text with secrets masked: tokens, values after the names of secrets, passwords in URLs, private keys, and
/// long random words.
pub(super) fn masked(text: &str) -> String {
    let text = without_private_keys(text);
    let mut masked = String::with_capacity(text.len());
    let mut is_value = false;
    for word in text.split_inclusive(char::is_whitespace) {
        let bare = word.trim_end();
        let blank = &word[bare.len()..];
        let (shown, next) = mask_word(bare, is_value);
        masked.push_str(&shown);
        masked.push_str(blank);
        if !bare.is_empty() {
            is_value = next;
        }
    }
    masked
}

/// Returns the word as it is shown, and whether the next word is a secret.
fn mask_word(word: &str, is_value: bool) -> (String, bool) {
    let lower = word.to_ascii_lowercase();
    if is_value && !word.is_empty() {
        // `Authorization: Bearer TOKEN` has two words before its secret.
        return match lower.trim_matches(['"', '\'']) {
            "bearer" | "basic" => (word.to_owned(), true),
            _ => (MASK.to_owned(), false),
        };
    }
    if matches!(
        lower.trim_matches(['"', '\'', ':']),
        "bearer" | "authorization"
    ) {
        return (word.to_owned(), true);
    }
    if let Some(at) = word.find(['=', ':']) {
        let (name, value) = word.split_at(at);
        let name = name
            .trim_matches(['"', '\'', '-', '{', ','])
            .to_ascii_lowercase();
        if NAMES.iter().any(|secret| name.ends_with(secret)) {
            let shown = word[..=at].to_owned();
            return match value[1..].trim_matches(['"', '\'']) {
                "" => (shown, true),
                _ => (shown + MASK, false),
            };
        }
    }
    if let Some(shown) = without_password(word) {
        return (shown, false);
    }
    let is_option = NAMES
        .iter()
        .any(|secret| lower.starts_with("--") && lower.ends_with(secret));
    (mask_tokens(word), is_option)
}

/// Returns the URL in a word without its password, or `None` if it has none.
fn without_password(word: &str) -> Option<String> {
    let start = word.find("://")? + 3;
    let place = &word[start..];
    let place = &place[..place.find(['/', '?', '"', '\'']).unwrap_or(place.len())];
    let at = place.rfind('@')?;
    let colon = place[..at].find(':')?;
    Some(format!(
        "{}{MASK}{}",
        &word[..=start + colon],
        &word[start + at..]
    ))
}

/// Masks the parts of a word that look like tokens.
fn mask_tokens(word: &str) -> String {
    let is_part = |c: char| c.is_ascii_alphanumeric() || "-_+/.".contains(c);
    let mut shown = String::with_capacity(word.len());
    let mut rest = word;
    while let Some(start) = rest.find(is_part) {
        shown.push_str(&rest[..start]);
        let part = &rest[start..];
        let part = &part[..part.find(|c| !is_part(c)).unwrap_or(part.len())];
        shown.push_str(if is_token(part) { MASK } else { part });
        rest = &rest[start + part.len()..];
    }
    shown + rest
}

fn is_token(part: &str) -> bool {
    let is_known = PREFIXES.iter().any(|prefix| part.starts_with(prefix));
    (is_known && part.len() >= TOKEN_MIN && has_digit(part))
        || part.split(['/', '.']).any(is_random)
}

/// Returns whether a word mixes digits and letters of both cases, or is a long hexadecimal number.
fn is_random(part: &str) -> bool {
    let has_lower = part.chars().any(|c| c.is_ascii_lowercase());
    let has_upper = part.chars().any(|c| c.is_ascii_uppercase());
    let is_hex = part.chars().all(|c| c.is_ascii_hexdigit());
    part.len() >= RANDOM_MIN && has_digit(part) && ((has_lower && has_upper) || is_hex)
}

fn has_digit(text: &str) -> bool {
    text.chars().any(|c| c.is_ascii_digit())
}

/// Returns the text without the content of private keys in PEM form. One without an end is masked to the end of the text.
fn without_private_keys(text: &str) -> String {
    let mut kept = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(start) = rest.find("-----BEGIN ") {
        let head = &rest[start..];
        let line = head.char_indices().nth(PEM_HEAD_MAX);
        let line = &head[..line.map_or(head.len(), |(end, _)| end)];
        let is_private = line
            .lines()
            .next()
            .is_some_and(|line| line.contains("PRIVATE KEY"));
        if !is_private {
            let (before, after) = rest.split_at(start + "-----BEGIN ".len());
            kept.push_str(before);
            rest = after;
            continue;
        }
        kept.push_str(&rest[..start]);
        kept.push_str(MASK);
        let end = head.find("-----END ").map(|end| end + "-----END ".len());
        let after = end.and_then(|end| head[end..].find("-----").map(|close| end + close + 5));
        rest = after.map_or("", |after| &head[after..]);
    }
    kept + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_beginnings_of_keys_on_one_line_are_read_once() {
        let text = "-----BEGIN ".repeat(100_000);
        let begun = std::time::Instant::now();
        assert_eq!(masked(&text), text);
        assert!(begun.elapsed() < std::time::Duration::from_secs(4));
    }

    #[test]
    fn secrets_are_masked_and_nothing_else() {
        for (text, shown) in [
            (
                "curl -H 'Authorization: Bearer abc' https://x/y",
                "curl -H 'Authorization: Bearer [masked] https://x/y",
            ),
            (
                "PASSWORD=hunter2 make deploy",
                "PASSWORD=[masked] make deploy",
            ),
            (
                "mysql --password hunter2 db",
                "mysql --password [masked] db",
            ),
            (
                "\"api_key\": \"abc\", \"b\": 1",
                "\"api_key\": [masked] \"b\": 1",
            ),
            (
                "git push https://jo:hunter2@git.example/x",
                "git push https://jo:[masked]@git.example/x",
            ),
            ("use ghp_0123456789abcdefABCDEF now", "use [masked] now"),
            ("key 0123456789abcdef0123456789abcdef", "key [masked]"),
            (
                "-----BEGIN RSA PRIVATE KEY-----\nabc\n-----END RSA PRIVATE KEY-----\nrest",
                "[masked]\nrest",
            ),
            ("-----BEGIN PRIVATE KEY-----\nabc", "[masked]"),
        ] {
            assert_eq!(masked(text), shown);
        }
        for text in [
            "Deploy the new version to the staging server?",
            "rm -rf ./target/debug/incremental && cargo build --release",
            "Which of https://example.org/a:b or /var/lib/postgresql/16/main/base?",
            "-----BEGIN CERTIFICATE-----\nabc",
            "  two\n\n lines\t ",
        ] {
            assert_eq!(masked(text), text);
        }
    }
}
