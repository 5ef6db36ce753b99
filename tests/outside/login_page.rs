//! The page of a login in a real Chromium: it logs in, and no other page gets the token or reaches the coordinator.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use harness::browser::{self, Browser, development_server};
use harness::coordinator::Coordinator;
use harness::http;
use harness::process::{command, program};
use harness::skip::skipped;
use serde_json::{Value, json};
use tempfile::TempDir;

/// Whether the page shows the button, or the login.
const OFFERED: &str = "!document.querySelector('#offer').hidden";
const LOGGED_IN: &str = "!document.querySelector('#login').hidden";

/// A page that tries everything on the coordinator at `TARGET`, and lists what it got.
const ATTACK: &str = include_str!("login_attack.js");

/// Makes a link with the coordinator's own command. Returns it.
pub(super) async fn link(work: &Path, coordinator: &Coordinator) -> Result<String> {
    let mut program = command(program("c3po-coordinator")?, work);
    let listen = coordinator.address().to_string();
    program.args([
        "login", "Ann", "--scope", "operator", "--json", "--listen", &listen,
    ]);
    let made = program.output().await?;
    let made: Value = serde_json::from_slice(&made.stdout)
        .with_context(|| String::from_utf8_lossy(&made.stderr).into_owned())?;
    let said = |name: &str| made[name].as_str().context("a text");
    let (link, id, code) = (said("link")?, said("id")?, said("code")?);
    ensure!(
        link == format!("http://{listen}/login/{id}#{code}"),
        "{made}"
    );
    ensure!(made["warning"].is_null(), "{made}");
    Ok(link.to_owned())
}

/// Makes a link. Returns its code.
pub(super) async fn offer(work: &Path, coordinator: &Coordinator) -> Result<String> {
    let link = link(work, coordinator).await?;
    let (_, code) = link.split_once('#').context("a code")?;
    Ok(code.to_owned())
}

/// Returns how many logins are valid.
async fn valid(work: &Path, coordinator: &Coordinator) -> Result<usize> {
    let mut program = command(program("c3po-coordinator")?, work);
    let listen = coordinator.address().to_string();
    program.args(["logins", "list", "--json", "--listen", &listen]);
    let listed: Value = serde_json::from_slice(&program.output().await?.stdout)?;
    let logins = listed["logins"].as_array().context("logins")?.iter();
    Ok(logins.filter(|login| login["state"] == "valid").count())
}

/// Logs in over the API. Returns the token.
async fn logged_in(work: &Path, coordinator: &Coordinator) -> Result<String> {
    let body = json!({"code": offer(work, coordinator).await?}).to_string();
    let made = http::post(coordinator.address(), "/api/v1/login", &[], &body).await?;
    let made: Value = serde_json::from_str(&made.body)?;
    Ok(made["data"]["token"]
        .as_str()
        .context("a token")?
        .to_owned())
}

/// Logs in with a link as a person does. Returns the token.
pub(super) async fn log_in(browser: &Browser, base: &str, link: &str) -> Result<String> {
    browser.open(link).await?;
    spend(browser, base).await
}

/// Presses the button of the page that was opened. Returns the token.
async fn spend(browser: &Browser, base: &str) -> Result<String> {
    browser.wait_for(OFFERED).await?;
    let address = browser.run("return location.href").await?;
    ensure!(
        address == format!("{base}/login"),
        "the code stays in {address}"
    );
    ensure!(
        browser.run("return localStorage.length").await? == 0,
        "not before the button"
    );
    browser.click("#spend").await?;
    browser.wait_for(LOGGED_IN).await?;
    let shown =
        "return ['name', 'scope'].map((id) => document.getElementById(id).textContent).join()";
    ensure!(browser.run(shown).await? == "Ann,operator");
    let token = browser
        .run("return localStorage.getItem('c3po-login')")
        .await?;
    Ok(token.as_str().context("a token")?.to_owned())
}

/// Runs the attack on a page of that address. Returns what it got.
async fn attack(
    browser: &Browser,
    page: &str,
    target: &str,
    token: &str,
    code: &str,
) -> Result<Value> {
    browser.open(page).await?;
    let body = ATTACK
        .replace("TARGET", target)
        .replace("TOKEN", token)
        .replace("CODE", code);
    browser.run(&body).await
}

#[tokio::test]
async fn a_person_logs_in_and_out_and_no_other_page_gets_anything() -> Result<()> {
    if !browser::is_installed() {
        return skipped("login_page", "chromium-driver is not installed");
    }
    let work = TempDir::new()?;
    let coordinator = Coordinator::start(work.path()).await?;
    let port = coordinator.address().port();
    let browser = Browser::start(work.path()).await?;
    let base = format!("http://127.0.0.1:{port}");
    let first = link(work.path(), &coordinator).await?;
    let token = log_in(&browser, &base, &first).await?;

    let (evil, _running) = development_server().await?;
    let code = offer(work.path(), &coordinator).await?;
    let pages = [
        format!("http://127.0.0.1:{}/", evil.port()),
        format!("http://localhost:{}/", evil.port()),
        format!("http://other.localhost:{}/", evil.port()),
    ];
    for page in &pages {
        for host in ["127.0.0.1", "localhost", "other.localhost"] {
            let target = format!("http://{host}:{port}");
            let got = attack(&browser, page, &target, &token, &code).await?;
            ensure!(got == json!([]), "{page} at {target}: {got}");
        }
    }
    browser.open(&format!("{base}/login")).await?;
    browser.wait_for(LOGGED_IN).await?;
    browser.click("#leave").await?;
    browser.wait_for(OFFERED).await?;
    ensure!(browser.run("return localStorage.length").await? == 0);
    // No attack has spent the code: the person does. Another user may answer at `localhost`, so that leads back.
    let local = format!("http://localhost:{port}/login#{code}");
    browser.open(&local).await?;
    let other = spend(&browser, &base).await?;
    ensure!(other != token);
    let me = |token: &str| {
        let text = format!(
            "GET /api/v1/me HTTP/1.1\r\nHost: {base}\r\nConnection: close\r\nAuthorization: Bearer {token}\r\n\r\n",
            base = coordinator.address()
        );
        let address = coordinator.address();
        async move { anyhow::Ok(http::request(address, &text).await?.status) }
    };
    ensure!(me(&token).await? == 401 && me(&other).await? == 200);
    // A browser forgets its login with the next one, which ends it.
    browser
        .open(&link(work.path(), &coordinator).await?)
        .await?;
    browser.wait_for(OFFERED).await?;
    browser.click("#spend").await?;
    browser.wait_for(LOGGED_IN).await?;
    ensure!(me(&other).await? == 401);
    // Another tab logs in meanwhile: the button ends the login that is stored.
    let latest = logged_in(work.path(), &coordinator).await?;
    let store = format!("localStorage.setItem('c3po-login', '{latest}')");
    browser.run(&store).await?;
    browser.click("#leave").await?;
    browser.wait_for(OFFERED).await?;
    ensure!(me(&latest).await? == 401);
    Ok(())
}

#[tokio::test]
async fn a_browser_that_can_store_no_login_ends_it() -> Result<()> {
    if !browser::is_installed() {
        return skipped("login_page", "chromium-driver is not installed");
    }
    let work = TempDir::new()?;
    let coordinator = Coordinator::start(work.path()).await?;
    let browser = Browser::start(work.path()).await?;
    browser
        .open(&link(work.path(), &coordinator).await?)
        .await?;
    browser.wait_for(OFFERED).await?;
    let full = "for (let size = 1 << 23; size; size >>= 1) {
        try { localStorage.setItem('x' + size, 'x'.repeat(size)); } catch {}
    }";
    browser.run(full).await?;
    browser.click("#spend").await?;
    browser
        .wait_for("document.querySelector('#error').textContent.includes('was ended')")
        .await?;
    ensure!(valid(work.path(), &coordinator).await? == 0);
    Ok(())
}

#[tokio::test]
async fn the_page_reports_errors_and_fits_a_phone_and_a_desk() -> Result<()> {
    if !browser::is_installed() {
        return skipped("login_page", "chromium-driver is not installed");
    }
    let work = TempDir::new()?;
    let store = format!("sqlite:{}", work.path().join("c3po.db").display());
    let coordinator = Coordinator::absent(work.path(), &store)?;
    let mut coordinator = coordinator.with("C3PO_TOKEN", Path::new("0123456789abcdef"));
    coordinator.restart().await?;
    let browser = Browser::start(work.path()).await?;
    let url = format!("http://{}/login#wrongcode", coordinator.address());
    for (width, height) in [(360, 740), (1440, 900)] {
        browser.resize(width, height).await?;
        browser.open("about:blank").await?;
        browser.open(&url).await?;
        browser.wait_for(OFFERED).await?;
        let fits = "return document.documentElement.scrollWidth <= innerWidth";
        ensure!(browser.run(fits).await? == true, "{width}");
        browser.click("#spend").await?;
        browser
            .wait_for("document.querySelector('#error').textContent.includes('unknown, was used, or has expired')")
            .await?;
    }
    // A sibling name leads to the same page, but is not the coordinator's own.
    let port = coordinator.address().port();
    let sibling = format!("http://other.localhost:{port}/login#wrongcode");
    browser.open(&sibling).await?;
    let spent = r#"const options = {method: "POST", headers: {"Content-Type": "application/json"}, body: '{"code":"a"}'};
        return (await fetch("/api/v1/login", options)).status"#;
    ensure!(browser.run(spent).await? == 403);
    ensure!(
        browser
            .run("return document.querySelector('#offer').hidden")
            .await?
            == true
    );
    browser.open(&url).await?;
    browser.wait_for(OFFERED).await?;
    coordinator.kill().await?;
    browser.click("#spend").await?;
    browser
        .wait_for("document.querySelector('#error').textContent.includes('does not answer')")
        .await?;
    Ok(())
}
