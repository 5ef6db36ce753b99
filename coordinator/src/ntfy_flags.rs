//! The settings of pushes to one person, by environment or flags. `notify.toml` is for several people and for more settings.

use clap::Args;
use clap::builder::BoolishValueParser;

use crate::values::Secret;

/// The settings of one person's pushes. Without a URL and a topic there are none.
#[derive(Debug, Clone, Default, Args)]
pub struct NtfyFlags {
    #[allow(rustdoc::bare_urls, reason = "it is a text of --help")]
    /// The ntfy server that pushes questions to your phone, such as https://ntfy.example.org; notify.toml in the data folder has
    /// more settings
    #[arg(long, env = "C3PO_NTFY_URL")]
    pub ntfy_url: Option<String>,
    /// The topic that your phone subscribes to; it must need a token
    #[arg(long, env = "C3PO_NTFY_TOPIC")]
    pub ntfy_topic: Option<String>,
    /// The access token of the coordinator for both topics
    #[arg(long, env = "C3PO_NTFY_TOKEN", hide_env_values = true)]
    pub ntfy_token: Option<Secret>,
    /// The topic to which the phone sends answers
    #[arg(long, env = "C3PO_NTFY_REPLY_TOPIC")]
    pub ntfy_reply_topic: Option<String>,
    /// A token that may only write to the reply topic; it is part of every push with buttons
    #[arg(long, env = "C3PO_NTFY_REPLY_TOKEN", hide_env_values = true)]
    pub ntfy_reply_token: Option<Secret>,
    /// Push to a topic that anyone can read, without buttons and with titles at most
    #[arg(long, env = "C3PO_NTFY_ALLOW_PUBLIC", value_parser = BoolishValueParser::new())]
    pub ntfy_allow_public: bool,
    /// The topic, as an earlier program named it
    #[arg(long, env = "JEAN_CLAUDE_NTFY_TOPIC", hide = true)]
    pub jean_claude_ntfy_topic: Option<String>,
    /// The reply topic, as an earlier program named it
    #[arg(long, env = "JEAN_CLAUDE_NTFY_RESPONSE_TOPIC", hide = true)]
    pub jean_claude_ntfy_response_topic: Option<String>,
}
