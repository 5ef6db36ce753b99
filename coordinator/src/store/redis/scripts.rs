//! Every script, once: what runs on the server in one atomic step.

use std::sync::LazyLock;

use redis::{Cmd, Script, ToRedisArgs};

use super::keys;
use c3po_shared::ids::AgentId;

/// Names scripts about one agent; each begins with what all of them share.
macro_rules! about_an_agent {
    ($($name:ident = $file:literal),+ $(,)?) => {
        $(pub(super) static $name: LazyLock<Script> =
            LazyLock::new(|| Script::new(concat!(include_str!("scripts/slot.lua"), include_str!($file))));)+
    };
}

about_an_agent! {
    CLAIM = "scripts/claim.lua",
    RENEW = "scripts/renew.lua",
    RELEASE = "scripts/release.lua",
    UNREGISTER = "scripts/unregister.lua",
    INTRODUCE = "scripts/introduce.lua",
    AMEND = "scripts/amend.lua",
    SEND = "scripts/send.lua",
    PAGE = "scripts/page.lua",
    PENDING = "scripts/pending.lua",
    ACKNOWLEDGE = "scripts/acknowledge.lua",
    ADVANCE = "scripts/advance.lua",
    MESSAGE = "scripts/message.lua",
    THREAD = "scripts/thread.lua",
    EXPIRE = "scripts/expire.lua",
    ANSWER_CLAIM = "scripts/answer_claim.lua",
    ANSWER_FINISH = "scripts/answer_finish.lua",
    ANSWER_RELEASE = "scripts/answer_release.lua",
    ANSWER_RESUME = "scripts/answer_resume.lua",
}

/// Notes that an agent may have an unfinished answer.
pub(super) static OUTBOXES_NOTE: LazyLock<Script> =
    LazyLock::new(|| Script::new(include_str!("scripts/outboxes_note.lua")));
/// Forgets that note.
pub(super) static OUTBOXES_FORGET: LazyLock<Script> =
    LazyLock::new(|| Script::new(include_str!("scripts/outboxes_forget.lua")));

/// The call of a script: a command with one key, which names the node. No script has the keys of two agents.
#[derive(Debug)]
pub(super) struct Call {
    script: &'static Script,
    key: String,
    command: Cmd,
}

impl Call {
    /// Begins the call of a script about that key.
    pub(super) fn new(script: &'static Script, key: impl Into<String>) -> Self {
        let (key, mut command) = (key.into(), redis::cmd("EVALSHA"));
        command.arg(script.get_hash()).arg(1).arg(&key);
        Self { script, key, command }
    }

    /// Adds an argument.
    pub(super) fn arg(&mut self, argument: impl ToRedisArgs) -> &mut Self {
        self.command.arg(argument);
        self
    }

    /// Returns the script, for a server that does not have it.
    pub(super) fn script(&self) -> &'static Script {
        self.script
    }

    /// Returns the key.
    pub(super) fn key(&self) -> &[u8] {
        self.key.as_bytes()
    }

    /// Returns the command.
    pub(super) fn command(&self) -> &Cmd {
        &self.command
    }
}

/// Begins the call of a script about that agent.
pub(super) fn about(script: &'static Script, agent: &AgentId) -> Call {
    Call::new(script, keys::agent(agent))
}
