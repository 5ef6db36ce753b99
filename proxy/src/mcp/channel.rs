//! Notifications of the session's channel, which its user has to enable. A client without channels ignores them.

use rmcp::RoleServer;
use rmcp::model::{CustomNotification, ServerNotification};
use rmcp::service::Peer;
use serde_json::json;
use tokio::sync::mpsc::Receiver;

/// Sends each text as a channel notification, until the sender is dropped.
pub(super) async fn notify(mut texts: Receiver<String>, peer: &Peer<RoleServer>) {
    while let Some(text) = texts.recv().await {
        let notification = CustomNotification::new(
            "notifications/claude/channel",
            Some(json!({"content": text})),
        );
        if let Err(error) = peer
            .send_notification(ServerNotification::CustomNotification(notification))
            .await
        {
            tracing::debug!("the channel was not notified: {error}");
        }
    }
}
