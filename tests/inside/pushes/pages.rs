//! Pushes to a person who uses a page in a real Chromium.

use anyhow::{Result, ensure};
use c3po_shared::limits::PAGE_USED_WITHIN;
use harness::browser::{self, Browser};
use harness::eventually::eventually;
use harness::http;
use harness::ntfy::QUESTIONS;
use harness::redis::Redis;
use harness::skip::skipped;
use serde_json::json;
use tempfile::TempDir;
use tokio::time::Instant;

use super::{QUICK, SOON, Scene};

/// Whether the page reported the use.
const REPORTED: &str = "performance.getEntriesByType('resource')
    .some((one) => one.name.endsWith('/me/input') && one.responseStatus === 200)";

/// Clicks on the list of questions, with the login of the scene, and waits until the page has reported that. That takes long on a
/// busy machine, so the asker begins a session afterwards: that of before may have ended.
async fn use_page(scene: &mut Scene, browser: &Browser) -> Result<()> {
    let url = format!("http://{}/q", scene.gate.address()?);
    browser.open(&url).await?;
    let log_in = format!("localStorage.setItem('c3po-login', {})", json!(scene.login));
    browser.run(&log_in).await?;
    browser.open(&url).await?;
    browser.wait_for("document.querySelector('h1')").await?;
    browser.click("h1").await?;
    browser.wait_for(REPORTED).await?;
    scene.asker = scene.gate.served.join("homeassistant").await?;
    Ok(())
}

async fn a_push_waits(test: &str, redis: Option<Redis>) -> Result<()> {
    if !browser::is_installed() {
        return skipped(test, "chromium-driver is not installed");
    }
    let work = TempDir::new()?;
    let browser = Browser::start(work.path()).await?;
    let Some(mut scene) = Scene::start(test, redis, QUICK).await? else {
        return Ok(());
    };
    let used = Instant::now();
    use_page(&mut scene, &browser).await?;
    if scene.redis.is_some() {
        // Every coordinator of a Redis knows it.
        let url = scene.ntfy.url();
        let (ntfy, redis) = scene.stop().await?;
        scene = Scene::with(ntfy, redis, &url, QUICK).await?;
    }
    let answered = scene.ask("Tea or coffee?").await?;
    scene.ask("Which port?").await?;
    // News is on no page.
    let news = json!({"target": "human", "message": "The cellar is dry.", "priority": "urgent",
        "requires_response": false});
    scene.ask_with(news).await?;
    let push = scene.pushed().await?;
    ensure!(push["message"] == "The cellar is dry.", "{push}");

    let path = format!("/api/v1/questions/{answered}/answer");
    let bearer = format!("Bearer {}", scene.login);
    let headers = [("Authorization", bearer.as_str())];
    let answer = r#"{"parts": [{"text": "Tea"}]}"#;
    let answer = http::post(scene.gate.address()?, &path, &headers, answer).await?;
    ensure!(answer.status == 201, "{}", answer.body);
    eventually(
        "a push after the last use",
        PAGE_USED_WITHIN + SOON,
        async || {
            let shown = scene.ntfy.shown().await.ok()?;
            let texts = shown.iter().filter_map(|push| push["message"].as_str());
            texts
                .into_iter()
                .find(|text| text.starts_with("Which port?"))
                .map(drop)
        },
    )
    .await?;
    ensure!(
        used.elapsed() >= PAGE_USED_WITHIN,
        "after {:?}",
        used.elapsed()
    );
    let all = json!(scene.ntfy.messages(QUESTIONS).await?).to_string();
    ensure!(!all.contains("Tea or coffee?"), "{all}");
    Ok(())
}

#[tokio::test]
async fn a_question_is_pushed_a_minute_after_its_person_last_used_a_page_with_sqlite() -> Result<()>
{
    a_push_waits(
        "a_question_is_pushed_a_minute_after_its_person_last_used_a_page_with_sqlite",
        None,
    )
    .await
}

#[tokio::test]
async fn a_question_is_pushed_a_minute_after_its_person_last_used_a_page_with_redis() -> Result<()>
{
    let redis = Redis::start().await?;
    a_push_waits(
        "a_question_is_pushed_a_minute_after_its_person_last_used_a_page_with_redis",
        Some(redis),
    )
    .await
}
