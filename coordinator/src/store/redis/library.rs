//! The Redis functions, each one atomic step, and calls to them.

use std::sync::LazyLock;

use c3po_shared::time::Timestamp;
use redis::{Arg, Cmd, ToRedisArgs};

/// The source of the functions. They are loaded once as a library. A script would define them at each call, which took a
/// third of its time.
const TEXT: &str = concat!(
    include_str!("library/base.lua"),
    include_str!("library/duties.lua"),
    include_str!("library/sessions.lua"),
    include_str!("library/waiting.lua"),
    include_str!("library/quota.lua"),
    include_str!("library/people.lua"),
    include_str!("library/messages.lua"),
    include_str!("library/reading.lua"),
    include_str!("library/endings.lua"),
    include_str!("library/credentials.lua"),
    include_str!("library/fleet.lua"),
    include_str!("library/page_use.lua"),
    include_str!("library/batch.lua"),
    include_str!("library/register.lua"),
);

/// The name of the library. It contains a hash of the source, so that coordinators of different builds use their own
/// functions.
static NAME: LazyLock<String> =
    LazyLock::new(|| format!("c3po_{}", &blake3::hash(TEXT.as_bytes()).to_hex()[..12]));

/// Returns the command that loads the library.
pub(super) fn load() -> Cmd {
    let mut load = redis::cmd("FUNCTION");
    load.arg("LOAD").arg(format!(
        "#!lua name={0}\nlocal LIBRARY = '{0}'\n{TEXT}",
        *NAME
    ));
    load
}

/// The error code of a function that expired as many messages as one call may, and did nothing else.
pub(super) const AGAIN: &str = "AGAIN";
/// The error code of a function that began after the last time of its call, and did nothing. The server's clock follows, in
/// milliseconds.
pub(super) const LATE: &str = "LATE";

/// A call of a function.
#[derive(Debug)]
pub(super) struct Call {
    function: String,
    keys: Vec<String>,
    /// The arguments alone, without the name of a command.
    args: Cmd,
}

impl Call {
    /// Begins a call of this function.
    pub(super) fn new(function: &str, keys: Vec<String>) -> Self {
        Self {
            function: function.to_owned(),
            keys,
            args: Cmd::new(),
        }
    }

    /// Adds an argument.
    pub(super) fn arg(&mut self, argument: impl ToRedisArgs) -> &mut Self {
        self.args.arg(argument);
        self
    }

    /// Returns the command, which does nothing if it begins after that time of the server's clock.
    pub(super) fn command(&self, latest: Timestamp) -> Cmd {
        let mut command = fcall(&self.function, self.keys.len());
        command.arg(&self.keys);
        self.write_args(&mut command);
        command.arg(latest.millis());
        command
    }

    fn write_args(&self, command: &mut Cmd) {
        for argument in self.args.args_iter() {
            if let Arg::Simple(argument) = argument {
                command.arg(argument);
            }
        }
    }
}

/// Returns the command for a batch of calls, each with its latest time.
pub(super) fn batch<'a>(calls: impl Iterator<Item = (&'a Call, Timestamp)> + Clone) -> Cmd {
    let keys = calls.clone().map(|(call, _)| call.keys.len()).sum();
    let mut command = fcall("batch", keys);
    for (call, _) in calls.clone() {
        command.arg(&call.keys);
    }
    for (call, latest) in calls {
        command
            .arg(&call.function)
            .arg(latest.millis())
            .arg(call.keys.len())
            .arg(call.args.args_iter().len());
        call.write_args(&mut command);
    }
    command
}

fn fcall(function: &str, keys: usize) -> Cmd {
    let mut command = redis::cmd("FCALL");
    command.arg(format!("{}_{function}", *NAME)).arg(keys);
    command
}
