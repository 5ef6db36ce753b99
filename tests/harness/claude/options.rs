//! Where a session runs and with what: its folders, its model, its servers, its arguments and its environment.

use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::fake_api::FakeApi;

/// What a session is started with. A clone starts another one in the same home and the same project.
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

/// Where its MCP servers come from.
#[derive(Debug, Clone)]
pub(super) enum Servers {
    /// The proxy, entered by hand.
    Entered,
    /// The plugin in that folder.
    Plugin(PathBuf),
    /// Nowhere.
    Nowhere,
}

impl Options {
    /// A session in the folder `work/project`, with the proxy entered by hand as its only server.
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

    /// With the plugin in that folder instead, which needs an absolute path.
    #[must_use]
    pub fn plugin(mut self, folder: &Path) -> Self {
        self.servers = Servers::Plugin(folder.to_owned());
        self
    }

    /// As if c3po was not there.
    #[must_use]
    pub fn without_c3po(mut self) -> Self {
        self.servers = Servers::Nowhere;
        self
    }

    /// With another model.
    #[must_use]
    pub fn model(mut self, model: &FakeApi) -> Self {
        self.model = model.url();
        self
    }

    /// With these settings of its user, such as `{"crossSessionInbound": "refuse"}`.
    #[must_use]
    pub fn settings(mut self, settings: Value) -> Self {
        self.settings = Some(settings);
        self
    }

    /// With more arguments, such as `-c`.
    #[must_use]
    pub fn arguments<A: Into<String>>(mut self, arguments: impl IntoIterator<Item = A>) -> Self {
        self.arguments.extend(arguments.into_iter().map(Into::into));
        self
    }

    /// With one more variable in its environment.
    #[must_use]
    pub fn environment(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.environment.push((name.into(), value.into()));
        self
    }

    /// Returns its HOME, which is its TMPDIR as well.
    pub fn home(&self) -> PathBuf {
        self.work.join(&self.home)
    }

    /// Returns where the inbox sockets of its client lie.
    pub fn inbox_folder(&self) -> PathBuf {
        self.runtime_folder().join("cc-socks")
    }

    /// Returns the folder that it works in.
    pub fn folder(&self) -> PathBuf {
        self.work.join(&self.project)
    }

    /// Returns its XDG_RUNTIME_DIR, which all sessions of one work folder share, as those of one user do.
    pub fn runtime_folder(&self) -> PathBuf {
        self.work.join("run")
    }
}
