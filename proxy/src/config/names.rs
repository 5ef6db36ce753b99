//! The name of an agent and of its host, where no setting gives them.

use std::path::Path;

use c3po_shared::ids::AgentId;

/// Returns the wished name: the explicit one, else the project's folder, else the working directory's, else `agent`.
pub(super) fn agent(
    wished: Option<&str>,
    project: Option<&Path>,
    cwd: Option<&Path>,
    warnings: &mut Vec<String>,
) -> AgentId {
    let folder = |path: &Path| Some(AgentId::of_folder(&path.file_name()?.to_string_lossy()));
    let fallback = || {
        let named = project.and_then(folder).or_else(|| cwd.and_then(folder));
        named
            .or_else(|| AgentId::from_any("agent"))
            .expect("agent is an agent id")
    };
    let Some(wished) = wished.map(str::trim) else {
        return fallback();
    };
    wished.parse().unwrap_or_else(|error| {
        let name = AgentId::from_any(wished).unwrap_or_else(fallback);
        warnings.push(format!("C3PO_AGENT_ID: {error}; using {name}"));
        name
    })
}

/// Returns the machine's name from the kernel.
pub(super) fn host_name() -> String {
    let system = rustix::system::uname();
    let name = system.nodename().to_string_lossy();
    if name.trim().is_empty() {
        "unknown".to_owned()
    } else {
        name.trim().to_owned()
    }
}
