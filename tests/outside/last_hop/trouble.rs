//! The troubles that a session is started in, and the plugins that it has.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use harness::claude::{Options, plugin_copy};
use harness::coordinator::free_address;
use harness::process::program;
use serde_json::{Value, json};

/// The parts of a session's plugin, besides the program and the manifest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Plugin {
    /// All parts.
    Whole,
    /// All parts except hooks.
    WithoutHooks,
    /// Only hooks.
    HooksAlone,
    /// There is no plugin.
    None,
    /// All parts, and another hook that does add to the context.
    Talkative,
}

/// The fault in a case.
pub(super) struct Trouble {
    /// The configured address of the coordinator.
    pub(super) coordinator: String,
    /// The change to the folders of a session before it starts.
    pub(super) prepare: Box<Prepare>,
    /// The command that the model runs in the session's shell.
    pub(super) command: String,
    /// Additional environment variables.
    pub(super) environment: Vec<(&'static str, PathBuf)>,
    /// Additional arguments.
    pub(super) arguments: Vec<&'static str>,
}

impl Trouble {
    pub(super) fn coordinator(url: impl Into<String>) -> Self {
        let prepare = Box::new(|_: &Options| Ok(Vec::new()));
        let command = "echo from-bash".to_owned();
        Self {
            coordinator: url.into(),
            prepare,
            command,
            environment: Vec::new(),
            arguments: Vec::new(),
        }
    }

    /// Creates a case in which no coordinator listens at the configured address.
    pub(super) fn without_coordinator() -> Result<Self> {
        Ok(Self::coordinator(format!("http://{}", free_address()?)))
    }

    /// Returns whether a session with that plugin starts a proxy.
    pub(super) fn has_proxy(&self, kind: Plugin) -> bool {
        !matches!(kind, Plugin::HooksAlone | Plugin::None) && self.arguments.is_empty()
    }

    pub(super) fn prepare(
        self,
        prepare: impl Fn(&Options) -> Result<Vec<Mount>> + 'static,
    ) -> Self {
        Self {
            prepare: Box::new(prepare),
            ..self
        }
    }
}

/// A small disk. Dropping it unmounts it.
pub(super) struct Mount(PathBuf);

impl Mount {
    /// Mounts a disk that has no room even for an empty file. Returns `None` if that is not permitted.
    pub(super) fn full(folder: &Path) -> Result<Option<Self>> {
        fs::create_dir_all(folder)?;
        let mut mount = Command::new("mount");
        // The only inode is the folder itself.
        mount
            .args([
                "-t",
                "tmpfs",
                "-o",
                "size=4k,nr_inodes=1,mode=0700",
                "tmpfs",
            ])
            .arg(folder);
        let done = mount.output().is_ok_and(|output| output.status.success());
        let mount = done.then(|| Self(folder.to_owned()));
        ensure!(
            mount.is_none() || fs::write(folder.join("x"), "x").is_err(),
            "the disk is not full"
        );
        Ok(mount)
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        // A client that is still exiting may use it, so it is unmounted lazily.
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

/// Creates the plugin, with a recorder around its program.
pub(super) fn plugin(work: &Path, kind: Plugin) -> Result<PathBuf> {
    let folder = plugin_copy(work)?;
    let (recorder, record, ids) = (
        folder.join("bin/c3po"),
        work.join("hooks"),
        work.join("proxies"),
    );
    fs::remove_file(&recorder)?;
    let real = program("c3po")?;
    let (real, record, ids) = (real.display(), record.display(), ids.display());
    // Waiting hooks are killed at the end, which would leave incomplete lines in the record.
    fs::write(
        &recorder,
        format!(
            "#!/bin/sh\n\
            case \"$1 $2\" in\n\
            'hook wait') exec '{real}' \"$@\";;\n\
            'proxy ') echo $$ >>'{ids}'; exec '{real}' \"$@\";;\n\
            esac\n\
            out=$(mktemp) err=$(mktemp)\n\
            began=$(date +%s%N)\n\
            '{real}' \"$@\" >\"$out\" 2>\"$err\"\n\
            code=$? ended=$(date +%s%N)\n\
            said=$(cat \"$out\" \"$err\" | wc -c)\n\
            echo \"$2 $code $(((ended - began) / 1000000)) $said\" >>'{record}'\n\
            cat \"$out\"; cat \"$err\" >&2; rm \"$out\" \"$err\"\n\
            exit $code\n"
        ),
    )?;
    fs::set_permissions(&recorder, Permissions::from_mode(0o755))?;

    let (hooks, servers) = (folder.join("hooks/hooks.json"), folder.join(".mcp.json"));
    match kind {
        Plugin::WithoutHooks => fs::remove_dir_all(folder.join("hooks"))?,
        Plugin::HooksAlone => fs::remove_dir_all(folder.join("skills"))?,
        Plugin::Talkative => {
            let mut all: Value = serde_json::from_slice(&fs::read(&hooks)?)?;
            let talks = json!({"hooks": [{"type": "command", "command": "echo", "args": ["x"]}]});
            all["hooks"]["UserPromptSubmit"]
                .as_array_mut()
                .context("no hooks")?
                .push(talks);
            fs::write(&hooks, all.to_string())?;
        }
        Plugin::Whole | Plugin::None => {}
    }
    if kind == Plugin::HooksAlone {
        fs::remove_file(&servers)?;
    } else {
        // The presence of tools in the first request must not depend on timing.
        let mut all: Value = serde_json::from_slice(&fs::read(&servers)?)?;
        all["mcpServers"]["c3po"]["alwaysLoad"] = true.into();
        fs::write(&servers, all.to_string())?;
    }
    Ok(folder)
}

/// The record of one hook.
#[derive(Debug)]
pub(super) struct Hook {
    pub(super) name: String,
    pub(super) code: String,
    pub(super) milliseconds: u64,
    pub(super) said: u64,
}

/// Reads a line that the recorder of [`plugin`] wrote.
pub(super) fn hook(line: &str) -> Result<Hook> {
    let parts: Vec<_> = line.split(' ').collect();
    let &[name, code, milliseconds, said] = &parts[..] else {
        anyhow::bail!("no record: {line}")
    };
    Ok(Hook {
        name: name.into(),
        code: code.into(),
        milliseconds: milliseconds.parse()?,
        said: said.parse()?,
    })
}

pub(super) type Prepare = dyn Fn(&Options) -> Result<Vec<Mount>>;
