//! One method of a path: its handler, and the description that aide derives from the handler's types.

use std::sync::Arc;

use aide::axum::routing::{self as described, ApiMethodRouter};
use aide::operation::{OperationHandler, OperationInput, OperationOutput};
use axum::handler::Handler;
use axum::routing::{self, MethodRouter};

use crate::server::AppState;

/// Derives the description of a method. It takes as long as hundreds of requests, so it runs only for the document.
pub(super) type Describe = Arc<dyn Fn() -> ApiMethodRouter<AppState> + Send + Sync>;

/// One method of a path.
#[derive(Clone)]
pub(in crate::server) struct Method {
    pub(super) handler: MethodRouter<AppState>,
    pub(super) describe: Describe,
}

/// Returns a `GET` method.
pub(in crate::server) fn get<H, I, O, T>(handler: H) -> Method
where
    H: Handler<T, AppState> + OperationHandler<I, O>,
    I: OperationInput,
    O: OperationOutput,
    T: 'static,
{
    Method {
        handler: routing::get(handler.clone()),
        describe: Arc::new(move || described::get(handler.clone())),
    }
}

/// Returns a `POST` method.
pub(in crate::server) fn post<H, I, O, T>(handler: H) -> Method
where
    H: Handler<T, AppState> + OperationHandler<I, O>,
    I: OperationInput,
    O: OperationOutput,
    T: 'static,
{
    Method {
        handler: routing::post(handler.clone()),
        describe: Arc::new(move || described::post(handler.clone())),
    }
}

/// Returns a `DELETE` method.
pub(in crate::server) fn delete<H, I, O, T>(handler: H) -> Method
where
    H: Handler<T, AppState> + OperationHandler<I, O>,
    I: OperationInput,
    O: OperationOutput,
    T: 'static,
{
    Method {
        handler: routing::delete(handler.clone()),
        describe: Arc::new(move || described::delete(handler.clone())),
    }
}
