//! The reports of pages that their persons use them.

use anyhow::{Result, ensure};

use super::Desk;

/// Counts the reports, from when they begin.
const COUNT: &str = "const real = fetch; window.reports = 0; window.fetch = (path, options) => {
    window.reports += String(path).endsWith('/me/input'); return real(path, options); }";

#[tokio::test]
async fn a_visible_page_reports_input_of_a_person_once_in_10_seconds() -> Result<()> {
    let Some(desk) = Desk::open().await? else {
        return Ok(());
    };
    let browser = &desk.browser;
    browser
        .open(&format!("{}/q", desk.coordinator.url()))
        .await?;
    browser.wait_for("document.querySelector('h1')").await?;
    browser.run(COUNT).await?;
    let script = "for (const kind of ['pointerdown', 'keydown', 'wheel']) document.body.dispatchEvent(new Event(kind, {bubbles: true}))";
    browser.run(script).await?;
    let show = |state: &str| {
        format!(
            "Object.defineProperty(document, 'visibilityState', {{configurable: true, get: () => '{state}'}})"
        )
    };
    browser.run(&show("hidden")).await?;
    browser.click("h1").await?;
    ensure!(browser.run("return window.reports").await? == 0);
    browser.run(&show("visible")).await?;
    for _ in 0..3 {
        browser.click("h1").await?;
    }
    ensure!(browser.run("return window.reports").await? == 1);
    Ok(())
}

#[tokio::test]
async fn a_page_without_a_login_reports_no_input() -> Result<()> {
    let Some(desk) = Desk::open().await? else {
        return Ok(());
    };
    let browser = &desk.browser;
    browser.run("localStorage.clear()").await?;
    browser
        .open(&format!("{}/q", desk.coordinator.url()))
        .await?;
    browser.wait_for("document.querySelector('h1')").await?;
    browser.run(COUNT).await?;
    browser.click("h1").await?;
    ensure!(browser.run("return window.reports").await? == 0);
    Ok(())
}
