//! The way between client and server: rmcp's, with what it lacks.
//!
//! - The end of input stops the whole process at once; rmcp alone would wait for calls that are blocked.
//! - What comes before `initialize` and is no request is passed over; rmcp alone would give up.
//! - A result that puts messages before the model is followed by their receipt, once it is really written.

use std::sync::OnceLock;

use rmcp::RoleServer;
use rmcp::model::{ClientJsonRpcMessage, ClientRequest, JsonRpcMessage, ServerJsonRpcMessage, ServerResult};
use rmcp::transport::Transport;
use rmcp::transport::async_rw::AsyncRwTransport;
use tokio_util::sync::CancellationToken;

use super::answer;
use super::stdio::{Input, Output};
use crate::deliver::LastHop;

/// Standard input and output as rmcp wants them.
pub(super) struct Stdio {
    inner: AsyncRwTransport<RoleServer, Input, Output>,
    hop: LastHop,
    greeted: OnceLock<()>,
    stop: CancellationToken,
}

impl Stdio {
    pub(super) fn new(input: Input, output: Output, hop: LastHop, stop: CancellationToken) -> Self {
        Self { inner: AsyncRwTransport::new_server(input, output), hop, greeted: OnceLock::new(), stop }
    }

    /// Returns whether the server can do something with a message now.
    fn wants(&self, message: &ClientJsonRpcMessage) -> bool {
        if let JsonRpcMessage::Request(request) = message {
            if matches!(request.request, ClientRequest::InitializeRequest(_)) {
                self.greeted.get_or_init(|| ());
            }
            return true;
        }
        self.greeted.get().is_some()
    }
}

impl Transport<RoleServer> for Stdio {
    type Error = std::io::Error;

    fn send(
        &mut self,
        mut message: ServerJsonRpcMessage,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send + 'static {
        let presented = match &mut message {
            JsonRpcMessage::Response(response) => match &mut response.result {
                ServerResult::CallToolResult(result) => answer::take_presented(result),
                _ => None,
            },
            _ => None,
        };
        let hop = self.hop.clone();
        let written = self.inner.send(message);
        async move {
            written.await?;
            // No await between the last byte and this: a call that the client makes after reading comes later.
            if let Some(presented) = presented {
                hop.presented(presented.ids, presented.via, presented.tool_use);
            }
            Ok(())
        }
    }

    async fn receive(&mut self) -> Option<ClientJsonRpcMessage> {
        loop {
            let Some(message) = self.inner.receive().await else {
                self.stop.cancel();
                return None;
            };
            if self.wants(&message) {
                return Some(message);
            }
            tracing::debug!("a message before initialize is passed over");
        }
    }

    async fn close(&mut self) -> Result<(), Self::Error> {
        self.inner.close().await
    }
}
