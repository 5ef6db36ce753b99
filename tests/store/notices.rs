//! The index of the inbox of people: which messages count for which host, what that costs Redis, and what earlier builds change.

use anyhow::{Result, ensure};
use c3po_coordinator::store::SendOutcome;
use c3po_shared::limits::{NOTICES_MAX, NOTICES_PER_HOST, QUESTIONS_PER_AGENT, QUESTIONS_PER_HOST};
use c3po_shared::message::Message;
use c3po_shared::receipt::Stage;
use harness::redis::Redis;

use super::Fixture;
use super::fixture::{id, message, news, send};
use super::redis::{Shared, shared};

/// The key of the index in Redis, and the copy of it.
const INDEX: &str = "{c3po}:groups";
const SAVED: &str = "{c3po}:saved";
const RECORD: &str = "{c3po}:agent:human";

fn from_host(host: Option<&str>, message: Message) -> Message {
    Message {
        from_host: host.map(Into::into),
        ..message
    }
}

impl Fixture {
    async fn notify(&self, from: &str, host: Option<&str>) -> Result<Message> {
        let notice = from_host(host, news(from, "human", "for your information"));
        self.post(notice).await
    }

    async fn notify_often(
        &self,
        from: &str,
        host: Option<&str>,
        count: usize,
    ) -> Result<Vec<Message>> {
        let mut sent = Vec::new();
        for _ in 0..count {
            sent.push(self.notify(from, host).await?);
        }
        Ok(sent)
    }

    async fn ask(&self, from: &str, host: Option<&str>) -> Result<SendOutcome> {
        let question = from_host(host, message(from, "human", "which one?"));
        Ok(self.store.send(&send(question)).await?)
    }

    async fn ask_often(&self, from: &str, host: Option<&str>, count: usize) -> Result<()> {
        for _ in 0..count {
            ensure!(self.ask(from, host).await? == SendOutcome::Stored, "{from}");
        }
        Ok(())
    }

    /// Returns how many of these notices were replaced.
    async fn replaced(&self, notices: &[Message]) -> Result<usize> {
        let mut count = 0;
        for notice in notices {
            let stages = self.stages(&notice.id).await?;
            count += usize::from(stages.contains(&Stage::Expired));
        }
        Ok(count)
    }
}

fn too_many(limit: usize) -> SendOutcome {
    SendOutcome::TooManyQuestions {
        count: limit,
        limit,
    }
}

pub(crate) async fn messages_to_people_count_for_the_host_that_their_sender_had(
    fixture: Fixture,
) -> Result<()> {
    fixture.introduce("human", None).await?;
    fixture.introduce("a", Some("h1")).await?;
    fixture.introduce("h", Some("h1 0")).await?;
    fixture.ask_often("a", Some("h1"), 1).await?;
    let mut earlier = fixture
        .notify_often("a", Some("h1"), NOTICES_PER_HOST)
        .await?;
    // The name of another host may begin with this one.
    fixture.notify("h", Some("h1 0")).await?;
    assert_eq!(fixture.store.move_host(&id("a"), "h1", "h2").await?, 1);
    let later = fixture
        .notify_often("a", Some("h2"), NOTICES_PER_HOST)
        .await?;
    assert_eq!(fixture.replaced(&earlier).await?, 0);
    // The oldest of the new name goes, although there are older ones.
    fixture.notify("a", Some("h2")).await?;
    assert_eq!(
        (
            fixture.replaced(&earlier).await?,
            fixture.replaced(&later[..1]).await?
        ),
        (0, 1)
    );
    // Acknowledged ones do not count any more, whatever their place.
    for at in [50, 10] {
        fixture.acknowledge(&earlier.remove(at)).await?;
    }
    fixture.notify_often("a", Some("h1"), 2).await?;
    assert_eq!(fixture.replaced(&earlier).await?, 0);
    fixture.notify_often("a", Some("h1"), 3).await?;
    assert_eq!(
        (
            fixture.replaced(&earlier[..3]).await?,
            fixture.replaced(&earlier).await?
        ),
        (3, 3)
    );
    // An agent has its questions under every name.
    fixture
        .ask_often("a", Some("h2"), QUESTIONS_PER_AGENT - 1)
        .await?;
    assert_eq!(
        fixture.ask("a", Some("h2")).await?,
        too_many(QUESTIONS_PER_AGENT)
    );
    Ok(())
}

pub(crate) async fn agents_without_a_host_have_the_limits_of_one_host_together(
    fixture: Fixture,
) -> Result<()> {
    fixture.introduce("human", None).await?;
    let askers = QUESTIONS_PER_HOST / QUESTIONS_PER_AGENT;
    let mut notices = Vec::new();
    for number in 0..askers {
        let name = format!("a{number}");
        fixture.introduce(&name, None).await?;
        notices.extend(
            fixture
                .notify_often(&name, None, NOTICES_PER_HOST / askers)
                .await?,
        );
        fixture.ask_often(&name, None, QUESTIONS_PER_AGENT).await?;
    }
    fixture.introduce("b", None).await?;
    fixture.notify("b", None).await?;
    assert_eq!(
        (
            fixture.replaced(&notices[..1]).await?,
            fixture.replaced(&notices).await?
        ),
        (1, 1)
    );
    assert_eq!(fixture.ask("b", None).await?, too_many(QUESTIONS_PER_HOST));
    Ok(())
}

#[tokio::test]
async fn a_message_to_people_reads_no_whole_list_however_many_lie_there() -> Result<()> {
    let Shared { redis, fixture, .. } = shared().await?;
    fixture.introduce("human", None).await?;
    for number in 0..=NOTICES_MAX / NOTICES_PER_HOST {
        let (name, host) = (format!("a{number}"), format!("h{number}"));
        fixture.introduce(&name, Some(&host)).await?;
        fixture
            .notify_often(&name, Some(&host), NOTICES_PER_HOST)
            .await?;
        fixture
            .ask_often(&name, Some(&host), QUESTIONS_PER_AGENT)
            .await?;
    }
    fixture.introduce("late", Some("h")).await?;
    redis.tell(&["CONFIG", "RESETSTAT"]).await?;
    // It replaces the oldest one of its host, the oldest of all, is accepted, and is refused.
    fixture.notify("a9", Some("h9")).await?;
    fixture.notify("late", Some("h")).await?;
    fixture.ask_often("late", Some("h"), 1).await?;
    let refused = fixture.ask("a9", Some("h9")).await?;
    assert_eq!(refused, too_many(QUESTIONS_PER_AGENT));
    let stats = redis.tell(&["INFO", "commandstats"]).await?;
    for whole in ["cmdstat_hgetall:", "cmdstat_zrange:"] {
        ensure!(!stats.contains(whole), "{stats}");
    }
    ensure!(stats.contains("cmdstat_fcall:"), "{stats}");
    Ok(())
}

/// Runs a change as a coordinator of an earlier build makes it, which knows no index.
async fn as_an_earlier_build<T>(
    redis: &Redis,
    change: impl Future<Output = Result<T>>,
) -> Result<T> {
    redis.tell(&["COPY", INDEX, SAVED]).await?;
    let before = redis.tell(&["HGET", RECORD, "grouped"]).await?;
    let changed = change.await?;
    redis.tell(&["RENAME", SAVED, INDEX]).await?;
    let before = before.lines().nth(1).unwrap_or_default();
    redis.tell(&["HSET", RECORD, "grouped", before]).await?;
    Ok(changed)
}

#[tokio::test]
async fn a_change_by_a_coordinator_of_an_earlier_build_counts_too() -> Result<()> {
    let Shared { redis, fixture, .. } = shared().await?;
    fixture.introduce("human", None).await?;
    fixture.introduce("one", Some("h")).await?;
    let (host, limit) = (Some("h"), too_many(QUESTIONS_PER_AGENT));
    let mut notices = fixture.notify_often("one", host, NOTICES_PER_HOST).await?;
    let question = from_host(host, message("one", "human", "which one?"));
    let question = fixture.post(question).await?;
    let other = from_host(host, message("one", "human", "and which one?"));
    let other = fixture.post(other).await?;
    fixture
        .ask_often("one", host, QUESTIONS_PER_AGENT - 2)
        .await?;
    // The data of a build without an index, and of one that knew no hosts of messages.
    redis.tell(&["DEL", INDEX, "{c3po}:hosts"]).await?;
    redis.tell(&["HDEL", RECORD, "grouped"]).await?;
    assert_eq!(fixture.ask("one", host).await?, limit);
    notices.push(fixture.notify("one", host).await?);
    assert_eq!(fixture.replaced(&notices).await?, 1);
    // It replaces one: as many as before are there.
    notices.push(as_an_earlier_build(&redis, fixture.notify("one", host)).await?);
    notices.push(fixture.notify("one", host).await?);
    assert_eq!(fixture.replaced(&notices[..3]).await?, 3);
    // It takes one out.
    as_an_earlier_build(&redis, fixture.acknowledge(&notices[50])).await?;
    notices.push(fixture.notify("one", host).await?);
    assert_eq!(fixture.replaced(&notices).await?, 3);
    // The end of a question, and a further one.
    as_an_earlier_build(&redis, fixture.answer(&question, "yes")).await?;
    fixture.ask_often("one", host, 1).await?;
    assert_eq!(fixture.ask("one", host).await?, limit);
    fixture.conclude("one", &other, Stage::Withdrawn).await?;
    as_an_earlier_build(&redis, fixture.ask_often("one", host, 1)).await?;
    assert_eq!(fixture.ask("one", host).await?, limit);
    assert_eq!(fixture.replaced(&notices).await?, 3);
    Ok(())
}
