//! The agents under one name in SQLite, of which there may be thousands: they are read a few at a time, because others want to
//! read between.

use c3po_shared::ids::AgentId;
use rusqlite::{OptionalExtension, named_params};

use super::agents::namesake;
use super::group::Work;
use super::rows::integer;
use super::worker::Worker;
use crate::store::{AGENTS_STEP, Namesake, Result};

/// Returns the agents whose owners requested this name, and the one whose id it is.
pub(super) async fn namesakes(reader: &Worker, base: &AgentId) -> Result<Vec<Namesake>> {
    let id = base.clone();
    let of_id = reader.run(move |work| of_id(work, &id)).await?;
    let (mut namesakes, mut after) = (Vec::new(), Some((String::new(), 0)));
    while let Some(last) = after {
        let base = base.clone();
        let found = reader.run(move |work| step(work, &base, &last)).await?;
        let next = found.last().and_then(|agent| agent.owner.as_ref());
        after = next
            .filter(|_| found.len() == AGENTS_STEP)
            .map(|owner| (owner.host.clone(), owner.slot));
        namesakes.extend(found);
    }
    let missing = of_id.filter(|agent| namesakes.iter().all(|known| known.id != agent.id));
    namesakes.extend(missing);
    Ok(namesakes)
}

/// Returns the next agents whose owners requested this name, after this host and slot.
fn step(work: &Work<'_>, base: &AgentId, (host, slot): &(String, u32)) -> Result<Vec<Namesake>> {
    let sql = "SELECT id, base, slot, host, instance, held_until FROM agents INDEXED BY owners
        WHERE base = :base AND slot > 0 AND (host, slot) > (:host, :slot) ORDER BY host, slot LIMIT :limit";
    let mut query = work.connection.prepare_cached(sql)?;
    let found = query.query_map(
        named_params! {
            ":base": base.as_str(), ":host": host, ":slot": slot, ":limit": integer(AGENTS_STEP),
        },
        |row| Ok(namesake(row)),
    )?;
    found.map(|agent| agent?).collect()
}

fn of_id(work: &Work<'_>, id: &AgentId) -> Result<Option<Namesake>> {
    let sql = "SELECT id, base, slot, host, instance, held_until FROM agents WHERE id = ?";
    let mut query = work.connection.prepare_cached(sql)?;
    query
        .query_row([id.as_str()], |row| Ok(namesake(row)))
        .optional()?
        .transpose()
}
