//! Every operation on every endpoint with every kind of key: only the right ones succeed, and no refusal reveals which agents
//! exist.

use std::time::Duration;

use anyhow::{Context, Result};
use c3po_shared::catalogue::Tool;
use harness::eventually::eventually;
use harness::link::{Link, Who};
use inside::gate::Gate;
use serde_json::{Value, json};

use super::{arguments, ask, call, code};

/// The time limit for the end of a key that expires soon.
const SOON: Duration = Duration::from_secs(10);

/// The kind of credential that is presented.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    None,
    Wrong,
    Expired,
    Revoked,
    Others,
    Read,
    Operator,
    Right,
    Admin,
}

impl Kind {
    const ALL: [Self; 9] = [
        Self::None,
        Self::Wrong,
        Self::Expired,
        Self::Revoked,
        Self::Others,
        Self::Read,
        Self::Operator,
        Self::Right,
        Self::Admin,
    ];

    /// Returns whether it is accepted at all.
    fn is_valid(self) -> bool {
        !matches!(
            self,
            Self::None | Self::Wrong | Self::Expired | Self::Revoked
        )
    }

    /// Returns whether it may act as the agent `mine`.
    fn speaks(self) -> bool {
        matches!(self, Self::Right | Self::Admin)
    }

    /// Returns a key of that kind; the right one is for `mine`.
    pub(super) async fn key(self, gate: &Gate) -> Result<Option<String>> {
        Ok(match self {
            Self::None => None,
            Self::Wrong => {
                let real = gate.key("agent", "mine", &[]).await?;
                let (head, _) = real.rsplit_once('_').context("no key")?;
                Some(format!("{head}_{}", "A".repeat(43)))
            }
            Self::Expired => {
                let key = gate.key("admin", "*", &["--expires", "1s"]).await?;
                eventually("it has ended", SOON, async || {
                    (ask(gate, "GET", "/api/agents", Some(&key), None, "")
                        .await
                        .ok()?
                        .status
                        == 401)
                        .then_some(())
                })
                .await?;
                Some(key)
            }
            Self::Revoked => {
                let key = gate.key("admin", "*", &[]).await?;
                gate.revoke(&key).await?;
                Some(key)
            }
            Self::Others => Some(gate.key("agent", "others,others-*", &[]).await?),
            Self::Read => Some(gate.key("read", "*", &[]).await?),
            Self::Operator => Some(gate.key("operator", "*", &[]).await?),
            // Both belong to the host of `mine`.
            Self::Right => Some(
                gate.key("agent", "mine,mine-*", &["--host", "here"])
                    .await?,
            ),
            Self::Admin => Some(gate.key("admin", "*", &["--host", "here"]).await?),
        })
    }
}

#[tokio::test]
async fn only_the_right_key_speaks_as_an_agent_over_a_link() -> Result<()> {
    let gate = Gate::start().await?;
    for kind in Kind::ALL {
        let key = kind.key(&gate).await?;
        let opened = Link::open_with(&gate.served.address, key.as_deref()).await;
        let status = match &opened {
            Ok(_) => 101,
            Err(error) => {
                let text = format!("{error:#}");
                [401, 403]
                    .into_iter()
                    .find(|status| text.contains(&status.to_string()))
                    .with_context(|| text.clone())?
            }
        };
        let expected = match kind {
            kind if !kind.is_valid() => 401,
            Kind::Read | Kind::Operator => 403,
            _ => 101,
        };
        assert_eq!(status, expected, "{kind:?}");
        let Ok(mut link) = opened else { continue };
        for who in [Who::new("mine"), Who::person("mine")] {
            let refused = link
                .hello(&who)
                .await?
                .err()
                .map(|error| error["data"]["code"].clone());
            if !kind.speaks() {
                assert_eq!(refused, Some(json!("FORBIDDEN")), "{kind:?} {who:?}");
            }
            link = Link::open_with(&gate.served.address, key.as_deref()).await?;
        }
        if kind.speaks() {
            let mut link = Link::open_with(&gate.served.address, key.as_deref()).await?;
            assert_eq!(
                link.hello(&Who::new("mine")).await?.expect("the right key")["agent_id"],
                "mine",
                "{kind:?}"
            );
            if kind == Kind::Right {
                let code = link
                    .refusal("register_agent", json!({"name": "others"}))
                    .await?;
                assert_eq!(code, "FORBIDDEN", "another name is not taken either");
            }
            link.notify("goodbye", json!({})).await?;
        }
    }
    Ok(())
}

#[tokio::test]
async fn only_the_right_key_calls_tools_over_mcp() -> Result<()> {
    let gate = Gate::start().await?;
    for kind in Kind::ALL {
        let key = kind.key(&gate).await?;
        for tool in Tool::ALL.iter().filter(|tool| tool.is_listed()) {
            let arguments = arguments(*tool, "hello", ["mine::others::00000000"; 2]);
            let tool = tool.name();
            let (status, refusal) = call(&gate, key.as_deref(), "mine", tool, &arguments).await?;
            let refusal = refusal.as_deref();
            if !kind.is_valid() {
                assert_eq!(
                    (status, refusal),
                    (401, Some("UNAUTHORIZED")),
                    "{kind:?} {tool}"
                );
            } else if kind.speaks() {
                assert!(
                    status == 200 && !matches!(refusal, Some("FORBIDDEN" | "UNAUTHORIZED")),
                    "{kind:?} {tool} {refusal:?}"
                );
            } else {
                assert_eq!(
                    (status, refusal),
                    (200, Some("FORBIDDEN")),
                    "{kind:?} {tool}"
                );
            }
        }
    }
    Ok(())
}

/// Returns a request for every path: its method, path and body.
async fn requests(gate: &Gate) -> Result<Vec<(&'static str, String, &'static str)>> {
    let spare = gate.key("agent", "spare", &[]).await?;
    let spare = inside::gate::id(&spare)?;
    let invited = ask(
        gate,
        "POST",
        "/api/invites",
        Kind::Admin.key(gate).await?.as_deref(),
        None,
        "{}",
    )
    .await?;
    let invited: Value = serde_json::from_str(&invited.body)?;
    Ok(vec![
        ("GET", "/api/pending".to_owned(), ""),
        ("POST", "/api/unregister".to_owned(), ""),
        ("GET", "/api/agents".to_owned(), ""),
        ("GET", "/metrics".to_owned(), ""),
        ("GET", "/api/keys".to_owned(), ""),
        ("POST", "/api/keys".to_owned(), r#"{"name":"made"}"#),
        ("POST", "/api/invites".to_owned(), "{}"),
        ("GET", "/api/invites".to_owned(), ""),
        (
            "DELETE",
            format!("/api/invites/{}", invited["id"].as_str().context("its id")?),
            "",
        ),
        ("POST", format!("/api/keys/{spare}/rotate"), ""),
        ("DELETE", format!("/api/keys/{spare}"), ""),
        ("GET", "/api/guard".to_owned(), ""),
        (
            "POST",
            "/api/guard/allow".to_owned(),
            r#"{"agents":["mine","others"]}"#,
        ),
    ])
}

#[tokio::test]
async fn only_the_right_key_passes_on_every_path() -> Result<()> {
    let gate = Gate::start().await?;
    let requests = requests(&gate).await?;
    for kind in Kind::ALL {
        let key = kind.key(&gate).await?;
        for (method, path, body) in &requests {
            let passes = match path.as_str() {
                "/api/pending" | "/api/unregister" => kind.speaks(),
                "/api/agents" | "/metrics" => kind.is_valid(),
                _ => kind == Kind::Admin,
            };
            let answer = ask(&gate, method, path, key.as_deref(), Some("mine"), body).await?;
            let expected = match kind {
                _ if passes => 200,
                kind if !kind.is_valid() => 401,
                _ => 403,
            };
            assert_eq!(
                answer.status, expected,
                "{kind:?} {method} {path}: {}",
                answer.body
            );
            if !passes {
                let word = if expected == 401 {
                    "UNAUTHORIZED"
                } else {
                    "FORBIDDEN"
                };
                assert_eq!(code(&answer).as_deref(), Some(word), "{kind:?} {path}");
            }
        }
    }
    Ok(())
}

#[tokio::test]
async fn a_refusal_does_not_reveal_whether_an_agent_exists() -> Result<()> {
    let gate = Gate::start().await?;
    let theirs = gate.key("agent", "others", &[]).await?;
    let mut link = Link::open_with(&gate.served.address, Some(&theirs)).await?;
    link.hello(&Who::new("others"))
        .await?
        .expect("it covers that");
    let mine = gate.key("agent", "mine", &[]).await?;
    let mut said = Vec::new();
    for name in ["others", "nobody"] {
        let pending = ask(&gate, "GET", "/api/pending", Some(&mine), Some(name), "").await?;
        let unregister = ask(
            &gate,
            "POST",
            "/api/unregister",
            Some(&mine),
            Some(name),
            "",
        )
        .await?;
        let mut link = Link::open_with(&gate.served.address, Some(&mine)).await?;
        let hello = link
            .hello(&Who::new(name))
            .await?
            .expect_err("not covered")
            .to_string();
        let mut link = Link::open_with(&gate.served.address, Some(&mine)).await?;
        let person = link
            .hello(&Who::person(name))
            .await?
            .expect_err("not covered")
            .to_string();
        said.push(
            [pending.body, unregister.body, hello, person].map(|text| text.replace(name, "NAME")),
        );
    }
    assert_eq!(said[0], said[1]);
    Ok(())
}
