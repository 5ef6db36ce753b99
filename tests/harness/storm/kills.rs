//! The schedule of the kills: independent loops for coordinators, the store, proxies and links.

use std::time::Duration;

use tokio::time::sleep;

use super::world::World;
use crate::breaker::{Breaker, Way};
use crate::dice::Dice;

/// The pause between two kills of a coordinator, and how long it stays down, in milliseconds.
const COORDINATOR: [(u64, u64); 2] = [(700, 3_000), (0, 1_500)];
/// How long all of them occasionally stay down, in milliseconds.
const LONG: (u64, u64) = (2_500, 5_000);
/// The pause between two kills of the store, and how long it stays down, in milliseconds.
const STORE: [(u64, u64); 2] = [(2_000, 6_000), (0, 1_200)];
/// The pause between two kills of a proxy, in milliseconds, for ten agents.
const PROXY: (u64, u64) = (200, 2_000);

/// The pause between two breaks of a link, in milliseconds.
const LINK: (u64, u64) = (200, 1_500);
/// How long a link is held or slow, in milliseconds.
const SLOW: (u64, u64) = (50, 800);

/// Kills until enough messages are sent, and leaves everything running. Returns the number of kills of coordinators, the
/// store and proxies, and of broken links.
pub(super) async fn until_all_is_sent(world: &World, progress: &impl Fn(String)) -> [usize; 4] {
    let (coordinators, store, proxies, links) = tokio::join!(
        coordinators(world),
        store(world),
        proxies(world),
        links(world)
    );
    let kills = [coordinators, store, proxies, links];
    progress(format!(
        "calm after {kills:?} kills of coordinators, the store and proxies, and breaks of links"
    ));
    kills
}

/// Waits. Returns false when the storm is over.
async fn goes_on(world: &World, pause: Duration) -> bool {
    world.calm.run_until_cancelled(sleep(pause)).await.is_some()
}

async fn coordinators(world: &World) -> usize {
    let mut dice = Dice::of(world.storm.seed, 1);
    let mut kills = 0;
    while goes_on(world, dice.millis(COORDINATOR[0].0, COORDINATOR[0].1)).await {
        // Sometimes all of them are down at once.
        let first = dice.below(world.coordinators.len());
        let all = dice.percent(25);
        let victims = world
            .coordinators
            .iter()
            .enumerate()
            .filter(|(number, _)| all || *number == first);
        let mut killed = Vec::new();
        for (_, victim) in victims {
            let mut victim = victim.lock().await;
            // It is running: only this loop kills it, and restarts it.
            let _ = victim.kill().await;
            kills += 1;
            killed.push(victim);
        }
        // Sometimes long enough that sends are queued on their hosts.
        let away = if all && dice.percent(40) {
            LONG
        } else {
            COORDINATOR[1]
        };
        sleep(dice.millis(away.0, away.1)).await;
        for mut victim in killed {
            // It waits for its store. If that takes too long, it is restarted as a service manager would do.
            while victim.restart().await.is_err() {}
        }
    }
    kills
}

async fn store(world: &World) -> usize {
    if world.redis.is_empty() {
        return 0;
    }
    let mut dice = Dice::of(world.storm.seed, 2);
    let mut kills = 0;
    while goes_on(world, dice.millis(STORE[0].0, STORE[0].1)).await {
        let mut redis = world.redis[dice.below(world.redis.len())].lock().await;
        world.count_scripts(&redis).await;
        // It is running, and the system does not refuse to kill it.
        let _ = redis.kill();
        kills += 1;
        sleep(dice.millis(STORE[1].0, STORE[1].1)).await;
        while redis.restart().await.is_err() {}
    }
    kills
}

async fn proxies(world: &World) -> usize {
    let mut dice = Dice::of(world.storm.seed, 3);
    let mut kills = 0;
    let pause = |dice: &mut Dice| {
        dice.millis(PROXY.0, PROXY.1) * 10 / u32::try_from(world.storm.agents).unwrap_or(10)
    };
    while goes_on(world, pause(&mut dice)).await {
        if let Some(session) = world.session_of(dice.below(world.storm.agents))
            && !session.is_dead()
        {
            session.kill().await;
            kills += 1;
        }
    }
    kills
}

async fn links(world: &World) -> usize {
    let mut dice = Dice::of(world.storm.seed, 5);
    let mut breaks = 0;
    while goes_on(world, dice.millis(LINK.0, LINK.1)).await {
        let link = &world.links[dice.below(world.links.len())];
        let way = if dice.percent(50) {
            Way::There
        } else {
            Way::Back
        };
        breaks += 1;
        match dice.below(10) {
            0..6 => link.cut_after(way, dice.throw() % 2_000),
            6..8 => link.drop_all(),
            rest => {
                if rest == 8 {
                    link.hold();
                } else {
                    link.throttle(20_000);
                }
                sleep(dice.millis(SLOW.0, SLOW.1)).await;
                link.heal();
            }
        }
    }
    world.links.iter().for_each(Breaker::mend);
    breaks
}
