//! The implementation of each action. Each returns its consequence for the messages that the session was shown before.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use tokio::time::sleep;

use super::action::Action;
use super::checker::Effect;
use super::model::{ASK, DELEGATE, SLOW, WRITE};
use super::person::Person;
use super::screens::{APPEARS, choose, command, wait_idle};
use super::seat::Beginning;
use crate::eventually::eventually;
use crate::fake_api::Fate;

/// The time limit of a turn.
const TURN: Duration = Duration::from_secs(45);
/// How long a client may take to apply a new state.
const SETTLES: Duration = Duration::from_millis(700);
/// The interval at which a person looks at the screen.
const LOOK: Duration = Duration::from_millis(250);
/// How long a dialog may take to open after its prompt.
const DIALOG: Duration = Duration::from_secs(12);
/// How long a proxy may take to reconnect.
const RECONNECTS: Duration = Duration::from_secs(40);
/// The entry of our server in `/mcp`.
const SERVER: &str = "plugin:c3po:c3po";
/// Screens that a person leaves open.
const SCREENS: [&str; 7] = [
    "/config", "/status", "/help", "/model", "/mcp", "/resume", "/plugin",
];
/// The failures of the service: overloaded, too many requests, server error, bad request.
const STATUSES: [u16; 4] = [529, 429, 500, 400];

/// Performs one action.
///
/// Errors: the client does not behave as expected.
pub(super) async fn act(person: &mut Person, action: Action) -> Result<Effect> {
    match action {
        Action::Type => person.types("").await.map(|_| Effect::None),
        Action::Slow => slow(person).await,
        Action::Rest => {
            let time = person.while_patient(3_000);
            person.rests(time).await;
            Ok(Effect::None)
        }
        Action::HalfType => half_type(person).await,
        Action::Escape => escape(person).await,
        Action::DoubleEscape => double_escape(person).await,
        Action::Rewind => rewind(person).await,
        Action::Clear => clear(person).await,
        Action::Compact => compact(person).await,
        Action::Reconnect => reconnect(person).await,
        Action::KillProxy => kill_proxy(person).await,
        Action::KillClaude => kill_claude(person).await,
        Action::Leave => leave(person).await,
        Action::Delegate => {
            person.types(DELEGATE).await?;
            let time = person.while_patient(500);
            person.rests(time).await;
            Ok(Effect::Disturbs)
        }
        Action::Failures => failures(person).await,
        Action::Dialog => dialog(person).await,
        Action::Screen => screen(person).await,
    }
}

async fn slow(person: &mut Person) -> Result<Effect> {
    person.types(SLOW).await?;
    if person.dice.percent(40) {
        let pause = person.dice.millis(200, 2_000);
        person.rests(pause).await;
        person.types("").await?;
    }
    Ok(Effect::None)
}

async fn half_type(person: &mut Person) -> Result<Effect> {
    person.seat.session()?.write("what if we").await?;
    let time = person.while_patient(2_000);
    person.rests(time).await;
    Ok(Effect::None)
}

async fn escape(person: &mut Person) -> Result<Effect> {
    if person.dice.percent(70) {
        person.types(SLOW).await?;
        let pause = person.dice.millis(50, 3_500);
        person.rests(pause).await;
    }
    person.seat.session()?.key("Escape").await?;
    sleep(SETTLES).await;
    Ok(Effect::Disturbs)
}

async fn double_escape(person: &mut Person) -> Result<Effect> {
    let pause = person.dice.millis(50, 300);
    let session = person.seat.session()?;
    session.key("Escape").await?;
    sleep(pause).await;
    session.key("Escape").await?;
    sleep(SETTLES).await;
    Ok(Effect::Disturbs)
}

async fn rewind(person: &mut Person) -> Result<Effect> {
    wait_idle(&person.seat, TURN).await?;
    let back = 1 + person.dice.below(5);
    person.seat.watch.occupied(true);
    let session = person.seat.session()?;
    command(session, "/rewind").await?;
    session
        .wait_for_screen("the prompts", APPEARS, |screen| screen.contains("Rewind"))
        .await?;
    for _ in 0..back {
        session.key("Up").await?;
        sleep(Duration::from_millis(150)).await;
    }
    session.key("Enter").await?;
    sleep(SETTLES).await;
    if session.screen().await?.contains("Restore conversation") {
        choose(session, "Restore conversation").await?;
        sleep(SETTLES).await;
    }
    Ok(Effect::Disturbs)
}

async fn clear(person: &mut Person) -> Result<Effect> {
    wait_idle(&person.seat, TURN).await?;
    let session = person.seat.session()?;
    let before = session.session_id()?;
    command(session, "/clear").await?;
    let other = eventually("another conversation", APPEARS, async || {
        session
            .session_id()
            .is_ok_and(|now| now != before)
            .then_some(())
    });
    other.await?;
    Ok(Effect::Renews)
}

async fn compact(person: &mut Person) -> Result<Effect> {
    wait_idle(&person.seat, TURN).await?;
    let time = person.while_patient(1_000);
    person.seat.model.summarizes_in(time);
    let (journal, seat) = (&person.world.journal, person.seat.number);
    let before = journal.compactions(seat).len();
    command(person.seat.session()?, "/compact").await?;
    let begins = eventually("a summary", APPEARS, async || {
        (journal.compactions(seat).len() > before).then_some(())
    });
    if begins.await.is_err() {
        // There is too little text to summarise.
        return Ok(Effect::Disturbs);
    }
    if person.dice.percent(15) {
        let pause = person.dice.millis(100, 3_000);
        person.rests(pause).await;
        person.seat.session()?.key("Escape").await?;
    }
    let ends = eventually("the end of the summary", time + TURN, async || {
        sleep(SETTLES).await;
        journal.compactions(seat).last().copied().flatten()
    });
    let fate = ends.await?;
    wait_idle(&person.seat, TURN).await?;
    sleep(SETTLES).await;
    Ok(if fate == Fate::Answered {
        Effect::Renews
    } else {
        Effect::Disturbs
    })
}

async fn reconnect(person: &mut Person) -> Result<Effect> {
    person.seat.watch.occupied(true);
    let session = person.seat.session()?;
    let before = session.proxy_pid().ok();
    command(session, "/mcp").await?;
    choose(session, SERVER).await?;
    choose(session, "Reconnect").await?;
    let connected = eventually("another proxy", RECONNECTS, async || {
        sleep(LOOK).await;
        session.proxy_pid().ok().filter(|now| Some(*now) != before)
    });
    connected.await.with_context(|| session.log())?;
    sleep(SETTLES).await;
    Ok(Effect::Disturbs)
}

async fn kill_proxy(person: &mut Person) -> Result<Effect> {
    person.seat.watch.occupied(true);
    person.seat.kill_proxy().await?;
    let time = person.while_patient(100) / 2;
    person.rests(time).await;
    reconnect(person).await
}

async fn kill_claude(person: &mut Person) -> Result<Effect> {
    person.seat.watch.occupied(true);
    person.seat.kill().await?;
    let time = person.dice.millis(0, 4_000);
    person.rests(time).await;
    let ways = [
        Beginning::Anew,
        Beginning::Resumed,
        Beginning::Resumed,
        Beginning::Forked,
    ];
    begin(person, &ways).await
}

async fn leave(person: &mut Person) -> Result<Effect> {
    wait_idle(&person.seat, TURN).await?;
    person.seat.watch.occupied(true);
    command(person.seat.session()?, "/exit").await?;
    person.seat.leave().await?;
    begin(person, &[Beginning::Anew, Beginning::Continued]).await
}

async fn begin(person: &mut Person, ways: &[Beginning]) -> Result<Effect> {
    let way = ways[person.dice.below(ways.len())];
    let carries = person.seat.start(way).await?;
    Ok(if carries {
        Effect::Disturbs
    } else {
        Effect::Renews
    })
}

async fn failures(person: &mut Person) -> Result<Effect> {
    let status = STATUSES[person.dice.below(STATUSES.len())];
    person.seat.model.fails(1 + person.dice.below(3), status);
    if person.dice.percent(50) {
        person.types("").await?;
    }
    let time = person.while_patient(1_000);
    person.rests(time).await;
    Ok(Effect::Disturbs)
}

async fn dialog(person: &mut Person) -> Result<Effect> {
    let order = if person.dice.percent(50) { ASK } else { WRITE };
    person.types(order).await?;
    let watch = Arc::clone(&person.seat.watch);
    let opens = eventually("a dialog", DIALOG, async || {
        sleep(LOOK).await;
        (watch.status().as_deref() == Some("waiting")).then_some(())
    });
    if opens.await.is_err() {
        // The turn belonged to something else, or the service failed.
        return Ok(Effect::Disturbs);
    }
    watch.occupied(true);
    let time = person.while_patient(1_000);
    person.rests(time).await;
    let key = if person.dice.percent(70) {
        "Enter"
    } else {
        "Escape"
    };
    person.seat.session()?.key(key).await?;
    sleep(SETTLES).await;
    Ok(Effect::Disturbs)
}

async fn screen(person: &mut Person) -> Result<Effect> {
    let name = SCREENS[person.dice.below(SCREENS.len())];
    person.seat.watch.occupied(true);
    command(person.seat.session()?, name).await?;
    let time = person.while_patient(2_000);
    person.rests(time).await;
    Ok(Effect::Disturbs)
}
