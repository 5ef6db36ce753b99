//! The names that a session tries, one after the other: a pure decision.

use std::collections::HashSet;
use std::ops::RangeInclusive;

use c3po_shared::ids::AgentId;
use c3po_shared::limits::CLOCK_SKEW;
use c3po_shared::time::Timestamp;

use crate::store::{Claim, Namesake, Owner};

/// The numbers that are given in order, the lowest free one first, and how many refused names that no agent has end that. A
/// host can take or reserve all of these for itself, but not those at random.
const IN_ORDER: RangeInclusive<u32> = 2..=1_000;
const REFUSED_IN_ORDER: usize = 20;
const AT_RANDOM: RangeInclusive<u32> = 1_001..=999_999;

/// How many agents are tried although a session seems to hold them: that session may be saying goodbye at this moment.
const HELD_TRIED: usize = 2;

/// Returns the next agent that a session tries to become, or `None` if there is no other. If `is_taken` is set, no new agent
/// gets the requested name without a number. The store refuses an agent that another session holds or that belongs to another
/// host.
///
/// The first choice is the previous agent of the same process. Then come the agents of its host, which keep their names: those
/// that no session seems to hold, then a few others. Then comes a new agent with the lowest free number, and after many refused
/// names one with the number of the `lot`, which is at random. Only the first session of a host gets the name without a number.
pub(super) fn next_name(
    wish: &Claim,
    namesakes: &[Namesake],
    refused: &HashSet<AgentId>,
    is_taken: bool,
    now: Timestamp,
    lot: u128,
) -> Option<(AgentId, Owner)> {
    let Owner { base, host, .. } = &wish.owner;
    let owned = || {
        namesakes
            .iter()
            .filter_map(|agent| Some((agent, agent.owner.as_ref()?)))
    };
    let untried = || owned().filter(|(agent, _)| !refused.contains(&agent.id));
    let of_process = |(agent, owner): &(&Namesake, &Owner)| {
        agent.instance == wish.instance && owner.host == *host
    };
    if let Some((agent, owner)) = untried().find(of_process) {
        return Some((agent.id.clone(), owner.clone()));
    }
    let of_host = |owner: &Owner| owner.base == *base && owner.host == *host;
    let seems_held = |agent: &Namesake| {
        agent.held_until > now + CLOCK_SKEW && !wish.succeeds.contains(&agent.instance)
    };
    let kept = untried().filter(|(agent, owner)| {
        of_host(owner) && (refused.len() < HELD_TRIED || !seems_held(agent))
    });
    if let Some((agent, owner)) = kept.min_by_key(|(agent, owner)| (seems_held(agent), owner.slot))
    {
        return Some((agent.id.clone(), owner.clone()));
    }
    let slots: HashSet<u32> = owned()
        .filter(|(_, owner)| of_host(owner))
        .map(|(_, owner)| owner.slot)
        .collect();
    let slot = (1..).find(|slot| !slots.contains(slot))?;
    let names: HashSet<&AgentId> = owned().map(|(agent, _)| &agent.id).collect();
    let is_free = |name: &AgentId| !refused.contains(name) && !names.contains(name);
    let new = refused.iter().filter(|name| !names.contains(name));
    let is_in_order = new.count() < REFUSED_IN_ORDER;
    let in_order = IN_ORDER.filter(|_| is_in_order);
    let (least, count) = (AT_RANDOM.start(), AT_RANDOM.count() as u128);
    let at_random = (0..count).map(|next| least + ((lot + next) % count) as u32);
    let numbered = in_order
        .chain(at_random)
        .map(|number| base.suffixed(number));
    let name = (slot == 1 && !is_taken)
        .then(|| base.clone())
        .into_iter()
        .chain(numbered)
        .find(is_free)?;
    Some((
        name,
        Owner {
            base: base.clone(),
            host: host.clone(),
            slot,
        },
    ))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use uuid::Uuid;

    use super::*;
    use crate::store::Quota;

    fn now() -> Timestamp {
        Timestamp::from_millis(1_800_000_000_000)
    }

    fn id(name: &str) -> AgentId {
        name.parse().expect("an id")
    }

    fn owner(base: &str, host: &str, slot: u32) -> Owner {
        Owner {
            base: id(base),
            host: host.into(),
            slot,
        }
    }

    /// Returns an agent whose last session was that process; slot 0 means without an owner.
    fn agent(name: &str, base: &str, host: &str, slot: u32, process: u128) -> Namesake {
        Namesake {
            id: id(name),
            owner: (slot > 0).then(|| owner(base, host, slot)),
            host: Some(host.into()),
            instance: Uuid::from_u128(process),
            held_until: Timestamp::from_millis(0),
        }
    }

    fn wish(name: &str, host: &str, process: u128) -> Claim {
        Claim {
            name: id(name),
            owner: owner(name, host, 1),
            instance: Uuid::from_u128(process),
            session_id: None,
            reach: Vec::new(),
            context: 0,
            state: None,
            fleeting: false,
            one_shot: false,
            reserved: true,
            succeeds: Vec::new(),
            lease: Duration::ZERO,
            quota: Quota::default(),
            key: None,
            kind: "session",
        }
    }

    #[test]
    fn each_host_keeps_its_own_names() {
        let known = [
            agent("web", "web", "laptop", 1, 1),
            agent("web-2", "web", "nas", 1, 2),
            agent("web-4", "web", "laptop", 2, 4),
        ];
        let check = |wish: Claim, refused: &[&str], name: &str, owner: Owner| {
            let refused = refused.iter().map(|name| id(name)).collect();
            let found = next_name(&wish, &known, &refused, false, now(), 0);
            assert_eq!(found, Some((id(name), owner)), "{refused:?}");
        };
        let (laptop, nas) = (wish("web", "laptop", 9), wish("web", "nas", 9));
        let own = |host: &str, slot: u32| owner("web", host, slot);
        check(laptop.clone(), &[], "web", own("laptop", 1));
        check(laptop.clone(), &["web"], "web-4", own("laptop", 2));
        check(laptop.clone(), &["web", "web-4"], "web-3", own("laptop", 3));
        check(
            laptop,
            &["web", "web-4", "web-3"],
            "web-5",
            own("laptop", 3),
        );
        check(nas.clone(), &[], "web-2", own("nas", 1));
        check(nas, &["web-2"], "web-3", own("nas", 2));
        check(wish("web", "box", 9), &[], "web-3", own("box", 1));
        // The same process, under any name.
        check(wish("web", "laptop", 4), &[], "web-4", own("laptop", 2));
        check(wish("web-2", "nas", 2), &[], "web-2", own("nas", 1));
        // A folder whose name looks like a numbered name of another.
        let numbered = owner("web-2", "nas", 1);
        check(wish("web-2", "nas", 9), &[], "web-2-2", numbered);
    }

    #[test]
    fn a_session_tries_few_of_the_agents_that_others_hold() {
        let held = |agent: Namesake| Namesake {
            held_until: now() + 2 * CLOCK_SKEW,
            ..agent
        };
        let known = [
            held(agent("web", "web", "nas", 1, 1)),
            held(agent("web-2", "web", "nas", 2, 2)),
            held(agent("web-3", "web", "nas", 3, 3)),
            agent("web-4", "web", "nas", 4, 4),
        ];
        let check = |wish: Claim, refused: &[&str], expected: (&str, u32)| {
            let refused = refused.iter().map(|name| id(name)).collect();
            let chosen = next_name(&wish, &known, &refused, false, now(), 0);
            assert_eq!(
                chosen,
                Some((id(expected.0), owner("web", "nas", expected.1))),
                "{refused:?}"
            );
        };
        check(wish("web", "nas", 9), &[], ("web-4", 4));
        check(wish("web", "nas", 9), &["web-4"], ("web", 1));
        check(wish("web", "nas", 9), &["web-4", "web"], ("web-5", 5));
        check(wish("web", "nas", 2), &[], ("web-2", 2));
        check(
            Claim {
                succeeds: vec![Uuid::from_u128(3)],
                ..wish("web", "nas", 9)
            },
            &[],
            ("web-3", 3),
        );
    }

    #[test]
    fn a_host_that_takes_all_numbers_in_order_leaves_those_at_random() {
        let taken: Vec<_> = (1..=1_000)
            .map(|number| agent(&format!("web-{number}"), "web", "evil", number, 1))
            .collect();
        let check = |known: &[Namesake], refused: &HashSet<AgentId>, expected: &str| {
            let found = next_name(&wish("web", "nas", 9), known, refused, true, now(), 41);
            assert_eq!(found, Some((id(expected), owner("web", "nas", 1))));
        };
        check(&taken[..999], &HashSet::new(), "web-1000");
        check(&taken, &HashSet::new(), "web-1042");
        // Names that are only reserved are not listed: each costs a try.
        let refused = |count| taken[1..].iter().take(count).map(|agent| agent.id.clone());
        check(&[], &refused(19).collect(), "web-21");
        check(&[], &refused(20).collect(), "web-1042");
    }

    #[test]
    fn the_bare_name_is_for_the_first_session_of_a_host() {
        let none = HashSet::new();
        let first = next_name(&wish("web", "nas", 9), &[], &none, false, now(), 0);
        assert_eq!(first, Some((id("web"), owner("web", "nas", 1))));
        let second = next_name(
            &wish("web", "nas", 9),
            &[agent("web-2", "web", "nas", 1, 1)],
            &[id("web-2")].into(),
            false,
            now(),
            0,
        );
        assert_eq!(second, Some((id("web-3"), owner("web", "nas", 2))));
        // The store decides whether an agent without an owner may be taken.
        let introduced = next_name(
            &wish("web", "nas", 9),
            &[agent("web", "web", "nas", 0, 0)],
            &none,
            false,
            now(),
            0,
        );
        assert_eq!(introduced, Some((id("web"), owner("web", "nas", 1))));
        let reserved = next_name(&wish("human", "nas", 9), &[], &none, true, now(), 0);
        assert_eq!(reserved, Some((id("human-2"), owner("human", "nas", 1))));
    }
}
