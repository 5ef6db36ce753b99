//! The Redis functions, each one atomic step, and calls to them.

use std::sync::{Arc, LazyLock};

use c3po_shared::time::Timestamp;
use redis::{Arg, Cmd, ToRedisArgs};

use crate::store::REPEAT_MARGIN;

/// The definitions of the functions.
const DEFINITIONS: &str = concat!(
    include_str!("library/base.lua"),
    include_str!("library/duties.lua"),
    include_str!("library/people.lua"),
    include_str!("library/sessions.lua"),
    include_str!("library/waiting.lua"),
    include_str!("library/quota.lua"),
    include_str!("library/messages.lua"),
    include_str!("library/reading.lua"),
    include_str!("library/endings.lua"),
    include_str!("library/credentials.lua"),
    include_str!("library/fleet.lua"),
    include_str!("library/page_use.lua"),
    include_str!("library/batch.lua"),
    include_str!("library/register.lua"),
);

/// The source of the functions. They are loaded once as a library. A script would define them at each call, which took a
/// third of its time.
static SOURCE: LazyLock<String> =
    LazyLock::new(|| format!("local REPEAT_MARGIN = {REPEAT_MARGIN}\n{DEFINITIONS}"));

/// The name of the library. It contains a hash of the source, so that coordinators of different builds use their own
/// functions.
static NAME: LazyLock<String> =
    LazyLock::new(|| format!("c3po_{}", &blake3::hash(SOURCE.as_bytes()).to_hex()[..12]));

/// Returns the command that loads the library.
pub(super) fn load() -> Cmd {
    let mut load = redis::cmd("FUNCTION");
    load.arg("LOAD").arg(format!(
        "#!lua name={0}\nlocal LIBRARY = '{0}'\n{1}",
        *NAME, *SOURCE
    ));
    load
}

/// The error code of a function that expired as many messages as one call may, and did nothing else.
pub(super) const AGAIN: &str = "AGAIN";
/// The error code of a function that began after the last time of its call, and did nothing. The server's clock follows, in
/// milliseconds.
pub(super) const LATE: &str = "LATE";

/// How many arguments a usual call has, and their bytes.
const ARGS_USUAL: usize = 16;
const BYTES_USUAL: usize = 1_024;

/// A call of a function.
#[derive(Debug)]
pub(super) struct Call {
    function: &'static str,
    keys: Arc<[String]>,
    /// The arguments alone, without the name of a command.
    args: Cmd,
}

impl Call {
    /// Begins a call of this function.
    pub(super) fn new(function: &'static str, keys: Arc<[String]>) -> Self {
        Self {
            function,
            keys,
            args: Cmd::with_capacity(ARGS_USUAL, BYTES_USUAL),
        }
    }

    /// Adds an argument.
    pub(super) fn arg(&mut self, argument: impl ToRedisArgs) -> &mut Self {
        self.args.arg(argument);
        self
    }

    /// Returns the command, which does nothing if it begins after that time of the server's clock.
    pub(super) fn command(&self, latest: Timestamp) -> Cmd {
        let mut command = fcall(self.function, &self.keys, 1);
        for argument in self.written_args() {
            command.arg(argument);
        }
        command.arg(written(latest));
        command
    }

    fn written_args(&self) -> impl ExactSizeIterator<Item = &[u8]> {
        self.args.args_iter().map(|argument| match argument {
            Arg::Simple(argument) => argument,
            // The cursor of a SCAN, which is no call of a function.
            _ => &[],
        })
    }
}

/// Returns the command for a batch of calls, which do nothing if they begin after that time of the server's clock. Their keys and their
/// first arguments are the same.
pub(super) fn batch(calls: &[&Call], latest: Timestamp) -> Cmd {
    let first = calls.first();
    let mut command = fcall("batch", first.map_or(&[], |call| &call.keys), calls.len());
    for argument in first.iter().flat_map(|call| call.written_args().take(1)) {
        command.arg(argument);
    }
    command.arg(written(latest));
    for call in calls {
        let args = call.written_args().skip(1);
        command.arg(call.function).arg(args.len());
        for argument in args {
            command.arg(argument);
        }
    }
    command
}

/// Returns a time as functions compare it: with 13 digits.
fn written(time: Timestamp) -> String {
    format!("{:013}", time.millis())
}

/// Begins the command for so many calls.
fn fcall(function: &str, keys: &[String], calls: usize) -> Cmd {
    let mut command = Cmd::with_capacity(calls * ARGS_USUAL, calls * BYTES_USUAL);
    command
        .arg("FCALL")
        .arg(format!("{}_{function}", *NAME))
        .arg(keys.len())
        .arg(keys);
    command
}
