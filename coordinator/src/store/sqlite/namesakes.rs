//! The agents under one name in SQLite, of which there may be thousands: they are read a few at a time, because others want to
//! read between.

use c3po_shared::ids::AgentId;
use rusqlite::{OptionalExtension, named_params};

use super::agents::namesake;
use super::group::Work;
use super::rows::integer;
use super::worker::Worker;
use crate::store::{AGENTS_STEP, Namesake, Owner, Result};

/// Returns the agents whose owners requested this name, and the one whose id it is.
pub(super) async fn namesakes(reader: &Worker, base: &AgentId) -> Result<Vec<Namesake>> {
    let id = base.clone();
    let of_id = reader.run(move |work| of_id(work, &id)).await?;
    let mut namesakes = Vec::new();
    loop {
        let (base, after) = (base.clone(), last_owner(&namesakes));
        let step = reader.run(move |work| step(work, &base, after)).await?;
        let is_last = step.len() < AGENTS_STEP;
        namesakes.extend(step);
        if is_last {
            break;
        }
    }
    let missing = of_id.filter(|agent| namesakes.iter().all(|known| known.id != agent.id));
    namesakes.extend(missing);
    Ok(namesakes)
}

fn last_owner(namesakes: &[Namesake]) -> Option<Owner> {
    namesakes.last()?.owner.clone()
}

/// Returns the next agents whose owners requested this name, ordered by host and slot.
fn step(work: &Work<'_>, base: &AgentId, after: Option<Owner>) -> Result<Vec<Namesake>> {
    let sql = "SELECT id, base, slot, host, instance, held_until FROM agents INDEXED BY owners
        WHERE base = :base AND slot > 0 AND (host, slot) > (:host, :slot) ORDER BY host, slot LIMIT :limit";
    let (host, slot) = after.map_or_else(Default::default, |owner| (owner.host, owner.slot));
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
