//! The options of a session: its folders, model, servers, arguments and environment.

use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::fake_api::FakeApi;

/// The options of a session. A clone starts another session in the same home and the same project.
#[derive(Debug, Clone)]
pub struct Options {
    pub(super) work: PathBuf,
    pub(super) project: String,
    pub(super) home: String,
    pub(super) model: String,
    pub(super) coordinator: String,
    pub(super) servers: Servers,
    pub(super) arguments: Vec<String>,
    pub(super) environment: Vec<(String, String)>,
    pub(super) settings: Option<Value>,
}

/// The source of the session's MCP servers.
#[derive(Debug, Clone)]
pub(super) enum Servers {
    /// The proxy, configured by hand.
    Entered,
    /// The plugin in that folder.
    Plugin(PathBuf),
    /// No servers.
    Nowhere,
}

impl Options {
    /// Creates the options of a session in the folder `work/project`, with the proxy configured by hand as its only server.
    pub fn new(work: &Path, project: &str, model: &FakeApi, coordinator: &str) -> Self {
        Self {
            work: work.to_owned(),
            project: project.to_owned(),
            home: format!("home-{project}"),
            model: model.url(),
            coordinator: coordinator.to_owned(),
            servers: Servers::Entered,
            arguments: Vec::new(),
            environment: Vec::new(),
            settings: None,
        }
    }

    /// Uses the plugin in that folder instead; the path must be absolute.
    #[must_use]
    pub fn plugin(mut self, folder: &Path) -> Self {
        self.servers = Servers::Plugin(folder.to_owned());
        self
    }

    /// Leaves c3po out.
    #[must_use]
    pub fn without_c3po(mut self) -> Self {
        self.servers = Servers::Nowhere;
        self
    }

    /// Uses another model.
    #[must_use]
    pub fn model(mut self, model: &FakeApi) -> Self {
        self.model = model.url();
        self
    }

    /// Sets the user's settings, such as `{"crossSessionInbound": "refuse"}`.
    #[must_use]
    pub fn settings(mut self, settings: Value) -> Self {
        self.settings = Some(settings);
        self
    }

    /// Adds arguments, such as `-c`.
    #[must_use]
    pub fn arguments<A: Into<String>>(mut self, arguments: impl IntoIterator<Item = A>) -> Self {
        self.arguments.extend(arguments.into_iter().map(Into::into));
        self
    }

    /// Adds a variable to its environment.
    #[must_use]
    pub fn environment(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.environment.push((name.into(), value.into()));
        self
    }

    /// Returns its HOME, which is also its TMPDIR.
    pub fn home(&self) -> PathBuf {
        self.work.join(&self.home)
    }

    /// Returns the folder of its client's inbox sockets.
    pub fn inbox_folder(&self) -> PathBuf {
        self.runtime_folder().join("cc-socks")
    }

    /// Returns its working folder.
    pub fn folder(&self) -> PathBuf {
        self.work.join(&self.project)
    }

    /// Returns its XDG_RUNTIME_DIR, which all sessions of one work folder share, like the sessions of one user.
    pub fn runtime_folder(&self) -> PathBuf {
        self.work.join("run")
    }
}
