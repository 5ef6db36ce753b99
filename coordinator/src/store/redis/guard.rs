//! Rulings of the loop guard in Redis: one hash, which every coordinator reads.

use async_trait::async_trait;
use c3po_shared::audit::Entry;
use c3po_shared::limits::LOOP_WINDOW;
use c3po_shared::time::Timestamp;

use super::records::{self, corrupt};
use super::{RedisStore, millis};
use crate::store::{GuardStore, Pair, Result, Ruling};

#[async_trait]
impl GuardStore for RedisStore {
    async fn rulings(&self) -> Result<Vec<Ruling>> {
        let mut read = redis::cmd("HGETALL");
        let read = read.arg(self.names.key("guard")).to_owned();
        let kept: Vec<(String, String)> = self.within(self.connection.run(&read)).await?;
        kept.iter().map(|(pair, kept)| ruling(pair, kept)).collect()
    }

    async fn rule(
        &self,
        pair: &Pair,
        is_stopped: bool,
        entry: Option<&Entry>,
    ) -> Result<Timestamp> {
        let mut call = self.names.call("rule", [self.names.key("guard")]);
        call.arg(pair.to_string())
            .arg(if is_stopped { "stop" } else { "allow" })
            .arg(millis(LOOP_WINDOW));
        self.logged(call, entry).await.map(Timestamp::from_millis)
    }
}

/// Parses the stored ruling about a pair and its time.
fn ruling(pair: &str, kept: &str) -> Result<Ruling> {
    let (is_stopped, at) = match kept.split_once(' ') {
        Some(("stop", at)) => (true, at),
        Some(("allow", at)) => (false, at),
        _ => return Err(corrupt(format_args!("'{kept}' is not a ruling"))),
    };
    Ok(Ruling {
        pair: records::parse(pair)?,
        is_stopped,
        at: Timestamp::from_millis(records::parse(at)?),
    })
}
