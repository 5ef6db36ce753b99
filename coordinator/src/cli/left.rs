//! The texts about a revoked or rotated credential, and about those that outlive it, with the commands that revoke them.
//!
//! A thief may have chosen the names. So none is in a list of commands, and a text that is pasted into a shell runs its commands
//! alone.

use c3po_shared::text::shell_word;
use serde_json::Value;

use super::requests::required;
use super::tables::{brief, listed, plain};
use crate::server::PrintedCommand;

/// Returns the text about a revoked login.
pub(super) fn by_login(answer: &Value, typed: &PrintedCommand) -> anyhow::Result<String> {
    let said = |name: &str| word(answer, name);
    let (id, name, state) = (said("id")?, said("name")?, said("state")?);
    let made = made(answer, typed)?;
    Ok(format!("The login {id} of {name} is {state}.{made}"))
}

/// Returns the text about a revoked key.
pub(super) fn by_key(answer: &Value, typed: &PrintedCommand) -> anyhow::Result<String> {
    let said = |name: &str| word(answer, name);
    let (id, name, state) = (said("id")?, said("name")?, said("state")?);
    let mut text = format!("The key {id} of {name} is {state}.");
    text += &still_valid(answer, typed)?;
    if answer["is_whole"] == false {
        text += &format!(
            "\n\nWhat outlives it could not be read. To list it, revoke the key once more:\n\n  {}",
            revocation("key", answer, typed)?
        );
    }
    text += &format!(
        "\n\nIf that machine is lost, revoke the logins of its person and its browsers, too. To list them:\n\n  {}\n",
        typed.line("logins list")
    );
    Ok(text)
}

/// Returns the text about a key with a new secret.
pub(super) fn by_rotation(answer: &Value, typed: &PrintedCommand) -> anyhow::Result<String> {
    let (key, id, name) = (
        required(answer, "key")?,
        word(answer, "id")?,
        word(answer, "name")?,
    );
    let host = shell_word(&required(answer, "host")?);
    let mut text = format!(
        "{key}\n\nKey {id} of {name}. It is not shown again. Write it as token into the config.toml of that host, or join \
         the host again under its name, with the command from:\n\n  {}\n",
        typed.line(&format!("invite --host {host}"))
    );
    let left = still_valid(answer, typed)?;
    if !left.is_empty() {
        text += &format!(
            "\nNote: if another program had the old secret, this is not enough. It may have these, too.{left}\n"
        );
    }
    if answer["is_whole"] == false {
        text += &format!(
            "\nNote: a program that had the old secret may have other credentials, and their list could not be read. \
             Revoking the key lists them:\n\n  {}\n",
            revocation("key", answer, typed)?
        );
    }
    Ok(text)
}

/// Returns the text about the credentials that outlive a key or its old secret; empty if there are none.
fn still_valid(answer: &Value, typed: &PrintedCommand) -> anyhow::Result<String> {
    let same_host = listed(answer, "same_host").iter();
    let rows: Vec<_> = same_host
        .map(|other| {
            let (id, name) = (word(other, "id")?, word(other, "name")?);
            let row = format!("The key {id} of {name}");
            Ok((row, revocation("key", other, typed)?))
        })
        .collect::<anyhow::Result<_>>()?;
    let mut text = String::new();
    if !rows.is_empty() {
        let host = word(answer, "host")?;
        text += &section(
            &format!("These keys of the host {host} are still valid:"),
            &rows,
        );
    }
    let end = |invite: &str| typed.line(&format!("invites revoke {}", shell_word(invite)));
    if let Some(invite) = plain(answer, "open_invite") {
        text += &format!(
            "\n\nThe invite with which that host joined is still open to every program that has read its code there. To \
             revoke it:\n\n  {}",
            end(&invite)
        );
    }
    let invites = listed(answer, "host_invites").iter();
    let rows: Vec<_> = invites
        .filter_map(Value::as_str)
        .map(|id| (format!("The invite {}", one_word(id)), end(id)))
        .collect();
    if !rows.is_empty() {
        let host = word(answer, "host")?;
        text += &section(
            &format!(
                "These invites are still open, and give a key of the host {host} to a program that has read the code:"
            ),
            &rows,
        );
    }
    text += &made(answer, typed)?;
    Ok(text)
}

const MADE: &str = "It made or rotated these, which are still valid:";
const PERHAPS_MADE: &str = "It may have made or rotated these too, because a maker of each is not stored any more. \
                            The audit lists the makers that it still has:";

/// Returns the text about what a login or a key made; empty if there is nothing.
fn made(answer: &Value, typed: &PrintedCommand) -> anyhow::Result<String> {
    let mut text = String::new();
    for (is_uncertain, head) in [(false, MADE), (true, PERHAPS_MADE)] {
        let made = listed(answer, "made").iter();
        let rows: Vec<_> = made
            .filter(|made| (made["is_uncertain"] == true) == is_uncertain)
            .map(|made| {
                Ok((
                    origin(made)?,
                    revocation(&word(made, "kind")?, made, typed)?,
                ))
            })
            .collect::<anyhow::Result<_>>()?;
        if !rows.is_empty() {
            text += &section(head, &rows);
        }
    }
    Ok(text)
}

/// Returns the description of a credential with its makers.
fn origin(made: &Value) -> anyhow::Result<String> {
    let said = |name: &str| word(made, name);
    let maker = |name: &str| plain(made, name).map(|by| words(&by));
    let (kind, id) = (said("kind")?, said("id")?);
    let of =
        plain(made, "name").map_or_else(String::new, |name| format!(" of {}", one_word(&name)));
    let rotated = maker("rotated_by").map(|by| format!(", rotated by {by}"));
    let (made_by, lost) = (words(&required(made, "made_by")?), maker("lost_maker"));
    let lost = lost.map(|lost| match rotated {
        None if lost == made_by => ", which is not stored any more".to_owned(),
        _ => format!(", through {lost}, which is not stored any more"),
    });
    Ok(format!(
        "The {kind} {id}{of}, scope {}, made by {made_by}{}{}",
        said("scope")?,
        rotated.unwrap_or_default(),
        lost.unwrap_or_default(),
    ))
}

/// Returns descriptions of credentials below a line, and then the commands that revoke them as one block to paste.
fn section(head: &str, rows: &[(String, String)]) -> String {
    let block = |part: fn(&(String, String)) -> &String| {
        let lines: Vec<_> = rows.iter().map(|row| format!("  {}", part(row))).collect();
        lines.join("\n")
    };
    let (described, commands) = (block(|row| &row.0), block(|row| &row.1));
    format!(
        "\n\n{head}\n\n{described}\n\nThese commands end them, in the same order:\n\n{commands}"
    )
}

/// Returns the command that revokes a credential of that kind.
fn revocation(kind: &str, of: &Value, typed: &PrintedCommand) -> anyhow::Result<String> {
    let id = shell_word(&required(of, "id")?);
    Ok(typed.line(&format!("{kind}s revoke {id}")))
}

/// Returns a text of the answer as one word.
fn word(answer: &Value, name: &str) -> anyhow::Result<String> {
    Ok(one_word(&required(answer, name)?))
}

/// Returns a text with each of its words as one in which a shell reads nothing, such as `invite ID`.
fn words(text: &str) -> String {
    let words: Vec<_> = text.split_whitespace().map(one_word).collect();
    words.join(" ")
}

/// Returns a text as one word in which a shell reads nothing, also without quotes: its letters and digits, with `_` between
/// them for all that is not harmless.
fn one_word(text: &str) -> String {
    let is_harmless = |c: char| c.is_alphanumeric() || "._@-".contains(c);
    let mut word = String::new();
    for c in text.chars() {
        match is_harmless(c) {
            true => word.push(c),
            false if word.ends_with('_') => {}
            false => word.push('_'),
        }
    }
    brief(&word)
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::process::{Command, Stdio};

    use anyhow::Result;
    use serde_json::json;

    use super::*;
    use crate::cli::admin::{Admin, KeysCommand};
    use crate::cli::logins::LoginsCommand;

    fn typed(program: &str) -> PrintedCommand {
        PrintedCommand::new(
            Some(program),
            Path::new("/data"),
            ([127, 0, 0, 1], 8420).into(),
        )
    }

    fn commands() -> [Admin; 3] {
        let id = "01".to_owned();
        [
            Admin::Keys(KeysCommand::Revoke { id: id.clone() }),
            Admin::Keys(KeysCommand::Rotate { id: id.clone() }),
            Admin::Logins(LoginsCommand::Revoke { id, json: false }),
        ]
    }

    /// Returns an answer about a key or a login of that name, with other credentials of that name.
    fn named(name: &str) -> Value {
        let made = |id: &str, kind: &str, is_uncertain: bool| {
            json!({"kind": kind, "id": id, "name": name, "scope": "admin", "made_by": "login-05",
                "is_uncertain": is_uncertain, "lost_maker": is_uncertain.then_some("invite 06")})
        };
        json!({"key": "c3po_01_x", "id": "01", "name": name, "host": "nas", "state": "revoked",
            "same_host": [{"id": "02", "name": name}], "open_invite": "03", "host_invites": ["08"],
            "is_whole": false,
            "made": [made("04", "key", false), made("05", "login", false), made("07", "key", true)]})
    }

    #[test]
    fn a_text_that_is_pasted_runs_nothing_but_its_commands() -> Result<()> {
        let folder = tempfile::tempdir()?;
        let file = folder.path().join("made");
        let names = [
            "phone; echo pasted $(id -un) > FILE ; true",
            "ann's phone",
            "a \"phone",
            "`echo pasted > FILE`",
            "phone & echo pasted | tee FILE || echo >> FILE",
            "one\necho pasted > FILE\n",
            "$(( (phone) { [ * ? ~ ! # \\",
        ];
        for name in names {
            let name = name.replace("FILE", &file.display().to_string());
            for command in commands() {
                let text = command.show(&named(&name), &typed("echo ran"))?;
                let mut shell = Command::new("/bin/sh");
                shell.env_clear().env("PATH", "").current_dir(&folder);
                let ran = shell.arg("-c").arg(&text).stderr(Stdio::null()).output()?;
                let expected: Vec<_> = text
                    .lines()
                    .filter_map(|line| line.strip_prefix("  echo "))
                    .collect();
                assert!(expected.len() >= 3, "{text}");
                let ran = String::from_utf8(ran.stdout)?;
                assert_eq!(ran.lines().collect::<Vec<_>>(), expected, "{text}");
                assert!(!file.exists(), "{text}");
            }
        }
        Ok(())
    }

    #[test]
    fn credentials_are_described_before_the_commands_which_are_one_block() -> Result<()> {
        let [_, _, revoke] = commands();
        let text = revoke.show(&named("ann's; phone"), &typed("c3po-coordinator"))?;
        let expected = "The login 01 of ann_s_phone is revoked.\n\n\
            It made or rotated these, which are still valid:\n\n  \
              The key 04 of ann_s_phone, scope admin, made by login-05\n  \
              The login 05 of ann_s_phone, scope admin, made by login-05\n\n\
            These commands end them, in the same order:\n\n  \
              c3po-coordinator keys revoke 04 --data-dir /data --listen 127.0.0.1:8420\n  \
              c3po-coordinator logins revoke 05 --data-dir /data --listen 127.0.0.1:8420\n\n";
        assert!(text.starts_with(expected), "{text}");
        assert!(
            text.contains(
                ", made by login-05, through invite 06, which is not stored any more\n\n"
            ),
            "{text}"
        );
        Ok(())
    }

    #[test]
    fn with_a_revoked_key_the_other_credentials_of_its_host_are_named() -> Result<()> {
        let [revoke, _, _] = commands();
        let answer = json!({"id": "01", "name": "nas", "host": "nas", "state": "revoked",
            "same_host": [{"id": "02", "name": "guest"}], "open_invite": "03", "host_invites": ["04", "05"]});
        let said = revoke.show(&answer, &typed("c3po-coordinator"))?;
        for part in [
            "The key 01 of nas is revoked.",
            "  The key 02 of guest\n",
            " keys revoke 02 ",
            " invites revoke 03 ",
            "These invites are still open, and give a key of the host nas to a program that has read the code:\n\n  \
               The invite 04\n  The invite 05\n\nThese commands end them, in the same order:\n\n  \
               c3po-coordinator invites revoke 04 --data-dir /data --listen 127.0.0.1:8420\n  \
               c3po-coordinator invites revoke 05 --data-dir /data --listen 127.0.0.1:8420\n\n",
            " logins list ",
        ] {
            assert!(said.contains(part), "{part}: {said}");
        }
        Ok(())
    }

    #[test]
    fn with_a_new_secret_the_credentials_are_named_that_the_old_one_may_have_given() -> Result<()> {
        let [_, rotate, _] = commands();
        let show = |more: &Value| {
            let mut answer = json!({"key": "c3po_01_x", "id": "01", "name": "nas", "host": "nas", "same_host": [],
                "made": [], "is_whole": true});
            for (name, value) in more.as_object().into_iter().flatten() {
                answer[name] = value.clone();
            }
            rotate.show(&answer, &typed("c3po-coordinator"))
        };
        let plain = show(&json!({}))?;
        assert!(
            plain.starts_with("c3po_01_x\n") && !plain.contains("Note:"),
            "{plain}"
        );
        let made = json!({"kind": "key", "id": "04", "name": "x", "scope": "admin", "made_by": "05",
            "is_uncertain": true, "lost_maker": "05"});
        let said = show(
            &json!({"same_host": [{"id": "02", "name": "guest"}], "open_invite": "03", "host_invites": ["06"],
                "made": [made]}),
        )?;
        for part in [
            plain.as_str(),
            "Note: if another program had the old secret, this is not enough.",
            " keys revoke 02 ",
            " invites revoke 03 ",
            " invites revoke 06 ",
            "  The key 04 of x, scope admin, made by 05, which is not stored any more\n",
            " keys revoke 04 ",
        ] {
            assert!(said.contains(part), "{part}: {said}");
        }
        let said = show(&json!({"is_whole": false}))?;
        assert!(
            said.contains("could not be read") && said.contains(" keys revoke 01 "),
            "{said}"
        );
        Ok(())
    }
}
