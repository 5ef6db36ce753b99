//! The commands for logins of people: making a link, with its QR code, and listing and revoking logins.

use axum::http::Method;
use c3po_shared::login::LOGINS_PATH;
use c3po_shared::vocabulary::LoginScope;
use clap::{Args, Subcommand};
use qrcode::QrCode;
use qrcode::render::unicode::Dense1x2;
use serde_json::{Value, json};

use super::left;
use super::requests::{delete, get, in_path, post, required};
use super::tables::{every_login, listed, plain};
use crate::server::PrintedCommand;

/// A new login.
#[derive(Debug, Clone, Args)]
pub struct LoginOptions {
    /// The name of the person
    pub name: String,
    /// The largest scope of the login: answer, person, operator or admin
    #[arg(long, default_value_t = LoginScope::Person)]
    pub scope: LoginScope,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// The actions on logins.
#[derive(Debug, Clone, Subcommand)]
pub enum LoginsCommand {
    /// List all logins, including ended ones
    List {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Revoke a login; its links and requests end within a second. The credentials that it made stay valid, and are listed
    Revoke {
        /// Its id, as in the list
        id: String,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
}

impl LoginOptions {
    pub(super) fn http(&self) -> (Method, String, String) {
        post(
            LOGINS_PATH,
            &json!({"name": self.name, "scope": self.scope}),
        )
    }
}

impl LoginsCommand {
    pub(super) fn http(&self) -> (Method, String, String) {
        match self {
            Self::List { .. } => get(LOGINS_PATH),
            Self::Revoke { id, .. } => delete(format!("{LOGINS_PATH}/{}", in_path(id))),
        }
    }

    pub(super) fn show(&self, answer: &Value, typed: &PrintedCommand) -> anyhow::Result<String> {
        Ok(match self {
            Self::List { .. } => every_login(listed(answer, "logins"), typed),
            Self::Revoke { .. } => left::by_login(answer, typed)?,
        })
    }
}

/// Nothing identifies a server without TLS.
const ADVICE: &str = "Note: without TLS, a program that once had this port can read the login. If other users or agents of \
                      this machine serve pages, start the coordinator with `--tls auto`.\n\n";

/// Returns the text about a new link: the link and its QR code, the same for a terminal, and until when both work.
pub(super) fn offered(answer: &Value) -> anyhow::Result<String> {
    let said = |name: &str| required(answer, name);
    let warning = plain(answer, "warning").map(|why| format!("Note: {why}.\n\n"));
    let fingerprint = plain(answer, "fingerprint").map(|fingerprint| {
        format!("The browser warns about the coordinator's own certificate: {fingerprint}\n\n")
    });
    let link = said("link")?;
    let advice = link.starts_with("http://").then_some(ADVICE);
    Ok(format!(
        "{}\n{} logs in with this link, once, before {}:\n\n  {link}\n\n{}{}{}On a terminal: `c3po login {}`, with the \
         code {}\n",
        qr_code(&link)?,
        said("name")?,
        said("expires_at")?,
        advice.unwrap_or_default(),
        warning.unwrap_or_default(),
        fingerprint.unwrap_or_default(),
        said("url")?,
        said("code")?,
    ))
}

/// Returns the QR code of a text as half blocks. Its light modules are drawn, for terminals with a dark background.
fn qr_code(text: &str) -> anyhow::Result<String> {
    let code = QrCode::new(text)?;
    let mut drawing = code.render::<Dense1x2>();
    drawing
        .dark_color(Dense1x2::Light)
        .light_color(Dense1x2::Dark);
    Ok(drawing.build())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_is_a_square_of_blocks_with_a_light_edge() -> anyhow::Result<()> {
        let drawn = qr_code("https://nas:8420/login#abcdefghijklmnopqrstuvwxyz")?;
        let rows: Vec<Vec<char>> = drawn.lines().map(|row| row.chars().collect()).collect();
        assert!(rows.iter().all(|row| row.len() == rows[0].len()));
        assert!(rows[0].len() <= 80 && rows[0].len().abs_diff(rows.len() * 2) <= 1);
        assert!(rows[0].iter().all(|block| *block == '█'), "{drawn}");
        let finder: String = rows[2].iter().take(11).collect();
        assert_eq!(finder, "████ ▄▄▄▄▄ ", "{drawn}");
        Ok(())
    }
}
