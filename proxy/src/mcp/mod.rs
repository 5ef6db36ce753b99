//! The MCP server on stdio: lists the catalogue and passes calls to the link.

mod answer;
mod asking;
mod channel;
mod dialog;
mod lines;
mod presenting;
mod stdio;
mod transport;

use std::borrow::Cow;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use c3po_shared::catalogue::{
    Call, INSTRUCTIONS, Listing, Received, TimedOut, Tool, WaitForMessage, listing, presented_via,
};
use c3po_shared::ids::MessageId;
use c3po_shared::refusal::{ErrorCode, Refusal};
use c3po_shared::wire::{Arriving, Client};
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, Implementation, InitializeRequestParams,
    InitializeResult, ListToolsResult, MetaObject, PaginatedRequestParams,
    ProgressNotificationParam, ProgressToken, ProtocolVersion, ServerCapabilities, ServerConfig,
    Tool as ListedTool, ToolAnnotations,
};
use rmcp::service::{NotificationContext, Peer, RequestContext};
use rmcp::{ErrorData, RoleServer, ServerHandler, ServiceExt};
use tokio::time::{Instant, MissedTickBehavior};
use tokio_util::sync::CancellationToken;

use crate::deliver::{Input, LastHop, Presented};
use crate::link::Link;
use presenting::Presenting;

/// How often a wait reports progress.
const PROGRESS_EVERY: Duration = Duration::from_secs(25);

/// The name under which Claude Code sends the id of a tool use.
const TOOL_USE: &str = "claudecode/toolUseId";
/// The capability of a server that notifies a channel.
const CHANNEL: &str = "claude/channel";

/// The newest protocol with an `initialize` handshake. Newer clients fall back to it. Without the handshake no message
/// can be pushed into a session.
const NEWEST: ProtocolVersion = ProtocolVersion::V_2025_11_25;

/// Serves MCP on standard input and output until the input ends or `stop` is cancelled.
///
/// Cancels `stop` at the end of input.
pub async fn serve(
    link: Link,
    hop: LastHop,
    settings: Settings,
    stop: CancellationToken,
) -> anyhow::Result<()> {
    let (input, output) = stdio::open()?;
    let presenting = Presenting::default();
    let transport =
        transport::Stdio::new(input, output, presenting.clone(), hop.clone(), stop.clone());
    let server = Server {
        link,
        hop,
        presenting,
        settings,
        stop: stop.clone(),
    };
    match server.serve_with_ct(transport, stop.clone()).await {
        Ok(running) => {
            running.waiting().await?;
        }
        // Before the handshake there is no client to report to.
        Err(error) => tracing::debug!("the client left before the handshake: {error}"),
    }
    stop.cancel();
    Ok(())
}

/// The settings of the server.
#[derive(Debug, Clone, Copy)]
pub struct Settings {
    /// The default timeout of a wait, in seconds.
    pub timeout: u64,
    /// Whether messages may be pushed as channel notifications.
    pub channel: bool,
    /// Whether a person may see a dialog of the client.
    pub dialogs: bool,
}

/// The MCP side of the proxy.
struct Server {
    link: Link,
    hop: LastHop,
    presenting: Presenting,
    settings: Settings,
    stop: CancellationToken,
}

impl ServerHandler for Server {
    fn get_info(&self) -> ServerConfig {
        let mut capabilities = ServerCapabilities::builder().enable_tools().build();
        if self.settings.channel {
            capabilities.experimental = Some([(CHANNEL.to_owned(), serde_json::Map::new())].into());
        }
        InitializeResult::new(capabilities)
            .with_protocol_version(NEWEST)
            .with_server_info(Implementation::new("c3po", env!("CARGO_PKG_VERSION")))
            .with_instructions(INSTRUCTIONS)
    }

    fn supported_protocol_versions(&self) -> Cow<'static, [ProtocolVersion]> {
        Cow::Borrowed(ProtocolVersion::known_up_to(&NEWEST))
    }

    async fn initialize(
        &self,
        request: InitializeRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<InitializeResult, ErrorData> {
        let client = &request.client_info;
        self.link.client_is(Client {
            name: client.name.clone(),
            version: client.version.clone(),
        });
        context.peer.set_peer_info(request.clone());
        self.negotiate_initialize(&request)
    }

    async fn on_initialized(&self, context: NotificationContext<RoleServer>) {
        self.link.initialized();
        if self.settings.channel
            && let Some(texts) = self.hop.notifications()
        {
            let notifying = channel::notify(texts, &context.peer);
            // Ends with the session.
            self.stop.run_until_cancelled(notifying).await;
        }
    }

    async fn list_tools(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        Ok(ListToolsResult::with_all_items(listed().to_vec()))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let mut call = match Call::of_object(&request.name, request.arguments.unwrap_or_default()) {
            Ok(call) => call,
            Err(refusal) if refusal.code == ErrorCode::NotSupported => {
                return Err(ErrorData::invalid_params(refusal.error, None));
            }
            Err(refusal) => return Ok(answer::refused(&refusal).into()),
        };
        if let Call::WaitForMessage(wait) = &mut call {
            wait.timeout.get_or_insert(self.settings.timeout);
        }
        self.hop.on(Input::Called(call.settles()));
        let outcome = tokio::select! {
            outcome = self.pass_on(&call, &context) => outcome,
            // A cancelled question has to be withdrawn first.
            () = context.ct.cancelled(), if call.tool() != Tool::AskUser => Err(Refusal::new(ErrorCode::Interrupted, "the call was cancelled")),
            () = self.stop.cancelled() => Err(Refusal::new(ErrorCode::Interrupted, "the session is ending")),
        };
        if outcome.is_ok() {
            self.note(&call);
        }
        Ok(match outcome {
            Ok(reply) => answer::result(self.presented(&call, reply, &context)),
            Err(refusal) => answer::refused(&refusal),
        }
        .into())
    }
}

impl Server {
    async fn pass_on(
        &self,
        call: &Call,
        context: &RequestContext<RoleServer>,
    ) -> Result<Received, Refusal> {
        let began = Instant::now();
        match (call, context.meta.get_progress_token()) {
            (Call::Ping(_), _) => {
                let mut reply = self.link.call(call.clone()).await?;
                add_link(
                    &mut reply,
                    self.link.status().borrow().state.as_str(),
                    began.elapsed(),
                );
                Ok(reply)
            }
            (Call::AskUser(ask), _) => self.ask(ask, context).await,
            (Call::WaitForMessage(wait), Some(token)) => tokio::select! {
                reply = self.wait(wait) => reply,
                never = say_progress(&context.peer, token, waits) => match never {},
            },
            (Call::WaitForMessage(wait), None) => self.wait(wait).await,
            _ => self.link.call(call.clone()).await,
        }
    }

    /// Records which messages a result is about to show completely. Marks those that are repeated: a dead session of this
    /// host, this session, a subagent or the result of another call has shown them, or is about to.
    fn presented(
        &self,
        call: &Call,
        mut reply: Received,
        context: &RequestContext<RoleServer>,
    ) -> Received {
        let tool = call.tool();
        let ids = reply.presented(tool);
        let mut shown = reply.shown(tool);
        let read_on = reads_on(call).then(|| shown.first().cloned()).flatten();
        let mut before = self.hop.repeated(&shown, read_on.as_ref());
        let mut parts = shown.clone();
        parts.retain(|id| !ids.contains(id));
        self.hop.on(Input::InParts {
            ids: parts,
            read_on,
            tool_use: tool_use(context),
        });
        // The result of a cancelled request is never written.
        if !ids.is_empty()
            && !context.ct.is_cancelled()
            && let Some(via) = presented_via(tool)
        {
            // Its text may not have come to this host yet.
            let waited = if tool == Tool::WaitForMessage {
                reply.waited()
            } else {
                None
            };
            let waited =
                waited.map(|message| Box::new(Arriving::at(message.clone(), message.timestamp)));
            let presented = Presented {
                ids: ids.clone(),
                via,
                tool_use: tool_use(context),
                waited,
            };
            before.extend(self.presenting.add(context.id.clone(), presented));
        }
        // A thread also has the messages of others, which come to no session of this agent.
        shown.retain(|id| self.is_own(id));
        before.extend(self.link.about_to_show(&shown));
        // It shows messages again on request.
        if matches!(tool, Tool::WaitForMessage | Tool::GetMessages) {
            reply.mark_repeated(&before);
        }
        reply
    }

    /// Records the facts about the session itself in a successful call.
    fn note(&self, call: &Call) {
        match call {
            Call::SetStatus(said) => drop(self.hop.on(Input::Status(said.status))),
            Call::Reply(_) | Call::AckMessages(_) => {
                drop(self.hop.on(Input::Settled(call.settles())))
            }
            _ => {}
        }
    }

    /// Returns whether a message is for this session.
    fn is_own(&self, id: &MessageId) -> bool {
        self.link.status().borrow().agent == id.to()
    }

    /// Performs a wait. A message that goes into the session another way is skipped.
    async fn wait(&self, wait: &WaitForMessage) -> Result<Received, Refusal> {
        let seconds = wait.timeout.unwrap_or(self.settings.timeout);
        let until = Instant::now() + Duration::from_secs(seconds);
        let mut passed_over = false;
        loop {
            let left = until
                .saturating_duration_since(Instant::now())
                .as_millis()
                .div_ceil(1_000);
            let left = u64::try_from(left).unwrap_or(u64::MAX).max(1);
            let call = Call::WaitForMessage(WaitForMessage {
                timeout: Some(left),
                ..wait.clone()
            });
            let name = self.link.status().borrow().agent.clone();
            let mut reply = match self.link.call(call).await {
                // The session took another name meanwhile, and the former agent is gone.
                Err(refusal)
                    if refusal.code == ErrorCode::Conflict
                        && self.link.status().borrow().agent != name =>
                {
                    match &wait.message_id {
                        None if Instant::now() < until => continue,
                        None => return Ok(Received::of(&TimedOut::any(seconds, 0))),
                        Some(id) => return Ok(Received::of(&TimedOut::of(id.clone(), seconds))),
                    }
                }
                reply => reply?,
            };
            let next = reply.shown(Tool::WaitForMessage);
            // A message that came after the session took another name is for the next session of the former one.
            let is_own = next.first().is_none_or(|id| self.is_own(id));
            match next.first() {
                _ if wait.message_id.is_some() && is_own => return Ok(reply),
                Some(id) if is_own && self.hop.takes(id).await => return Ok(reply),
                // The last of several waits knows neither their total time nor the skipped messages.
                None if !passed_over => {
                    reply.set("waited_seconds", seconds);
                    reply.set("message", TimedOut::any(seconds, 0).message);
                    return Ok(reply);
                }
                Some(_) if Instant::now() < until => passed_over |= is_own,
                _ => {
                    let older = usize::from(passed_over || is_own);
                    return Ok(Received::of(&TimedOut::any(seconds, older)));
                }
            }
        }
    }
}

/// Returns whether a call reads on within a message.
fn reads_on(call: &Call) -> bool {
    let cursor = match call {
        Call::GetMessages(call) => call.cursor.as_deref(),
        Call::GetThread(call) => call.cursor.as_deref(),
        _ => None,
    };
    cursor.is_some_and(|cursor| cursor.contains('+'))
}

/// Returns the client's id of the tool use, if it sent one: its hooks report the same.
fn tool_use(context: &RequestContext<RoleServer>) -> Option<String> {
    context.meta.get(TOOL_USE)?.as_str().map(str::to_owned)
}

/// Returns what a client shows after so many seconds of a wait.
fn waits(seconds: u64) -> String {
    format!("waiting for {seconds} s")
}

/// Reports progress of a wait again and again, so that the client does not count it as dead.
async fn say_progress(
    peer: &Peer<RoleServer>,
    token: ProgressToken,
    words: fn(u64) -> String,
) -> std::convert::Infallible {
    let began = Instant::now();
    let mut every = tokio::time::interval(PROGRESS_EVERY);
    every.set_missed_tick_behavior(MissedTickBehavior::Delay);
    every.reset();
    loop {
        every.tick().await;
        let progress = ProgressNotificationParam::new(token.clone(), began.elapsed().as_secs_f64())
            .with_message(words(began.elapsed().as_secs()));
        if let Err(error) = peer.notify_progress(progress).await {
            tracing::debug!("could not report progress: {error}");
        }
    }
}

/// Adds the proxy's own facts to the reply of `ping`.
fn add_link(pong: &mut Received, link: &str, round_trip: Duration) {
    pong.set("link", link);
    pong.set(
        "round_trip_ms",
        (round_trip.as_secs_f64() * 1e6).round() / 1e3,
    );
}

/// Returns the catalogue as clients list it. Built once.
fn listed() -> &'static [ListedTool] {
    static LISTED: OnceLock<Vec<ListedTool>> = OnceLock::new();
    LISTED.get_or_init(|| listing().iter().map(as_listed).collect())
}

fn as_listed(listing: &Listing) -> ListedTool {
    let tool = listing.tool;
    let mut listed = ListedTool::new(
        tool.name(),
        tool.description(),
        Arc::new(listing.schema.clone()),
    );
    if tool.only_reads() {
        listed = listed.with_annotations(ToolAnnotations::new().read_only(true));
    }
    let meta = listing.meta();
    if !meta.is_empty() {
        listed = listed.with_meta(MetaObject(meta));
    }
    listed
}

#[cfg(test)]
mod tests {
    use super::*;
    use c3po_shared::catalogue::Pong;
    use serde_json::json;

    #[test]
    fn the_whole_list_stays_small() {
        let list = ListToolsResult::with_all_items(listed().to_vec());
        let bytes = serde_json::to_string(&list).unwrap().len();
        assert!(bytes < 9_000, "{bytes} bytes");
    }

    #[test]
    fn tools_are_listed_with_marks_for_reading_and_immediate_loading() {
        let tool = |name: &str| {
            let found = listed().iter().find(|tool| tool.name == name).unwrap();
            serde_json::to_value(found).unwrap()
        };
        assert_eq!(
            tool("get_messages")["annotations"],
            json!({"readOnlyHint": true})
        );
        let meta = json!({"anthropic/alwaysLoad": true, "anthropic/maxResultSizeChars": 48_000});
        assert_eq!(tool("get_messages")["_meta"], meta);
        assert_eq!(tool("ack_messages").get("annotations"), None);
        assert_eq!(tool("ack_messages").get("_meta"), None);
    }

    #[test]
    fn ping_reports_the_state_and_round_trip_of_the_link() {
        let pong = json!({"pong": true, "timestamp": "2026-01-15T10:30:00.000Z", "coordinator": "c3po", "agent_id": "a"});
        let mut reply = Received::of(&pong);
        add_link(&mut reply, "connected", Duration::from_micros(1_234));
        let pong: Pong = reply.read().unwrap();
        assert_eq!(
            (pong.link.as_deref(), pong.round_trip_ms),
            (Some("connected"), Some(1.234))
        );
    }
}
