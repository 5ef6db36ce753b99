//! The infrastructure of an inquiry: two coordinators on one Redis that push to one ntfy server, agents and people.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::sync::Mutex;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::{Inquiry, call};
use crate::coordinator::Coordinator;
use crate::eventually::eventually;
use crate::mcp::McpClient;
use crate::ntfy::{BUTTONS, COORDINATOR, Ntfy, QUESTIONS, REPLIES};
use crate::person::Person;
use crate::proxy::session;
use crate::redis::Redis;

/// The people who answer over REST. The phone belongs to ann.
pub(super) const PEOPLE: [&str; 2] = ["bob", "carl"];
/// How long a question may take to be accepted while everything is killed.
const ACCEPTED: Duration = Duration::from_secs(180);
/// The delay after a session with another name, so that the next one can ask for the agent's own name.
const ASK_AGAIN: Duration = Duration::from_secs(1);

/// The state shared by the agents, the people and the killers.
#[derive(Debug)]
pub(super) struct World {
    pub(super) inquiry: Inquiry,
    pub(super) coordinators: Vec<Mutex<Coordinator>>,
    pub(super) redis: Mutex<Redis>,
    pub(super) ntfy: Mutex<Ntfy>,
    /// Each person at each coordinator.
    pub(super) people: Vec<[Person; 2]>,
    /// The present proxy of each agent.
    pub(super) seats: Vec<Mutex<Option<Arc<McpClient>>>>,
    /// Cancelled when all questions are accepted: the kills and the random answers end.
    pub(super) calm: CancellationToken,
    urls: String,
    work: TempDir,
}

impl World {
    pub(super) async fn start(inquiry: Inquiry, ntfy: Ntfy) -> Result<Self> {
        let work = tempfile::Builder::new().prefix("c3po-inquiry-").tempdir()?;
        let redis = Redis::start_with(&["--appendfsync", "always"]).await?;
        let mut coordinators = Vec::new();
        for name in ["0", "1"] {
            let folder = work.path().join(format!("coordinator{name}"));
            fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
            pushes(&folder, &ntfy.url())?;
            let mut coordinator = Coordinator::absent(&folder, &redis.url())?
                .unlimited()
                .quietly()
                .with("C3PO_DATA_DIR", &folder);
            coordinator.restart().await?;
            coordinators.push(coordinator);
        }
        let mut people = Vec::new();
        for name in PEOPLE {
            let folder = work.path().join("coordinator0");
            let here = Person::log_in_at(&folder, &coordinators[0], name, "person").await?;
            let there = here.at(coordinators[1].address());
            people.push([here, there]);
        }
        let urls = [0, 1].map(|number: usize| coordinators[number].url());
        Ok(Self {
            seats: (0..inquiry.agents).map(|_| Mutex::default()).collect(),
            inquiry,
            coordinators: coordinators.into_iter().map(Mutex::new).collect(),
            redis: Mutex::new(redis),
            ntfy: Mutex::new(ntfy),
            people,
            calm: CancellationToken::new(),
            urls: urls.join(","),
            work,
        })
    }

    /// Waits. Returns false when the inquiry is calm.
    pub(super) async fn goes_on(&self, pause: Duration) -> bool {
        self.calm.run_until_cancelled(sleep(pause)).await.is_some()
    }

    /// Returns the living proxy of an agent, or starts one.
    ///
    /// Errors: it has no coordinator, or another name, because the coordinators do not know yet that an earlier session is dead.
    pub(super) async fn client(&self, agent: usize) -> Result<Arc<McpClient>> {
        let mut seat = self.seats[agent].lock().await;
        let name = format!("agent{agent}");
        let client = match seat.as_ref().filter(|client| !client.has_ended()) {
            Some(client) => Arc::clone(client),
            None => {
                let client = session(self.work.path(), &name, &self.urls).await?;
                Arc::clone(seat.insert(Arc::new(client.quietly())))
            }
        };
        drop(seat);
        let pong = call(&client, "ping", json!({})).await?;
        if pong["agent_id"] != name.as_str() {
            client.signal("KILL").await?;
            sleep(ASK_AGAIN).await;
            bail!("{pong} is not {name}");
        }
        Ok(client)
    }

    /// Asks people a question until it is accepted. Returns its id.
    pub(super) async fn ask(&self, agent: usize, arguments: Value) -> Result<String> {
        eventually("a question is accepted", ACCEPTED, async || {
            let client = self.client(agent).await.ok()?;
            let sent = call(&client, "ask_user", arguments.clone()).await.ok()?;
            sent["id"].as_str().map(str::to_owned)
        })
        .await
    }
}

/// Writes the settings of pushes for one person into the data folder of a coordinator.
fn pushes(folder: &Path, url: &str) -> Result<()> {
    fs::write(folder.join("coordinator.token"), COORDINATOR)?;
    fs::write(folder.join("buttons.token"), BUTTONS)?;
    let text = format!(
        "[[person]]\nname = \"ann\"\nserver = \"{url}\"\ntopic = \"{QUESTIONS}\"\ntoken_file = \"coordinator.token\"\n\
         reply_topic = \"{REPLIES}\"\nreply_token_file = \"buttons.token\"\ngrace = \"0s\"\n"
    );
    Ok(fs::write(folder.join("notify.toml"), text)?)
}
