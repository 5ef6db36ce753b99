//! The looks of the pages: on a phone and a desk, light and dark, accessible, and with hostile texts.

use anyhow::{Context, Result, ensure};
use c3po_shared::time::Timestamp;
use harness::corpus::{hostile, is_obeyed};
use harness::skip::skipped;
use serde_json::{Map, Value, json};

use super::Desk;

/// The size of a phone and of a desk.
const SCREENS: [(u32, u32); 2] = [(360, 740), (1440, 900)];
/// Whether the page is no wider than its window.
const FITS: &str = "return document.documentElement.scrollWidth <= innerWidth";

/// Texts that try to become elements, or to leave their box.
pub(super) const MARKUP: [&str; 8] = [
    "<script>window.owned = 1</script>",
    "<img src=x onerror='window.owned = 1'>",
    "\"><svg onload=alert(1)>",
    "</pre></main><style>* { display: none }</style>",
    "<iframe srcdoc='<script>parent.owned = 1</script>'></iframe>",
    "javascript:alert(1)",
    "<form action=//evil.example><input name=code>",
    "${alert(1)}{{constructor.constructor('alert(1)')()}}",
];

/// Returns texts that are large or high without spaces.
fn huge() -> [String; 3] {
    let high = format!("a{}", "\u{301}\u{489}".repeat(400));
    ["W".repeat(5_000), high, "\u{fdfd}".repeat(300)]
}

/// Looks at the present page in every size and scheme. That takes long on a busy machine, so the agent sends heartbeats
/// meanwhile: its request would end with its session.
pub(super) async fn check_looks(desk: &mut Desk, name: &str) -> Result<()> {
    for screen in SCREENS {
        let now = json!({"timestamp": Timestamp::now()});
        let beat = desk.agent.request("heartbeat", now).await?;
        ensure!(beat.is_ok(), "{beat:?}");
        for scheme in ["light", "dark"] {
            desk.browser.imitate(screen, scheme).await?;
            let fits = desk.browser.run(FITS).await?;
            ensure!(fits == true, "{name} is too wide on {screen:?}");
            let Some(found) = desk.browser.inaccessible().await? else {
                return skipped("questions", "axe-core is not installed");
            };
            ensure!(found.is_empty(), "{name}, {screen:?}, {scheme}: {found:#?}");
        }
    }
    Ok(())
}

#[tokio::test]
async fn the_pages_fit_phone_and_desk_and_are_accessible_in_light_and_dark() -> Result<()> {
    let Some(mut desk) = Desk::open().await? else {
        return Ok(());
    };
    check_looks(&mut desk, "login").await?;
    let words = desk.ask("Which port shall the server use?").await?;
    let request = desk.request_bash(&"make all && ".repeat(300)).await?;
    desk.browser
        .open(&format!("{}/q", desk.coordinator.url()))
        .await?;
    desk.browser
        .wait_for("document.querySelectorAll('#waiting li').length === 2")
        .await?;
    check_looks(&mut desk, "the list").await?;
    desk.show(&words).await?;
    check_looks(&mut desk, "a question").await?;
    desk.show(&request).await?;
    check_looks(&mut desk, "a request").await?;
    desk.tap("summary").await?;
    check_looks(&mut desk, "a rule").await?;
    desk.press("#deny").await?;
    desk.wait_for_text("did not take it within 10 s").await?;
    check_looks(&mut desk, "a verdict").await?;
    let unknown = format!("{}/q/web::human::00000000", desk.coordinator.url());
    desk.browser.open(&unknown).await?;
    desk.browser
        .wait_for("document.querySelector('#none')")
        .await?;
    check_looks(&mut desk, "no question").await
}

#[tokio::test]
async fn hostile_texts_run_nothing_and_stay_in_their_boxes() -> Result<()> {
    let Some(mut desk) = Desk::open().await? else {
        return Ok(());
    };
    let texts: Vec<String> = hostile()
        .into_iter()
        .chain(MARKUP.map(str::to_owned))
        .chain(huge())
        .collect();
    ensure!(texts.len() >= 200, "{}", texts.len());
    let input: Map<String, Value> = texts
        .iter()
        .enumerate()
        .map(|(at, text)| (format!("k{at:04}"), json!(text)))
        .collect();
    let all = texts.concat();
    let rule = json!({"type": "addRules", "rules": [{"toolName": "Bash", "ruleContent": all}]});
    let request = json!({"tool": MARKUP.concat(), "subagent": &all[..2_000.min(all.len())],
        "input": Value::Object(input).to_string(), "suggestions": [rule]});
    let part = json!([{"id": "1", "text": all, "allow_text": true}]);
    let question = json!({"kind": "permission", "parts": part, "request": request});
    let call = json!({"message": all, "question": question});
    let sent = desk.agent.call("request_permission", call).await?;
    let of_client = sent["id"].as_str().context("an id")?.to_owned();
    let question = json!({"target": "human", "title": "\"><svg onload=alert(1)>", "message": all, "context": all,
        "requires_response": true});
    let sent = desk.agent.call("send_message", question).await?;
    let of_agent = sent["id"].as_str().context("an id")?.to_owned();
    let url = desk.coordinator.url();
    let pages = [
        "/q".to_owned(),
        format!("/q/{of_client}"),
        format!("/q/{of_agent}"),
    ];
    for page in pages {
        check_page(&desk, &url, &page).await?;
    }
    Ok(())
}

/// Checks that the hostile texts of a page run nothing and stay in their boxes.
pub(super) async fn check_page(desk: &Desk, url: &str, page: &str) -> Result<()> {
    desk.browser.open(&format!("{url}{page}")).await?;
    desk.browser
        .wait_for("document.querySelector('.foreign') && !document.querySelector('.foreign:empty')")
        .await?;
    desk.browser
        .run("document.querySelectorAll('details').forEach((one) => (one.open = true))")
        .await?;
    for screen in SCREENS {
        desk.browser.imitate(screen, "light").await?;
        ensure!(
            desk.browser.run(FITS).await? == true,
            "{page} is too wide on {screen:?}"
        );
        let outside = "const box = document.querySelector('main').getBoundingClientRect();
            return [...document.querySelectorAll('.foreign')].map((one) => [one.getBoundingClientRect(), getComputedStyle(one)])
                .filter(([one, style]) => one.left < box.left || one.right > box.right + 1 || style.overflowX !== 'clip').length";
        ensure!(
            desk.browser.run(outside).await? == 0,
            "{page} on {screen:?}"
        );
    }
    let bare = "return [...document.querySelectorAll(':is(p, pre, bdi, legend span).foreign')]
        .filter((one) => getComputedStyle(one).borderTopStyle !== 'solid').length";
    ensure!(
        desk.browser.run(bare).await? == 0,
        "{page} has a text without a box"
    );
    let made = "return [window.owned ?? null, document.querySelectorAll('main :is(script, img, iframe, svg, style, input)').length]";
    ensure!(desk.browser.run(made).await? == json!([null, 0]), "{page}");
    ensure!(!desk.browser.has_box().await?, "{page} opened a box");
    let shown = desk.browser.run("return document.body.textContent").await?;
    let shown = shown.as_str().context("a text")?;
    let obeyed = shown
        .chars()
        .find(|c| is_obeyed(*c) && !matches!(c, '\n' | '\t'));
    ensure!(obeyed.is_none(), "{page} has {obeyed:?}");
    Ok(())
}
