//! Notifications of the session's channel, which its user has to turn on. A client that does not take them is silent.

use rmcp::RoleServer;
use rmcp::model::{CustomNotification, ServerNotification};
use rmcp::service::Peer;
use serde_json::json;
use tokio::sync::mpsc::Receiver;

/// Notifies the channel of each text, until there are no more.
pub(super) async fn notify(mut texts: Receiver<String>, peer: &Peer<RoleServer>) {
    while let Some(text) = texts.recv().await {
        let notification = CustomNotification::new("notifications/claude/channel", Some(json!({"content": text})));
        if let Err(error) = peer.send_notification(ServerNotification::CustomNotification(notification)).await {
            tracing::debug!("the channel was not notified: {error}");
        }
    }
}
