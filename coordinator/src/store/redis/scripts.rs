//! Every script, once: what runs on the server in one atomic step.

use std::sync::LazyLock;

use redis::{Script, ScriptInvocation};

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

/// Begins the call of a script about that agent. The key names the node; no script has the keys of two agents.
pub(super) fn about(script: &'static Script, agent: &AgentId) -> ScriptInvocation<'static> {
    script.key(keys::agent(agent))
}
