//! Reading a thread: what each recipient has of it is merged by its marks, and only the envelopes of a page are read.

use c3po_shared::ids::{AgentId, MessageId};
use c3po_shared::message::Message;
use c3po_shared::time::Timestamp;
use futures_util::{StreamExt, TryStreamExt, stream};

use super::records::{self, corrupt};
use super::{RedisStore, keys, scripts};
use crate::store::{Excerpt, Mark, Result, Stretch};

/// How many messages of one recipient one step looks at, so that no reader holds up the others.
const STEP: usize = 200;
/// How many recipients are asked, and messages read, at once.
const AT_ONCE: usize = 32;

/// What one recipient has of a stretch.
#[derive(Debug)]
struct Part {
    /// Up to where that is all it has; nothing where it has no more.
    until: Option<Mark>,
    found: Vec<Found>,
}

/// A message that is there, and how many bytes its envelope has.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Found {
    mark: Mark,
    bytes: usize,
}

/// Reads an excerpt of what is kept of a thread with these recipients.
pub(super) async fn read(
    store: &RedisStore,
    thread: &MessageId,
    recipients: &[AgentId],
    stretch: Stretch<'_>,
) -> Result<Excerpt> {
    let mut recipients: Vec<&AgentId> = recipients.iter().collect();
    recipients.sort();
    recipients.dedup();
    let asked: Vec<_> = recipients.into_iter().map(|recipient| find(store, thread, recipient, stretch)).collect();
    let parts: Vec<Part> = stream::iter(asked).buffer_unordered(AT_ONCE).try_collect().await?;
    let (found, next) = merge(parts, stretch);
    let fetched: Vec<_> = found.iter().map(|found| fetch(store, &found.mark.id)).collect();
    let messages: Vec<Option<Message>> = stream::iter(fetched).buffered(AT_ONCE).try_collect().await?;
    Ok(Excerpt { messages: messages.into_iter().flatten().collect(), next })
}

/// Asks what one recipient has. That costs the server what is looked at, whatever stands before and behind it.
async fn find(store: &RedisStore, thread: &MessageId, recipient: &AgentId, stretch: Stretch<'_>) -> Result<Part> {
    // All that the reader received concerns it; of what others did only what it sent.
    let sender = if recipient == stretch.reader { String::new() } else { format!("{}::", stretch.reader) };
    let mut script = scripts::about(&scripts::THREAD, recipient);
    script.arg(thread.as_str());
    match stretch.after {
        Some(mark) => script.arg(mark.at.millis()).arg(mark.id.as_str()),
        None => script.arg("").arg(""),
    };
    script.arg(sender).arg(STEP).arg(stretch.limit).arg(stretch.bytes);
    let answer: Vec<String> = store.connection.invoke(&script).await?;
    let [at, id, found @ ..] = answer.as_slice() else { return Err(corrupt("a part without its end")) };
    let until = if id.is_empty() { None } else { Some(mark(at, id)?) };
    let found = found.chunks_exact(3).map(|facts| {
        let mark = mark(&facts[0], &facts[1])?;
        Ok(Found { mark, bytes: records::parse(&facts[2])? })
    });
    Ok(Part { until, found: found.collect::<Result<_>>()? })
}

fn mark(at: &str, id: &str) -> Result<Mark> {
    Ok(Mark { at: Timestamp::from_millis(records::parse(at)?), id: records::parse(id)? })
}

/// Returns what is to be read, in order, and where to go on: only so far as every recipient said all that it has.
fn merge(parts: Vec<Part>, stretch: Stretch<'_>) -> (Vec<Found>, Option<Mark>) {
    let until = parts.iter().filter_map(|part| part.until.clone()).min();
    let mut found: Vec<Found> = parts.into_iter().flat_map(|part| part.found).collect();
    found.retain(|found| until.as_ref().is_none_or(|until| found.mark <= *until));
    found.sort();
    let mut read = 0;
    let fits = found.iter().take(stretch.limit).take_while(|found| {
        let fits = read <= stretch.bytes;
        read += found.bytes;
        fits
    });
    let fits = fits.count();
    if fits == found.len() {
        return (found, until);
    }
    found.truncate(fits);
    let next = found.last().map(|found| found.mark.clone());
    (found, next)
}

/// Reads one message; nothing where it is no longer kept.
async fn fetch(store: &RedisStore, id: &MessageId) -> Result<Option<Message>> {
    let envelope: Option<String> = store.connection.run(redis::cmd("HGET").arg(keys::message(id)).arg("env")).await?;
    let message = envelope.map(|text| records::envelope(&text)).transpose()?;
    // Its number may be another one's by now.
    Ok(message.filter(|message| message.id == *id))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mark(at: u64) -> Mark {
        let id = format!("a::b::{at:08x}").parse().expect("an id");
        Mark { at: Timestamp::from_millis(at), id }
    }

    fn part(until: Option<u64>, found: &[u64]) -> Part {
        let found = found.iter().map(|at| Found { mark: mark(*at), bytes: 10 });
        Part { until: until.map(mark), found: found.collect() }
    }

    #[test]
    fn parts_are_merged_as_far_as_all_of_them_go() {
        let check = |parts: Vec<Part>, limit, bytes, expected: &[u64], next: Option<u64>| {
            let reader = AgentId::human();
            let (found, went) = merge(parts, Stretch { reader: &reader, after: None, limit, bytes });
            let found: Vec<u64> = found.iter().map(|found| found.mark.at.millis()).collect();
            assert_eq!((found.as_slice(), went), (expected, next.map(mark)));
        };
        check(vec![], 9, 99, &[], None);
        check(vec![part(None, &[1, 4]), part(None, &[2, 3])], 9, 99, &[1, 2, 3, 4], None);
        check(vec![part(None, &[1, 4]), part(Some(3), &[2, 3])], 9, 99, &[1, 2, 3], Some(3));
        check(vec![part(Some(5), &[]), part(None, &[2, 7])], 9, 99, &[2], Some(5));
        check(vec![part(None, &[1, 4]), part(Some(3), &[2, 3])], 2, 99, &[1, 2], Some(2));
        check(vec![part(None, &[1, 2, 3])], 9, 15, &[1, 2], Some(2));
        check(vec![part(None, &[1, 2, 3])], 9, 0, &[1], Some(1));
        check(vec![part(None, &[1, 2])], 2, 15, &[1, 2], None);
    }
}
