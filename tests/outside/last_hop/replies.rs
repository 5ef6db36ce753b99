//! Replies to a session: the answer to its own question wakes it if it is idle, any other reply is shown with the next
//! prompt.

use anyhow::{Context, Result};
use harness::claude::Interactive;
use harness::coordinator::Coordinator;
use harness::fake_api::{Block, Script};
use harness::proxy::session;
use serde_json::json;
use tempfile::TempDir;

use super::scene::{QUIET, RECIPIENT, SOON, Scene};

const ANSWER: &str = "The ones in the kitchen.";
const THANKS: &str = "Good to know.";

/// Creates a model that writes to the scripted session as its person requests, and then ends its turn.
fn writer() -> Script {
    let sends = |message: &str, requires_response: bool| {
        let message = json!({"target": "homeassistant", "message": message, "requires_response": requires_response});
        move |_: &_| vec![Block::call("send_message", message.clone())]
    };
    Script::new()
        .when("ask them", sends("Which lights are on?", true))
        .when("tell them", sends("It is dark.", false))
}

/// Makes the real session write to the scripted one, and waits until it is idle again. Returns the id of its message.
async fn writes(scene: &Scene, session: &Interactive, line: &str) -> Result<String> {
    scene.type_and_see(session, line).await?;
    let came = scene
        .sender
        .reply("wait_for_message", json!({"timeout": 25}))
        .await?;
    let id = came["id"]
        .as_str()
        .with_context(|| format!("nothing came: {came}"))?
        .to_owned();
    scene.is(RECIPIENT, "ready").await?;
    Ok(id)
}

/// Answers the real session's message. Returns the id of the reply.
async fn answers(scene: &Scene, about: &str, response: &str) -> Result<String> {
    let reply = scene
        .sender
        .reply("reply", json!({"message_id": about, "response": response}))
        .await?;
    Ok(reply["id"]
        .as_str()
        .context("a reply without id")?
        .to_owned())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_answer_to_a_question_of_its_own_wakes_an_idle_session_and_a_reply_to_news_does_not()
-> Result<()> {
    let Some(scene) = Scene::set("replies to an idle session", writer()).await? else {
        return Ok(());
    };
    let way = if scene.claude.has_inbox().await? {
        "inbox_socket"
    } else {
        "async_rewake"
    };
    let session = scene.start().await?;
    scene.offers_tools(&session).await?;
    let question = writes(&scene, &session, "ask them").await?;
    let answer = answers(&scene, &question, ANSWER).await?;
    let woken = scene.shown(ANSWER).await.with_context(|| session.log())?;
    assert_eq!(woken.count_of(ANSWER), 1, "{}", woken.new_text());
    assert!(
        woken
            .new_text()
            .contains(&format!("[ID: {answer}] [reply to {question}]")),
        "{}",
        woken.new_text()
    );
    let history = scene.reaches(&answer, "seen").await?;
    assert_eq!(
        history,
        [
            "stored",
            "on_host deliver",
            &format!("in_session {way}"),
            "seen transcript"
        ]
    );
    scene.is(RECIPIENT, "ready").await?;

    let news = writes(&scene, &session, "tell them").await?;
    let thanks = answers(&scene, &news, THANKS).await?;
    scene.reaches(&thanks, "on_host").await?;
    let before = scene.model.asked().len();
    let turn = scene
        .model
        .wait_for("a turn", QUIET, |_| scene.model.asked().len() > before)
        .await;
    assert!(turn.is_err(), "nothing is started for it");
    let later = scene.type_and_see(&session, "anything new?").await?;
    assert_eq!(
        (later.count_of(THANKS), later.count_of(ANSWER)),
        (1, 1),
        "{}",
        later.all_text()
    );
    Ok(())
}

#[tokio::test]
async fn one_of_two_waits_for_the_same_answer_is_marked_as_repeated() -> Result<()> {
    let work = TempDir::new()?;
    let coordinator = Coordinator::start(work.path()).await?;
    let asker = session(work.path(), "asker", &coordinator.url()).await?;
    let answerer = session(work.path(), "answerer", &coordinator.url()).await?;
    answerer.reply("ping", json!({})).await?;
    for turn in 0..10 {
        let asked = asker
            .reply(
                "send_message",
                json!({"target": "answerer", "message": "which?"}),
            )
            .await?;
        let wait = json!({"message_id": asked["id"], "timeout": 60});
        let first = asker.begin_call("wait_for_message", wait.clone()).await?;
        let second = asker.begin_call("wait_for_message", wait).await?;
        answerer
            .reply(
                "reply",
                json!({"message_id": asked["id"], "response": ANSWER}),
            )
            .await?;
        let (first, second) = (
            asker.call_result(first, SOON).await?.json()?,
            asker.call_result(second, SOON).await?.json()?,
        );
        assert_eq!(
            (&first["response"], &second["response"]),
            (&json!(ANSWER), &json!(ANSWER)),
            "{first} {second}"
        );
        let marked = [&first, &second].map(|result| result["repeated"] == true);
        assert_ne!(
            marked[0], marked[1],
            "turn {turn}: one of them is the repetition: {first} {second}"
        );
    }
    Ok(())
}
