//! Requests of the client that people decide elsewhere: the verdict reaches the real session, and the receipt shows what the
//! session made of it.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use harness::claude::{Interactive, Options, said};
use harness::eventually::eventually;
use harness::fake_api::{Block, Script};
use harness::person::Person;
use harness::process::{command, program};
use serde_json::{Value, json};
use tokio::process::Command;

use super::scene::{QUIET, SOON, Scene};

const DIALOG: &str = "Do you want to create";
const WITHDRAWN: &str = "WITHDRAWN";

/// A session whose requests are relayed, and a person.
pub(super) struct Relayed {
    pub(super) scene: Scene,
    pub(super) session: Interactive,
    pub(super) ann: Person,
}

fn relays(options: Options) -> Options {
    options.environment("C3PO_RELAY_PERMISSIONS", "true")
}

/// Gives the hook of a plugin 3 s for a decision from elsewhere.
fn shorten(plugin: &Path) -> Result<()> {
    let file = plugin.join("hooks/hooks.json");
    let mut hooks: Value = serde_json::from_str(&fs::read_to_string(&file)?)?;
    hooks["hooks"]["PermissionRequest"][0]["hooks"][0]["timeout"] = json!(3);
    Ok(fs::write(&file, hooks.to_string())?)
}

/// Returns a model that writes the file NAME when it is told `write NAME`.
fn writes(names: &[&'static str]) -> Script {
    names.iter().copied().fold(Script::new(), |script, name| {
        script.when(format!("write {name}"), move |_| {
            vec![Block::call(
                "Write",
                json!({"file_path": name, "content": "x"}),
            )]
        })
    })
}

impl Relayed {
    pub(super) async fn start(test: &str, script: Script, mode: &[&str]) -> Result<Option<Self>> {
        Self::start_with(test, script, mode, |_| Ok(())).await
    }

    /// Starts one whose client gives the hook 3 s for a decision from elsewhere.
    async fn start_impatient(test: &str, script: Script) -> Result<Option<Self>> {
        Self::start_with(test, script, &[], |scene| {
            shorten(&scene.work().join("plugin"))
        })
        .await
    }

    /// Starts one whose client asks about every command and every message, with a coordinator on that store.
    pub(super) async fn start_asking(
        test: &str,
        script: Script,
        store: Option<String>,
    ) -> Result<Option<Self>> {
        let script = script.otherwise([Block::text("done")]);
        let Some(mut scene) = Scene::set_on(test, script, store).await? else {
            return Ok(None);
        };
        let rules = ["Bash", "mcp__plugin_c3po_c3po__send_message"];
        let ask = json!({"permissions": {"ask": rules}});
        scene.options = relays(scene.options.clone()).settings(ask);
        let ann = Person::log_in(scene.work(), &scene.coordinator, "ann", "person").await?;
        let session = scene.start().await?;
        Ok(Some(Self {
            scene,
            session,
            ann,
        }))
    }

    /// Lets the clients of later sessions give each hook 3 s for a decision from elsewhere.
    pub(super) fn lose_patience(&self) -> Result<()> {
        shorten(&self.scene.work().join("plugin"))
    }

    async fn start_with(
        test: &str,
        script: Script,
        mode: &[&str],
        prepare: impl Fn(&Scene) -> Result<()>,
    ) -> Result<Option<Self>> {
        let Some(mut scene) = Scene::set(test, script.otherwise([Block::text("done")])).await?
        else {
            return Ok(None);
        };
        prepare(&scene)?;
        scene.options = relays(scene.options.clone()).arguments(mode.iter().copied());
        let ann = Person::log_in(scene.work(), &scene.coordinator, "ann", "person").await?;
        let session = scene.start().await?;
        Ok(Some(Self {
            scene,
            session,
            ann,
        }))
    }

    /// Has the model ask for a permission, and returns the question to people.
    pub(super) async fn asks(&self, name: &str) -> Result<Value> {
        self.session.type_line(&format!("write {name}")).await?;
        let question = self.ann.question(&format!("/{name}")).await;
        question.with_context(|| self.session.log())
    }

    pub(super) fn file(&self, name: &str) -> PathBuf {
        self.scene.options.folder().join(name)
    }

    async fn sees(&self, text: &str) -> Result<()> {
        let seen = self
            .session
            .wait_for_screen(text, SOON, |screen| screen.contains(text));
        seen.await.map(drop)
    }

    /// Returns whether the client waits for a prompt.
    pub(super) async fn is_idle(&self) -> Result<bool> {
        let file = said(&self.scene.options.home(), self.session.claude_pid())?;
        Ok(file["status"] == "idle")
    }

    /// Answers a question with `c3po answer`. Returns its error.
    async fn answers_by_command(&self, question: &str) -> Result<String> {
        let mut answer = command(program("c3po")?, self.scene.work());
        answer.args(["answer", question, "yes"]);
        answer.env("C3PO_COORDINATOR_URL", self.scene.coordinator.url());
        Ok(String::from_utf8_lossy(&answer.output().await?.stderr).into_owned())
    }

    /// Presses a key at the dialog until it is closed. The dialog ignores keys in its first moments.
    async fn closes_by(&self, key: &str) -> Result<()> {
        self.sees(DIALOG).await?;
        eventually("the dialog closes", SOON, async || {
            let asks = self.session.screen().await.ok()?.contains(DIALOG);
            if asks {
                self.session.key(key).await.ok()?;
            }
            (!asks).then_some(())
        })
        .await
    }
}

pub(super) fn id(question: &Value) -> &str {
    question["id"].as_str().unwrap_or_default()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_verdict_from_elsewhere_is_taken_and_applied() -> Result<()> {
    let script = writes(&["one", "two"]);
    let Some(relayed) = Relayed::start("a verdict from elsewhere", script, &[]).await? else {
        return Ok(());
    };
    let allowed = relayed.asks("one").await?;
    let request = &allowed["question"]["request"];
    assert_eq!(request["tool"], "Write");
    assert!(
        !relayed.file("one").exists(),
        "nothing is approved by asking"
    );
    let (status, answer) = relayed.ann.decide(&allowed, "allow", &json!({})).await?;
    ensure!(status == 201, "{answer}");
    let stages = relayed.ann.reaches(id(&allowed), "applied").await?;
    assert_eq!(
        stages,
        [
            "stored",
            "answered reply",
            "taken transcript",
            "applied transcript"
        ]
    );
    assert!(relayed.file("one").exists());

    let denied = relayed.asks("two").await?;
    let (status, answer) = relayed
        .ann
        .decide(&denied, "deny", &json!({"text": "not today"}))
        .await?;
    ensure!(status == 201, "{answer}");
    relayed.ann.reaches(id(&denied), "applied").await?;
    assert!(!relayed.file("two").exists());
    relayed.scene.shown("ann denied this: not today").await?;
    let (status, answer) = relayed.ann.decide(&denied, "allow", &json!({})).await?;
    assert_eq!(
        (status, &answer["code"], &answer["details"]["by"]),
        (409, &json!("ALREADY_ANSWERED"), &json!("ann")),
        "{answer}"
    );
    assert_eq!(relayed.ann.questions().await?, Vec::<Value>::new());
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_decision_at_the_terminal_withdraws_the_question() -> Result<()> {
    let script = writes(&["yes", "no"]);
    let Some(relayed) = Relayed::start("a decision at the terminal", script, &[]).await? else {
        return Ok(());
    };
    for (name, key, runs) in [("yes", "Enter", true), ("no", "Escape", false)] {
        let question = relayed.asks(name).await?;
        relayed.closes_by(key).await?;
        let stages = relayed.ann.reaches(id(&question), "withdrawn").await?;
        assert_eq!(stages, ["stored", "withdrawn terminal"], "{name}");
        let other = if runs { "deny" } else { "allow" };
        let (status, answer) = relayed.ann.decide(&question, other, &json!({})).await?;
        assert_eq!(status, 410, "{answer}");
        assert!(answer.to_string().contains(WITHDRAWN), "{answer}");
        assert_eq!(relayed.file(name).exists(), runs);
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_question_of_the_client_is_answered_elsewhere() -> Result<()> {
    let option = |label: &str| json!({"label": label, "description": "a store"});
    let question = json!({"question": "Which database?", "header": "DB", "multiSelect": false,
        "options": [option("SQLite"), option("Redis")]});
    let script = Script::new().when("ask me", move |_| {
        vec![Block::call(
            "AskUserQuestion",
            json!({"questions": [question]}),
        )]
    });
    let Some(relayed) = Relayed::start("a question of the client", script, &[]).await? else {
        return Ok(());
    };
    let answers = [
        (json!({"parts": [{"options": ["2"]}]}), "Redis"),
        (
            json!({"parts": [{"text": "neither, a file"}]}),
            "neither, a file",
        ),
    ];
    for (answer, expected) in answers {
        relayed.session.type_line("ask me").await?;
        let question = relayed.ann.question("Which database?").await?;
        let (status, answer) = relayed.ann.decide(&question, "allow", &answer).await?;
        ensure!(status == 201, "{answer}");
        relayed.ann.reaches(id(&question), "applied").await?;
        relayed.scene.shown(expected).await?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plan_is_accepted_elsewhere() -> Result<()> {
    let script = Script::new().when("plan it", |_| {
        vec![Block::call(
            "ExitPlanMode",
            json!({"plan": "Rename the file."}),
        )]
    });
    let mode = ["--permission-mode", "plan"];
    let Some(relayed) = Relayed::start("a plan", script, &mode).await? else {
        return Ok(());
    };
    relayed.session.type_line("plan it").await?;
    let question = relayed.ann.question("ExitPlanMode").await?;
    assert_eq!(question["question"]["kind"], "plan");
    let (status, answer) = relayed.ann.decide(&question, "allow", &json!({})).await?;
    ensure!(status == 201, "{answer}");
    relayed.ann.reaches(id(&question), "applied").await?;
    relayed.scene.shown("User has approved").await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_proxy_leaves_the_plain_dialog() -> Result<()> {
    let Some(relayed) = Relayed::start("a killed proxy", writes(&["one"]), &[]).await? else {
        return Ok(());
    };
    relayed.asks("one").await?;
    let proxy = relayed.session.proxy_pid()?.to_string();
    let killed = Command::new("kill")
        .args(["-s", "KILL", &proxy])
        .status()
        .await?;
    ensure!(killed.success());
    tokio::time::sleep(QUIET).await;
    assert!(
        !relayed.file("one").exists(),
        "nothing is approved by silence"
    );
    relayed.closes_by("Enter").await?;
    eventually("the file is written", SOON, async || {
        relayed.file("one").exists().then_some(())
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn after_the_time_of_its_hook_only_the_terminal_can_decide() -> Result<()> {
    let script = writes(&["one"]);
    let Some(relayed) = Relayed::start_impatient("a hook without time", script).await? else {
        return Ok(());
    };
    let question = relayed.asks("one").await?;
    let stages = relayed.ann.reaches(id(&question), "withdrawn").await?;
    assert_eq!(stages, ["stored", "withdrawn time_out"]);
    for decision in ["allow", "deny", "allow"] {
        let (status, answer) = relayed.ann.decide(&question, decision, &json!({})).await?;
        assert_eq!((status, &answer["code"]), (409, &json!("TOO_LATE")));
    }
    let printed = relayed.answers_by_command(id(&question)).await?;
    ensure!(printed.contains("elsewhere is over"), "{printed}");
    assert!(
        !relayed.file("one").exists(),
        "nothing is approved by a time-out"
    );
    relayed.closes_by("Enter").await?;
    eventually("the file is written", SOON, async || {
        relayed.file("one").exists().then_some(())
    })
    .await?;
    let stages = relayed.ann.stages(id(&question)).await?;
    assert_eq!(stages, ["stored", "withdrawn time_out"]);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn without_the_setting_requests_stay_at_the_terminal() -> Result<()> {
    let script = writes(&["one"]).otherwise([Block::text("done")]);
    let Some(scene) = Scene::set("no relay", script).await? else {
        return Ok(());
    };
    let ann = Person::log_in(scene.work(), &scene.coordinator, "ann", "person").await?;
    let session = scene.start().await?;
    session.type_line("write one").await?;
    session
        .wait_for_screen("the dialog", SOON, |screen| screen.contains(DIALOG))
        .await?;
    tokio::time::sleep(QUIET).await;
    assert_eq!(ann.questions().await?, Vec::<Value>::new());
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_of_a_subagent_is_named_as_such_and_is_applied_there() -> Result<()> {
    let script = writes(&["one"]).when("delegate", |_| {
        let task = json!({"description": "a file", "prompt": "write one",
            "subagent_type": "general-purpose", "run_in_background": false});
        vec![Block::call("Agent", task)]
    });
    let Some(relayed) = Relayed::start("a request of a subagent", script, &[]).await? else {
        return Ok(());
    };
    relayed.session.type_line("delegate").await?;
    let question = relayed.ann.question("/one").await?;
    assert_eq!(
        question["question"]["request"]["subagent"],
        "general-purpose"
    );
    let (status, answer) = relayed.ann.decide(&question, "allow", &json!({})).await?;
    ensure!(status == 201, "{answer}");
    relayed.ann.reaches(id(&question), "applied").await?;
    assert!(relayed.file("one").exists());
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn two_requests_of_one_step_are_decided_one_by_one() -> Result<()> {
    let script = Script::new().when("write both", |_| {
        ["one", "two"]
            .map(|name| Block::call("Write", json!({"file_path": name, "content": "x"})))
            .to_vec()
    });
    let Some(relayed) = Relayed::start("two requests of one step", script, &[]).await? else {
        return Ok(());
    };
    relayed.session.type_line("write both").await?;
    for (name, decision) in [("one", "deny"), ("two", "allow")] {
        let question = relayed.ann.question(&format!("/{name}")).await?;
        let (status, answer) = relayed.ann.decide(&question, decision, &json!({})).await?;
        ensure!(status == 201, "{answer}");
        relayed.ann.reaches(id(&question), "applied").await?;
        assert_eq!(relayed.file(name).exists(), decision == "allow");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn each_of_two_requests_ends_when_the_terminal_decides_it() -> Result<()> {
    let script = Script::new().when("write both", |_| {
        ["one", "two"]
            .map(|name| Block::call("Write", json!({"file_path": name, "content": "x"})))
            .to_vec()
    });
    let Some(relayed) = Relayed::start("two requests at the terminal", script, &[]).await? else {
        return Ok(());
    };
    relayed.session.type_line("write both").await?;
    for name in ["one", "two"] {
        let question = relayed.ann.question(&format!("/{name}")).await?;
        eventually("the file is written", SOON, async || {
            relayed.session.key("Enter").await.ok()?;
            relayed.file(name).exists().then_some(())
        })
        .await?;
        let stages = relayed.ann.reaches(id(&question), "withdrawn").await?;
        assert_eq!(stages, ["stored", "withdrawn terminal"], "{name}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_outlives_a_coordinator_and_an_accepted_rule_goes_to_the_client() -> Result<()> {
    let Some(mut relayed) =
        Relayed::start("a killed coordinator", writes(&["one", "two"]), &[]).await?
    else {
        return Ok(());
    };
    let question = relayed.asks("one").await?;
    relayed.scene.coordinator.kill().await?;
    relayed.scene.coordinator.restart().await?;
    let suggestions = &question["question"]["request"]["suggestions"];
    ensure!(
        suggestions.is_array(),
        "the client offers rules: {question}"
    );
    let always = json!({"suggestion": 0});
    let (status, answer) = relayed.ann.decide(&question, "allow", &always).await?;
    ensure!(status == 201, "{answer}");
    relayed.ann.reaches(id(&question), "applied").await?;
    assert!(relayed.file("one").exists());
    // The client does not ask again: that it keeps the rule is its own affair, and no receipt claims it.
    relayed.session.type_line("write two").await?;
    eventually("the second file", SOON, async || {
        relayed.file("two").exists().then_some(())
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_end_of_a_session_withdraws_its_request() -> Result<()> {
    let Some(relayed) = Relayed::start("the end of a session", writes(&["one"]), &[]).await? else {
        return Ok(());
    };
    let question = relayed.asks("one").await?;
    relayed.session.kill("KILL").await?;
    let stages = relayed.ann.reaches(id(&question), "withdrawn").await?;
    assert_eq!(stages, ["stored", "withdrawn session_end"]);
    assert!(!relayed.file("one").exists());
    Ok(())
}
