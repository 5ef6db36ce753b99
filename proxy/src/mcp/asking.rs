//! `ask_user` in a session: the wait for people, its progress and dialog, and the withdrawal of a question whose call is
//! cancelled.

use std::time::Duration;

use c3po_shared::catalogue::{AnswerInDialog, AskUser, Call, Conclude, Received, Sent};
use c3po_shared::ids::{CallId, MessageId};
use c3po_shared::receipt::{Stage, Via};
use c3po_shared::refusal::{ErrorCode, Refusal};
use c3po_shared::time::age;
use rmcp::RoleServer;
use rmcp::service::RequestContext;
use tokio::time::timeout;

use super::dialog::Dialog;
use super::{Server, say_progress};

/// How long the end of a question is reported again while no coordinator is reachable.
const RETRIED_FOR: Duration = Duration::from_secs(600);

impl Server {
    /// Asks, and waits for the answer unless the call does not want that.
    ///
    /// The question is stored first, by a call of its own: then a wait that is cancelled can withdraw it.
    pub(super) async fn ask(
        &self,
        ask: &AskUser,
        context: &RequestContext<RoleServer>,
    ) -> Result<Received, Refusal> {
        let (question_id, mut dialog) = match &ask.question_id {
            Some(id) => (id.clone(), None),
            None => {
                let storing = AskUser {
                    wait: Some(false),
                    ..ask.clone()
                };
                let stored = self.link.call(Call::AskUser(storing)).await?;
                if ask.wait == Some(false) {
                    return Ok(stored);
                }
                let question_id = stored.read::<Sent>()?.message.id;
                (question_id, self.dialog(ask, context).await)
            }
        };
        let waiting = self.link.call(Call::AskUser(AskUser {
            question_id: Some(question_id.clone()),
            timeout: ask.timeout,
            on_no_response: ask.on_no_response,
            ..AskUser::default()
        }));
        let progress = async {
            match context.meta.get_progress_token() {
                Some(token) => say_progress(&context.peer, token, waits_for_person).await,
                None => std::future::pending().await,
            }
        };
        let outcome = tokio::select! {
            outcome = waiting => Some(outcome),
            never = progress => match never {},
            never = self.report_dialog(dialog.as_mut(), &question_id) => match never {},
            () = context.ct.cancelled() => None,
        };
        if let Some(dialog) = dialog {
            dialog.close("the question is over").await;
        }
        match outcome {
            Some(outcome) => outcome,
            None => {
                if ask.question.is_some() {
                    self.withdraw(question_id).await;
                }
                Err(Refusal::new(
                    ErrorCode::Interrupted,
                    "the call was cancelled",
                ))
            }
        }
    }

    /// Opens the dialog of the client, if a person may see one.
    async fn dialog(&self, ask: &AskUser, context: &RequestContext<RoleServer>) -> Option<Dialog> {
        let question = ask.as_question().filter(|_| self.settings.dialogs)?;
        Dialog::open(&context.peer, &question, ask.context.as_deref()).await
    }

    /// Waits for the answer in the dialog and reports it. The wait for people then returns it, or an earlier answer.
    async fn report_dialog(
        &self,
        dialog: Option<&mut Dialog>,
        message_id: &MessageId,
    ) -> std::convert::Infallible {
        if let Some(dialog) = dialog {
            let part = dialog.answer().await;
            let message_id = message_id.clone();
            self.until_done(Call::AnswerInDialog(AnswerInDialog { message_id, part }))
                .await;
        }
        std::future::pending().await
    }

    /// Withdraws a question.
    async fn withdraw(&self, message_id: MessageId) {
        let call = Call::Conclude(Conclude {
            message_id,
            stage: Stage::Withdrawn,
            via: Via::ToolCall,
        });
        self.until_done(call).await;
    }

    /// Makes a call until a coordinator answers it, but not for ever: the question then stays as it is.
    async fn until_done(&self, call: Call) {
        let calling = self.link.call_until_done(CallId::fresh(), call);
        if let Ok(Err(refusal)) = timeout(RETRIED_FOR, calling).await {
            tracing::debug!("a question was not concluded: {refusal}");
        }
    }
}

/// Returns the text that a client shows after so many seconds.
fn waits_for_person(seconds: u64) -> String {
    format!("waiting for a person, {}", age(seconds))
}
