//! Pushes while a server, or the way to it, is broken; with an older server; and by several coordinators.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Result;
use harness::eventually::eventually;
use harness::http;
use harness::link::Link;
use harness::ntfy::{Ntfy, QUESTIONS};
use harness::redis::Redis;
use harness::skip::skipped;
use inside::served::Served;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio_util::task::TaskTracker;

use super::{QUICK, REPEATED, Scene};

#[tokio::test]
async fn a_question_is_pushed_once_the_server_is_back() -> Result<()> {
    let Some(mut scene) =
        Scene::start("a_question_is_pushed_once_the_server_is_back", None, QUICK).await?
    else {
        return Ok(());
    };
    scene.ntfy.kill();
    let question = scene.ask("Which database?").await?;
    let address: SocketAddr = scene.gate.address()?;
    eventually("the health reports it", REPEATED, async || {
        let health = http::get(address, "/api/health").await.ok()?;
        health.body.contains("pushes_fail").then_some(())
    })
    .await?;
    assert_eq!(scene.shown(&question).await?["stage"], "stored");
    scene.ntfy.begin().await?;
    eventually("the push", REPEATED, async || {
        (scene.ntfy.shown().await.ok()?.len() == 1).then_some(())
    })
    .await?;
    scene.step(&question, "on_host").await?;
    eventually("the health is good again", REPEATED, async || {
        let health = http::get(address, "/api/health").await.ok()?;
        (!health.body.contains("pushes_fail")).then_some(())
    })
    .await
}

#[tokio::test]
async fn the_push_of_a_question_that_ends_in_an_outage_is_taken_back() -> Result<()> {
    let test = "the_push_of_a_question_that_ends_in_an_outage_is_taken_back";
    let Some(mut scene) = Scene::start(test, None, QUICK).await? else {
        return Ok(());
    };
    let question = scene.ask("Which database?").await?;
    scene.step(&question, "on_host").await?;
    scene.ntfy.kill();
    let conclusion = json!({"message_id": question, "stage": "withdrawn", "via": "tool_call"});
    scene.asker.call("conclude", conclusion).await?;
    let failed = "c3po_duties_total{kind=\"push\",outcome=\"failed\"}";
    let address: SocketAddr = scene.gate.address()?;
    eventually("the duty fails", REPEATED, async || {
        let metrics = http::get(address, "/metrics").await.ok()?;
        metrics.body.contains(failed).then_some(())
    })
    .await?;
    scene.ntfy.begin().await?;
    eventually("no push is left", REPEATED, async || {
        scene.ntfy.shown().await.ok()?.is_empty().then_some(())
    })
    .await
}

/// Forwards connections to a server, and loses the response to the first push.
async fn lose_a_response(listener: TcpListener, server: SocketAddr, lost: Arc<AtomicBool>) {
    let tasks = TaskTracker::new();
    while let Ok((mut client, _)) = listener.accept().await {
        let lost = Arc::clone(&lost);
        tasks.spawn(async move {
            let mut server = TcpStream::connect(server).await?;
            let mut head = vec![0; 64 << 10];
            let read = client.read(&mut head).await?;
            server.write_all(&head[..read]).await?;
            let is_push = head.starts_with(b"POST / ");
            if is_push && !lost.swap(true, Ordering::SeqCst) {
                // The server has it, and its response goes nowhere.
                return server.read(&mut head).await.map(drop);
            }
            copy_bidirectional(&mut client, &mut server).await.map(drop)
        });
    }
}

#[tokio::test]
async fn a_push_whose_response_was_lost_is_not_sent_again() -> Result<()> {
    let ntfy = match Ntfy::start().await {
        Ok(ntfy) => ntfy,
        Err(why) => {
            return skipped(
                "a_push_whose_response_was_lost_is_not_sent_again",
                &why.to_string(),
            );
        }
    };
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let (url, lost) = (
        format!("http://{}", listener.local_addr()?),
        Arc::new(AtomicBool::new(false)),
    );
    let tasks = TaskTracker::new();
    tasks.spawn(lose_a_response(listener, ntfy.address(), Arc::clone(&lost)));
    let mut scene = Scene::with(ntfy, None, &url, QUICK).await?;
    let question = scene.ask("Which database?").await?;
    eventually("on_host", REPEATED, async || {
        let shown = scene.shown(&question).await.ok()?;
        (shown["stage"] == "on_host").then_some(())
    })
    .await?;
    assert!(lost.load(Ordering::SeqCst));
    assert_eq!(scene.ntfy.messages(QUESTIONS).await?.len(), 1);
    Ok(())
}

/// Forwards connections to a server, and holds the response to a push until `go`.
async fn hold_a_response(listener: TcpListener, server: SocketAddr, go: Arc<Notify>) {
    let tasks = TaskTracker::new();
    while let Ok((mut client, _)) = listener.accept().await {
        let go = Arc::clone(&go);
        tasks.spawn(async move {
            let mut server = TcpStream::connect(server).await?;
            let mut head = vec![0; 64 << 10];
            let read = client.read(&mut head).await?;
            server.write_all(&head[..read]).await?;
            if head.starts_with(b"POST / ") {
                server.readable().await?;
                go.notified().await;
            }
            copy_bidirectional(&mut client, &mut server).await.map(drop)
        });
    }
}

#[tokio::test]
async fn a_push_that_is_accepted_after_the_end_of_its_question_is_taken_back() -> Result<()> {
    let test = "a_push_that_is_accepted_after_the_end_of_its_question_is_taken_back";
    let ntfy = match Ntfy::start().await {
        Ok(ntfy) => ntfy,
        Err(why) => return skipped(test, &why.to_string()),
    };
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let (url, go) = (
        format!("http://{}", listener.local_addr()?),
        Arc::new(Notify::new()),
    );
    let tasks = TaskTracker::new();
    tasks.spawn(hold_a_response(listener, ntfy.address(), Arc::clone(&go)));
    let mut scene = Scene::with(ntfy, None, &url, QUICK).await?;
    let question = scene.ask("Which database?").await?;
    scene.pushed().await?;
    let conclusion = json!({"message_id": question, "stage": "withdrawn", "via": "tool_call"});
    scene.asker.call("conclude", conclusion).await?;
    go.notify_one();
    scene.nothing_shown().await?;
    let history = scene.shown(&question).await?["history"].to_string();
    assert!(
        !history.contains("on_host"),
        "the receipt of a question that is over: {history}"
    );
    Ok(())
}

#[tokio::test]
async fn an_older_server_gets_no_second_push() -> Result<()> {
    let ntfy = match Ntfy::start_older().await {
        Ok(ntfy) => ntfy,
        Err(why) => return skipped("an_older_server_gets_no_second_push", &why.to_string()),
    };
    let url = ntfy.url();
    let mut scene = Scene::with(ntfy, None, &url, &format!("{QUICK}allow_public = true\n")).await?;
    let question = scene.ask("Which database?").await?;
    scene.step(&question, "on_host").await?;
    let conclusion = json!({"message_id": question, "stage": "withdrawn", "via": "tool_call"});
    scene.asker.call("conclude", conclusion).await?;
    let address: SocketAddr = scene.gate.address()?;
    eventually("the duty is done", super::SOON, async || {
        let metrics = http::get(address, "/metrics").await.ok()?;
        let done = metrics
            .body
            .lines()
            .find(|line| line.contains("kind=\"push\",outcome=\"done\""))?;
        (done.rsplit(' ').next()?.parse::<u32>().ok()? >= 2).then_some(())
    })
    .await?;
    assert_eq!(scene.ntfy.messages(QUESTIONS).await?.len(), 1);
    Ok(())
}

/// Starts another coordinator on that store, and an agent on it.
async fn second(scene: &Scene, store: &str) -> Result<(Served, Link)> {
    let (url, mut written) = (scene.ntfy.url(), Ok(()));
    let address = store.parse()?;
    let second = Served::start_with(|config| {
        config.store = address;
        written = super::settings(&config.data_dir, &url, QUICK);
    });
    let second = second.await?;
    written?;
    let other = second.join("meshtastic").await?;
    Ok((second, other))
}

#[tokio::test]
async fn two_coordinators_push_each_question_once() -> Result<()> {
    let redis = Redis::start().await?;
    let store = redis.url();
    let Some(mut scene) = Scene::start(
        "two_coordinators_push_each_question_once",
        Some(redis),
        QUICK,
    )
    .await?
    else {
        return Ok(());
    };
    let (_second, mut other) = second(&scene, &store).await?;
    let mut questions = Vec::new();
    for number in 0..4 {
        questions.push(scene.ask(&format!("Question {number}?")).await?);
        let asked = json!({"target": "human", "message": format!("Other {number}?")});
        let sent = other.call("send_message", asked).await?;
        questions.push(sent["id"].as_str().unwrap_or_default().to_owned());
    }
    for question in &questions {
        scene.step(question, "on_host").await?;
    }
    assert_eq!(scene.ntfy.messages(QUESTIONS).await?.len(), questions.len());
    Ok(())
}

#[tokio::test]
async fn the_number_of_questions_is_taken_back_by_another_coordinator() -> Result<()> {
    let test = "the_number_of_questions_is_taken_back_by_another_coordinator";
    let redis = Redis::start().await?;
    let store = redis.url();
    let Some(mut scene) = Scene::start(test, Some(redis), QUICK).await? else {
        return Ok(());
    };
    let (second, mut other) = second(&scene, &store).await?;
    let asked = json!({"target": "human", "message": "Which database?"});
    let sent = other.call("send_message", asked).await?;
    let first = sent["id"].as_str().unwrap_or_default().to_owned();
    scene.step(&first, "on_host").await?;
    let conclusion = json!({"message_id": first, "stage": "withdrawn", "via": "tool_call"});
    other.call("conclude", conclusion).await?;
    scene.nothing_shown().await?;
    let mut questions = Vec::new();
    for number in 0..12 {
        questions.push(scene.ask(&format!("Question {number}?")).await?);
    }
    let is_number = |push: &Value| push["message"] == "12 questions wait";
    eventually("the number", super::SOON, async || {
        let shown = scene.ntfy.shown().await.ok()?;
        shown.iter().any(is_number).then_some(())
    })
    .await?;
    let bearer = format!("Bearer {}", scene.login);
    for question in questions {
        let path = format!("/api/v1/questions/{question}/answer");
        let body = json!({"parts": [{"text": "yes"}]}).to_string();
        let headers = [("Authorization", bearer.as_str())];
        let answer = http::post(second.address.parse()?, &path, &headers, &body).await?;
        assert_eq!(answer.status, 201, "{}", answer.body);
    }
    scene.nothing_shown().await
}
