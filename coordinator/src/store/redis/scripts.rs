//! Every script, once: what runs on the server in one atomic step.

use std::sync::LazyLock;

use redis::{Cmd, Script, ToRedisArgs};

use super::keys;
use c3po_shared::ids::AgentId;

/// What a script begins with that runs also when Redis is full: it reads, settles or notes a little. Without the word
/// Redis would refuse it as a whole, and a full store could neither be read nor emptied.
macro_rules! small {
    () => {
        "#!lua flags=allow-oom\n"
    };
}

/// What a script begins with that puts a message into the store. When Redis is full it is refused before it begins, so
/// that it never ends half-way.
macro_rules! large {
    () => {
        "#!lua\n"
    };
}

/// Names scripts about one agent; each begins with what all of them share, and with more of it where files are named first.
/// Each function that is shared costs every run of a script that has it about 0.1 us, called or not.
macro_rules! about_an_agent {
    ($size:ident $($shared:literal)*: $($name:ident = $file:literal),+ $(,)?) => {
        about_an_agent!(@ ($size $($shared)*) $($name = $file)+);
    };
    (@ $shared:tt $($name:ident = $file:literal)+) => {
        $(about_an_agent!(@one $shared $name = $file);)+
    };
    (@one ($size:ident $($shared:literal)*) $name:ident = $file:literal) => {
        pub(super) static $name: LazyLock<Script> = LazyLock::new(|| Script::new(concat!(
            $size!(), include_str!("scripts/slot.lua"), $(include_str!($shared),)* include_str!($file))));
    };
}

/// Names scripts about a list that is no agent's; each begins with the file that is named first, if one is.
macro_rules! about_a_list {
    ($size:ident: $($name:ident = $file:literal),+ $(,)?) => {
        $(pub(super) static $name: LazyLock<Script> =
            LazyLock::new(|| Script::new(concat!($size!(), include_str!($file))));)+
    };
    ($size:ident $shared:literal: $($name:ident = $file:literal),+ $(,)?) => {
        $(pub(super) static $name: LazyLock<Script> =
            LazyLock::new(|| Script::new(concat!($size!(), include_str!($shared), include_str!($file))));)+
    };
}

about_an_agent! {
    large:
    SEND = "scripts/send.lua",
    ANSWER_CLAIM = "scripts/answer_claim.lua",
}

about_an_agent! {
    small "scripts/tenure.lua":
    CLAIM = "scripts/claim.lua",
    RENEW = "scripts/renew.lua",
    RELEASE = "scripts/release.lua",
    UNREGISTER = "scripts/unregister.lua",
    INTRODUCE = "scripts/introduce.lua",
    AMEND = "scripts/amend.lua",
    ACKNOWLEDGE = "scripts/acknowledge.lua",
    ADVANCE = "scripts/advance.lua",
}

about_an_agent! {
    small:
    PAGE = "scripts/page.lua",
    PENDING = "scripts/pending.lua",
    MESSAGE = "scripts/message.lua",
    THREAD = "scripts/thread.lua",
    EXPIRE = "scripts/expire.lua",
    ANSWER_FINISH = "scripts/answer_finish.lua",
    ANSWER_RELEASE = "scripts/answer_release.lua",
    ANSWER_RESUME = "scripts/answer_resume.lua",
}

about_a_list! {
    small:
    AGENTS_NOTE = "scripts/agents_note.lua",
    OUTBOXES_NOTE = "scripts/outboxes_note.lua",
    OUTBOXES_FORGET = "scripts/outboxes_forget.lua",
    KEY_PUT = "scripts/key_put.lua",
    KEY_FORGET = "scripts/key_forget.lua",
}

about_a_list! {
    small "scripts/invite.lua":
    INVITES = "scripts/invites.lua",
    INVITE_PUT = "scripts/invite_put.lua",
    INVITE_LOOK = "scripts/invite_look.lua",
    INVITE_FORGET = "scripts/invite_forget.lua",
    INVITE_REDEEM = "scripts/invite_redeem.lua",
}

about_a_list! {
    large:
    AUDIT = "scripts/audit.lua",
}

/// The call of a script: a command whose first key names the node. No script has the keys of two agents.
#[derive(Debug)]
pub(super) struct Call {
    script: &'static Script,
    key: String,
    command: Cmd,
}

impl Call {
    /// Begins the call of a script about that key alone.
    pub(super) fn new(script: &'static Script, key: &str) -> Self {
        Self::about(script, key.to_owned(), &[])
    }

    /// Begins the call of a script about that key and others of its slot.
    pub(super) fn about(script: &'static Script, key: String, further: &[String]) -> Self {
        let mut command = redis::cmd("EVALSHA");
        command.arg(script.get_hash()).arg(1 + further.len()).arg(&key).arg(further);
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
///
/// The second key is never there, and no script reads it. While a cluster moves the slot of an agent to another server
/// some of its keys are here and some there, and a script that came upon one that is elsewhere would end half-way.
/// A call that names several keys of which one is missing is what Redis refuses as a whole, until the slot has moved.
pub(super) fn about(script: &'static Script, agent: &AgentId) -> Call {
    Call::about(script, keys::agent(agent), &[keys::nothing(agent)])
}
