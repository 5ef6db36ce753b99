//! Pages of other sites that lead a person, in the middle of a game, to the button that allows.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use harness::browser::foreign_server;
use serde_json::Value;

use super::Desk;

/// Whether the button that allows can be pressed.
const MAY_ALLOW: &str = "document.querySelector('#allow:enabled')";
/// The place of that button.
const PLACE: &str = "const box = document.querySelector('#allow').getBoundingClientRect();
    return [box.x + box.width / 2, box.y + box.height / 2]";
/// The tempo of the game.
const TEMPO: Duration = Duration::from_millis(500);

/// Returns a number of a list.
fn number(list: &Value, at: usize) -> Result<f64> {
    list[at].as_f64().context("a number")
}

#[tokio::test]
async fn a_series_of_presses_allows_nothing_and_one_after_a_second_does() -> Result<()> {
    let Some(mut desk) = Desk::open().await? else {
        return Ok(());
    };
    let id = desk.request_bash("make").await?;
    desk.show(&id).await?;
    desk.browser
        .wait_for("document.querySelector('#allow')")
        .await?;
    let place = desk.browser.run(PLACE).await?;
    let place = (number(&place, 0)?, number(&place, 1)?);
    desk.browser.click_at(place, 8, TEMPO).await?;
    ensure!(
        desk.stored(&id).await?["reply"].is_null(),
        "a press of the series counted"
    );
    desk.browser.wait_for(MAY_ALLOW).await?;
    // As when a window that covered this one is closed by the first press of a double click.
    desk.browser
        .run("window.dispatchEvent(new Event('focus'))")
        .await?;
    let may_allow = desk
        .browser
        .run(&format!("return Boolean({MAY_ALLOW})"))
        .await?;
    ensure!(may_allow == false, "it is shown anew");
    desk.browser.wait_for(MAY_ALLOW).await?;
    desk.browser.click_at(place, 1, TEMPO).await?;
    desk.wait_for_text("Allowed by Ann on the page").await
}

#[tokio::test]
async fn a_question_that_another_site_opens_is_shown_after_one_more_step() -> Result<()> {
    let Some(mut desk) = Desk::open().await? else {
        return Ok(());
    };
    let id = desk.request_bash("make").await?;
    let url = format!("{}/q/{id}", desk.coordinator.url());
    let game = format!(
        "Content-Type: text/html\r\n\r\n<!doctype html><title>game</title><button id=\"fast\" \
         onclick=\"location.href = '{url}'\">Click as fast as you can</button>"
    );
    let address = "127.0.0.1:0".parse()?;
    let (game_at, _running) = foreign_server(address, move |_| game.clone()).await?;
    // The same host with another port is the same site, and `localhost` is another one.
    for host in ["127.0.0.1", "localhost"] {
        let page = format!("http://{host}:{}/", game_at.port());
        desk.browser.open(&page).await?;
        desk.browser.click("#fast").await?;
        desk.browser
            .wait_for("document.querySelector('#show')")
            .await?;
        let is_bare = "return document.querySelector('#text, button') === null && document.scripts.length === 0";
        ensure!(desk.browser.run(is_bare).await? == true, "{host}");
        desk.browser.click("#show").await?;
        desk.browser.wait_for(MAY_ALLOW).await?;
    }
    // The way back is no shorter.
    let game = "Content-Type: text/html\r\n\r\n<!doctype html><title>game</title><button id=\"fast\" \
                onclick=\"history.back()\">Click as fast as you can</button>";
    let (game_at, _running) = foreign_server(address, move |_| game.to_owned()).await?;
    desk.browser
        .open(&format!("http://127.0.0.1:{}/", game_at.port()))
        .await?;
    desk.browser.click("#fast").await?;
    desk.browser
        .wait_for("document.querySelector('#show')")
        .await?;
    let is_bare = "return document.querySelector('#text, #view button') === null";
    ensure!(desk.browser.run(is_bare).await? == true, "the way back");
    desk.browser.click("#show").await?;
    desk.browser.wait_for(MAY_ALLOW).await?;
    // The list of questions leads there without that step.
    desk.browser
        .open(&format!("{}/q", desk.coordinator.url()))
        .await?;
    desk.tap("#waiting a").await?;
    desk.browser.wait_for(MAY_ALLOW).await
}
