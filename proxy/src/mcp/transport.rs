//! The transport between client and server: one message per line, with additions to rmcp's own transport.
//!
//! - The end of input stops the whole process at once; rmcp alone would wait for calls that are blocked.
//! - Messages before `initialize` that are not requests are skipped; rmcp alone would give up.
//! - A line that is not a message is answered; rmcp alone would drop it, or leave out the id.
//! - A result that puts messages before the model is followed by their receipt, once it is really written.

use std::io;
use std::sync::{Arc, OnceLock};

use futures_util::future::BoxFuture;
use rmcp::RoleServer;
use rmcp::model::{
    ClientJsonRpcMessage, ClientNotification, ClientRequest, JsonRpcMessage, ServerJsonRpcMessage,
};
use rmcp::transport::Transport;
use tokio::io::AsyncWriteExt;
use tokio::sync::Mutex;
use tokio_util::sync::CancellationToken;

use super::lines::Lines;
use super::presenting::Presenting;
use super::stdio::{Input, Output};
use crate::deliver::{self, LastHop};

/// Standard input and output as rmcp needs them.
pub(super) struct Stdio {
    lines: Lines,
    writer: LineWriter,
    /// The answer to a malformed line, until it is written. It is kept here because a read may be dropped half-way.
    answer: Option<BoxFuture<'static, io::Result<()>>>,
    presenting: Presenting,
    hop: LastHop,
    greeted: OnceLock<()>,
    stop: CancellationToken,
}

impl Stdio {
    pub(super) fn new(
        input: Input,
        output: Output,
        presenting: Presenting,
        hop: LastHop,
        stop: CancellationToken,
    ) -> Self {
        let writer = LineWriter(Arc::new(Mutex::new(Some(output))));
        Self {
            lines: Lines::new(input),
            writer,
            answer: None,
            presenting,
            hop,
            greeted: OnceLock::new(),
            stop,
        }
    }

    /// Forgets the messages in the result of a cancelled request: rmcp drops the result, or the client may.
    fn forget_cancelled(&self, message: &ClientJsonRpcMessage) {
        if let JsonRpcMessage::Notification(said) = message
            && let ClientNotification::CancelledNotification(cancelled) = &said.notification
            && let Some(request) = &cancelled.params.request_id
            && let Some(tool_use) = self.presenting.cancelled(request)
        {
            self.hop.on(deliver::Input::Cancelled(tool_use));
        }
    }

    /// Returns whether the server can process a message now.
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
    type Error = io::Error;

    fn send(
        &mut self,
        message: ServerJsonRpcMessage,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send + 'static {
        let presented = match &message {
            JsonRpcMessage::Response(response) => self
                .presenting
                .of(&response.id)
                .map(|presented| (response.id.clone(), presented)),
            _ => None,
        };
        let (hop, presenting, writer) = (
            self.hop.clone(),
            self.presenting.clone(),
            self.writer.clone(),
        );
        let line = serde_json::to_string(&message);
        async move {
            writer.write(line? + "\n").await?;
            // There is no await between the last byte and this, so it precedes any call that the client makes after reading.
            if let Some((request, presented)) = presented {
                let tool_use = presented.tool_use.clone();
                hop.on(deliver::Input::Presented(presented));
                if !presenting.written(request)
                    && let Some(tool_use) = tool_use
                {
                    hop.on(deliver::Input::Cancelled(tool_use));
                }
            }
            Ok(())
        }
    }

    async fn receive(&mut self) -> Option<ClientJsonRpcMessage> {
        loop {
            if let Some(answer) = &mut self.answer {
                if let Err(error) = answer.await {
                    tracing::debug!("could not answer an invalid line: {error}");
                }
                self.answer = None;
            }
            match self.lines.next().await {
                Some(Ok(message)) => {
                    self.forget_cancelled(&message);
                    if self.wants(&message) {
                        return Some(message);
                    }
                    tracing::debug!("ignored a message before initialize");
                }
                Some(Err(unreadable)) => {
                    let writer = self.writer.clone();
                    self.answer = Some(Box::pin(
                        async move { writer.write(unreadable.answer()).await },
                    ));
                }
                None => {
                    self.stop.cancel();
                    return None;
                }
            }
        }
    }

    async fn close(&mut self) -> Result<(), Self::Error> {
        self.writer.0.lock().await.take();
        Ok(())
    }
}

/// Standard output, until it is closed. Lines are written one after the other.
#[derive(Clone)]
struct LineWriter(Arc<Mutex<Option<Output>>>);

impl LineWriter {
    async fn write(&self, line: String) -> io::Result<()> {
        let mut output = self.0.lock().await;
        let output = output.as_mut().ok_or(io::ErrorKind::NotConnected)?;
        output.write_all(line.as_bytes()).await?;
        output.flush().await
    }
}
