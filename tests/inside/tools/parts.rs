//! Messages that are longer than a result: every tool can read them in parts to the end, and only then they are `in_session`.

use anyhow::{Context, Result, bail, ensure};
use c3po_shared::limits::{PAGE_BYTES, TEXT_MAX};
use harness::eventually::eventually;
use harness::http;
use harness::link::{Link, Who};
use harness::mcp::McpClient;
use inside::served::Served;
use serde_json::{Value, json};

use super::waiting::SOON;
use super::{ask, each, id, two_agents};

/// A tool and its arguments.
pub(super) type Call = (&'static str, Value);

/// The parts of one message that were read so far.
#[derive(Debug, Default)]
pub(super) struct Parts {
    pub(super) text: String,
    pub(super) context: String,
    pub(super) count: usize,
}

impl Parts {
    /// Adds the part of the message in a result. Returns the call that its mark names, or `None` at the end.
    pub(super) fn add(&mut self, result: &Value) -> Result<Option<Call>> {
        let bytes = result.to_string().len();
        ensure!(bytes <= PAGE_BYTES, "a result of {bytes} bytes");
        let message = result["messages"].get(0).unwrap_or(result);
        let text = message["response"]
            .as_str()
            .or(message["message"].as_str())
            .unwrap_or_default();
        let context = message["context"].as_str().unwrap_or_default();
        self.count += 1;
        let Some(cursor) = message["rest"].as_str() else {
            self.text += text;
            self.context += context;
            return Ok(None);
        };
        let cut = |text: &str| -> Result<(String, String)> {
            let (kept, mark) = text
                .rsplit_once("\n[cut: ")
                .context("a part without a mark")?;
            Ok((kept.to_owned(), mark.to_owned()))
        };
        let mark = if context.is_empty() {
            let (kept, mark) = cut(text)?;
            self.text += &kept;
            mark
        } else {
            let (kept, mark) = cut(context)?;
            self.text += text;
            self.context += &kept;
            mark
        };
        let read = self.text.chars().count() + self.context.chars().count();
        ensure!(
            mark.starts_with(&format!("{read} of ")),
            "{read} characters were read: {mark}"
        );
        ensure!(
            cursor.ends_with(&format!("+{read}")),
            "{cursor} is not behind {read} characters"
        );
        ensure!(
            mark.ends_with(&format!("cursor \"{cursor}\"]")),
            "{mark} does not name {cursor}"
        );
        ensure!(
            result.get("messages").is_none() || result["next_cursor"] == cursor,
            "the page goes on elsewhere"
        );
        Ok(Some(if mark.contains("read on with get_thread, ") {
            (
                "get_thread",
                json!({"message_id": message["id"], "cursor": cursor}),
            )
        } else {
            ("get_messages", json!({"cursor": cursor}))
        }))
    }
}

/// Reads a message to its end over a link, starting with that result.
async fn read_on(link: &mut Link, first: &Value) -> Result<Parts> {
    let mut parts = Parts::default();
    let mut rest = parts.add(first)?;
    while let Some((tool, arguments)) = rest {
        rest = parts.add(&link.call(tool, arguments).await?)?;
    }
    Ok(parts)
}

/// Returns texts of the maximum length, each with different characters.
fn longest() -> [String; 5] {
    let of =
        |characters: std::ops::RangeInclusive<char>| characters.cycle().take(TEXT_MAX).collect();
    [
        of(' '..='~'),
        of('\u{4e00}'..='\u{9fff}'),
        of('\u{1f300}'..='\u{1f5ff}'),
        "\"\\".repeat(TEXT_MAX / 2),
        format!("x{}", "\n".repeat(TEXT_MAX - 1)),
    ]
}

/// Returns the `in_session` step of a message, if it was recorded.
async fn in_session(sender: &mut Link, id: &str) -> Result<Option<Value>> {
    let tracked = sender
        .call("message_status", json!({"message_id": id}))
        .await?;
    let mut steps = tracked["history"].as_array().into_iter().flatten();
    Ok(steps.find(|step| step["stage"] == "in_session").cloned())
}

fn first_call(tool: &'static str, id: &str) -> Call {
    let arguments = match tool {
        "wait_for_message" => json!({"timeout": 20}),
        "get_thread" => json!({"message_id": id}),
        _ => json!({}),
    };
    (tool, arguments)
}

/// Reads a message to its end through a proxy. Returns its text.
async fn read_by(reader: &McpClient, sender: &mut Link, first: Call, id: &str) -> Result<String> {
    let (mut parts, mut call) = (Parts::default(), first);
    loop {
        let (tool, arguments) = call;
        let result = reader.call(tool, arguments).await?;
        ensure!(
            !result.is_error && result.text.len() <= PAGE_BYTES,
            "{tool}: {} bytes",
            result.text.len()
        );
        let rest = parts.add(&result.json()?)?;
        // The session reports on that result before its next call.
        reader.reply("ping", json!({})).await?;
        let step = in_session(sender, id).await?;
        let Some(next) = rest else {
            ensure!(
                step.is_some_and(|step| step["via"] == tool),
                "{id} is not in the session by {tool}"
            );
            return Ok(parts.text);
        };
        ensure!(
            step.is_none(),
            "{id} is in the session after part {}",
            parts.count
        );
        call = next;
    }
}

#[tokio::test]
async fn the_longest_texts_are_read_to_their_end_by_every_tool_and_in_session_only_then()
-> Result<()> {
    let served = Served::start().await?;
    let work = tempfile::tempdir()?;
    let mut sender = served.join("homeassistant").await?;
    let reader = harness::proxy::session(
        work.path(),
        "meshtastic",
        &format!("http://{}", served.address),
    )
    .await?;
    reader.reply("ping", json!({})).await?;
    for text in longest() {
        for tool in ["get_messages", "wait_for_message", "get_thread"] {
            let id = ask(&mut sender, &text).await?;
            let read = read_by(&reader, &mut sender, first_call(tool, &id), &id).await?;
            assert!(
                read == text,
                "{tool} gave {} of {} bytes: {:.20}",
                read.len(),
                text.len(),
                text
            );
            reader
                .reply("ack_messages", json!({"message_ids": [id]}))
                .await?;
        }
    }
    Ok(())
}

/// Sends a request as `meshtastic` to `/mcp`. Returns its result.
async fn over_http(served: &Served, method: &str, params: Value) -> Result<Value> {
    let headers = [
        ("Accept", "application/json, text/event-stream"),
        ("X-Agent-ID", "meshtastic"),
    ];
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).to_string();
    let answer = http::post(served.address.parse()?, "/mcp", &headers, &body).await?;
    Ok(serde_json::from_str::<Value>(&answer.body)?["result"].take())
}

#[tokio::test]
async fn a_client_without_a_proxy_reads_to_the_end_as_well() -> Result<()> {
    let served = Served::start().await?;
    let mut sender = served.join("homeassistant").await?;
    let listed = over_http(&served, "tools/list", json!({})).await?;
    let mut tools = listed["tools"].as_array().into_iter().flatten();
    let thread = tools
        .find(|tool| tool["name"] == "get_thread")
        .context("get_thread is listed")?;
    assert_eq!(
        thread["_meta"],
        json!({"anthropic/maxResultSizeChars": 2 * PAGE_BYTES})
    );

    over_http(
        &served,
        "tools/call",
        json!({"name": "ping", "arguments": {}}),
    )
    .await?;
    for (tool, text) in ["get_messages", "wait_for_message", "get_thread"]
        .into_iter()
        .zip(longest())
    {
        let id = ask(&mut sender, &text).await?;
        let (mut parts, mut call) = (Parts::default(), Some(first_call(tool, &id)));
        while let Some((tool, arguments)) = call {
            assert_eq!(in_session(&mut sender, &id).await?, None, "{tool}");
            let result = over_http(
                &served,
                "tools/call",
                json!({"name": tool, "arguments": arguments}),
            )
            .await?;
            let bytes = result["content"][0]["text"]
                .as_str()
                .unwrap_or_default()
                .len();
            ensure!((1..=PAGE_BYTES).contains(&bytes), "{tool}: {bytes} bytes");
            call = parts.add(&result["structuredContent"])?;
        }
        assert!(
            parts.text == text,
            "{tool} gave {} of {} bytes",
            parts.text.len(),
            text.len()
        );
        let recorded = async || in_session(&mut sender, &id).await.ok()?;
        eventually("it is in the session", SOON, recorded).await?;
        over_http(
            &served,
            "tools/call",
            json!({"name": "ack_messages", "arguments": {"message_ids": [id]}}),
        )
        .await?;
    }
    Ok(())
}

#[tokio::test]
async fn a_thousand_characters_of_anything_come_whole_and_each_message_once() -> Result<()> {
    for character in ["x", "語", "🛰"] {
        let (_served, mut homeassistant, mut meshtastic) = two_agents().await?;
        let mut sent = Vec::new();
        for number in 0..200 {
            let text = format!("{number:03}{}", character.repeat(997));
            ask(&mut homeassistant, &text).await?;
            sent.push(text);
        }
        let (mut read, mut arguments) = (Vec::new(), json!({"limit": 1_000}));
        loop {
            let page = meshtastic.call("get_messages", arguments).await?;
            let bytes = page.to_string().len();
            ensure!(bytes <= PAGE_BYTES, "a page of {bytes} bytes");
            assert_eq!(each(&page["messages"], "rest").concat(), "", "none is cut");
            read.extend(each(&page["messages"], "message"));
            if page["next_cursor"].is_null() {
                break;
            }
            arguments = json!({"limit": 1_000, "cursor": page["next_cursor"]});
        }
        assert!(
            read == sent,
            "{} of {} messages of {character}",
            read.len(),
            sent.len()
        );
    }
    Ok(())
}

#[tokio::test]
async fn text_and_context_are_read_one_after_the_other() -> Result<()> {
    let (_served, mut homeassistant, mut meshtastic) = two_agents().await?;
    let [text, context, ..] = longest();
    let message = json!({"target": "meshtastic", "message": text, "context": context});
    homeassistant.call("send_message", message).await?;
    let first = meshtastic.call("get_messages", json!({})).await?;
    let parts = read_on(&mut meshtastic, &first).await?;
    assert!(
        parts.text == text && parts.context == context,
        "{} parts",
        parts.count
    );
    Ok(())
}

#[tokio::test]
async fn later_messages_come_after_the_rest_of_a_long_one() -> Result<()> {
    let (_served, mut homeassistant, mut meshtastic) = two_agents().await?;
    let before = ask(&mut homeassistant, "before").await?;
    let long = ask(&mut homeassistant, &"x".repeat(TEXT_MAX)).await?;
    let after = ask(&mut homeassistant, "after").await?;
    let (mut read, mut arguments) = (Vec::new(), json!({}));
    loop {
        let page = meshtastic.call("get_messages", arguments).await?;
        let whole = page["messages"]
            .as_array()
            .into_iter()
            .flatten()
            .filter(|message| message["rest"].is_null());
        read.extend(whole.map(id));
        if page["next_cursor"].is_null() {
            break;
        }
        arguments = json!({"cursor": page["next_cursor"]});
    }
    assert_eq!(read, [before, long, after]);
    Ok(())
}

#[tokio::test]
async fn a_wait_skips_a_partly_read_message_until_a_new_context_begins_it_anew() -> Result<()> {
    let (_served, mut homeassistant, mut meshtastic) = two_agents().await?;
    let text = "x".repeat(TEXT_MAX);
    let long = ask(&mut homeassistant, &text).await?;
    let first = meshtastic
        .call("wait_for_message", json!({"timeout": 20}))
        .await?;
    assert_eq!(
        (id(&first), first["rest"].is_string()),
        (long.clone(), true)
    );
    let nothing = meshtastic
        .call("wait_for_message", json!({"timeout": 1}))
        .await?;
    assert_eq!(nothing["timeout"], true);
    let short = ask(&mut homeassistant, "short").await?;
    assert_eq!(
        id(&meshtastic
            .call("wait_for_message", json!({"timeout": 20}))
            .await?),
        short
    );
    assert!(read_on(&mut meshtastic, &first).await?.text == text);

    meshtastic.notify("session", json!({"context": 1})).await?;
    let again = meshtastic
        .call("wait_for_message", json!({"timeout": 20}))
        .await?;
    assert_eq!((id(&again), &again["message"]), (long, &first["message"]));
    Ok(())
}

#[tokio::test]
async fn a_wait_does_not_restart_a_message_that_get_messages_began() -> Result<()> {
    let (_served, mut homeassistant, mut meshtastic) = two_agents().await?;
    ask(&mut homeassistant, &"x".repeat(TEXT_MAX)).await?;
    let page = meshtastic.call("get_messages", json!({})).await?;
    assert!(page["messages"][0]["rest"].is_string());
    assert_eq!(
        meshtastic
            .call("wait_for_message", json!({"timeout": 1}))
            .await?["timeout"],
        true
    );
    Ok(())
}

#[tokio::test]
async fn a_long_answer_is_read_in_its_thread_also_when_it_left_the_inbox() -> Result<()> {
    let (_served, mut homeassistant, mut meshtastic) = two_agents().await?;
    let question = ask(&mut homeassistant, "all of it?").await?;
    let [.., text, _] = longest();
    let reply = meshtastic
        .call("reply", json!({"message_id": question, "response": text}))
        .await?;
    for _ in 0..2 {
        let first = homeassistant
            .call(
                "wait_for_message",
                json!({"message_id": question, "timeout": 20}),
            )
            .await?;
        assert_eq!(first["id"], reply["id"]);
        assert!(read_on(&mut homeassistant, &first).await?.text == text);
        homeassistant
            .call("ack_messages", json!({"message_ids": [reply["id"]]}))
            .await?;
    }
    Ok(())
}

#[tokio::test]
async fn a_person_reads_whole_texts() -> Result<()> {
    let served = Served::start().await?;
    let mut homeassistant = served.join("homeassistant").await?;
    let (mut person, _) = Link::join_as(&served.address, &Who::person("human")).await?;
    let [_, _, text, ..] = longest();
    let sent = homeassistant
        .call("send_message", json!({"target": "human", "message": text}))
        .await?;
    let page = person.call("get_messages", json!({})).await?;
    let waited = person
        .call("wait_for_message", json!({"timeout": 20}))
        .await?;
    let thread = person
        .call("get_thread", json!({"message_id": sent["id"]}))
        .await?;
    for message in [&page["messages"][0], &waited, &thread["messages"][0]] {
        assert!(message["message"] == text && message["rest"].is_null());
    }
    Ok(())
}

#[tokio::test]
async fn a_cursor_within_a_message_needs_that_message_and_a_character_of_it() -> Result<()> {
    let (_served, mut homeassistant, mut meshtastic) = two_agents().await?;
    let long = ask(&mut homeassistant, &"x".repeat(TEXT_MAX)).await?;
    let other = ask(&mut homeassistant, "another thread").await?;
    let page = meshtastic.call("get_messages", json!({})).await?;
    let thread = meshtastic
        .call("get_thread", json!({"message_id": long}))
        .await?;
    let places = [&page, &thread].map(|page| {
        page["next_cursor"]
            .as_str()
            .and_then(|cursor| cursor.rsplit_once('+'))
    });
    let [Some((position, _)), Some((mark, _))] = places else {
        bail!("{places:?}")
    };
    for (tool, cursor, code) in [
        (
            "get_messages",
            format!("{position}+{TEXT_MAX}"),
            "INVALID_REQUEST",
        ),
        ("get_messages", format!("{position}+x"), "INVALID_REQUEST"),
        ("get_messages", "0+1".to_owned(), "MESSAGE_NOT_FOUND"),
        ("get_messages", "9000+1".to_owned(), "MESSAGE_NOT_FOUND"),
        (
            "get_thread",
            format!("{mark}+{TEXT_MAX}"),
            "INVALID_REQUEST",
        ),
        ("get_thread", format!("0.{long}+1"), "MESSAGE_NOT_FOUND"),
        ("get_thread", format!("1.{other}+1"), "MESSAGE_NOT_FOUND"),
    ] {
        let mut arguments = json!({"cursor": cursor});
        if tool == "get_thread" {
            arguments["message_id"] = json!(long);
        }
        assert_eq!(
            meshtastic.refusal(tool, arguments).await?,
            code,
            "{tool} {cursor}"
        );
    }
    meshtastic
        .call("ack_messages", json!({"message_ids": [long]}))
        .await?;
    assert_eq!(
        meshtastic
            .refusal("get_messages", json!({"cursor": page["next_cursor"]}))
            .await?,
        "MESSAGE_NOT_FOUND"
    );
    let rest = json!({"message_id": long, "cursor": thread["next_cursor"]});
    assert_eq!(
        meshtastic.call("get_thread", rest).await?["messages"][0]["id"],
        long
    );
    Ok(())
}
