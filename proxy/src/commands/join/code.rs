//! The source of a code for joining or logging in: the environment, the terminal or standard input, and never an argument.

use std::io::{self, BufRead, IsTerminal, Read};
use std::os::fd::{AsFd, BorrowedFd};

use rustix::termios::{
    LocalModes, OptionalActions, SpecialCodeIndex, Termios, tcgetattr, tcsetattr,
};

use super::super::failure::Failure;
use crate::config::Secret;

/// How many bytes of a code are read: far more than any code has.
const CODE_MAX: u64 = 1_024;
/// The bytes of Ctrl-C without a signal, Ctrl-D, backspace and Ctrl-U.
const INTERRUPT: u8 = 0x03;
const END: u8 = 0x04;
const ERASE: [u8; 2] = [0x08, 0x7f];
const KILL: u8 = 0x15;

/// The source of a code.
#[derive(Debug, PartialEq, Eq)]
enum Source<'a> {
    /// The value of the variable.
    Environment(&'a str),
    /// A person types or pastes it.
    Terminal,
    /// The first line of standard input.
    Input,
}

/// Returns the code from its source. `words` are those of the command, and `variable` its environment variable, if any.
///
/// Errors: the code is among the arguments, or is missing.
pub(in crate::commands) fn read(
    argument: Option<&str>,
    environment: Option<&Secret>,
    words: &str,
    variable: Option<&str>,
) -> Result<String, Failure> {
    let failed = |error: io::Error| Failure::Usage(format!("cannot read the code: {error}"));
    match source(
        argument,
        environment.map(Secret::expose),
        io::stdin().is_terminal(),
        words,
        variable,
    )
    .map_err(Failure::Usage)?
    {
        Source::Environment(code) => Ok(code.to_owned()),
        Source::Terminal => typed().map_err(failed),
        Source::Input => {
            let mut line = String::new();
            io::stdin()
                .lock()
                .take(CODE_MAX)
                .read_line(&mut line)
                .map_err(failed)?;
            Ok(line)
        }
    }
}

fn source<'a>(
    argument: Option<&str>,
    environment: Option<&'a str>,
    is_terminal: bool,
    words: &str,
    variable: Option<&str>,
) -> Result<Source<'a>, String> {
    let set = variable
        .map(|name| format!("set {name} or "))
        .unwrap_or_default();
    match (argument, environment) {
        (Some(code), _) if code != "-" => Err(format!(
            "every user of this machine can see the arguments of a program, so the code must not be one: run `c3po \
             {words}` and enter the code when asked; a script can {set}write the code to standard input"
        )),
        (None, Some(code)) => Ok(Source::Environment(code)),
        _ if is_terminal => Ok(Source::Terminal),
        _ => Ok(Source::Input),
    }
}

/// Asks for the code on the terminal, without echo.
fn typed() -> io::Result<String> {
    let input = io::stdin();
    let quiet = Quiet::make(input.as_fd())?;
    eprint!("The code that the coordinator printed (it is not shown): ");
    let line = line(input.lock().take(CODE_MAX).bytes());
    eprintln!();
    drop(quiet);
    line
}

/// Returns the typed line.
///
/// Errors: `Interrupted` at Ctrl-C.
fn line(bytes: impl Iterator<Item = io::Result<u8>>) -> io::Result<String> {
    let mut typed = Vec::new();
    for byte in bytes {
        match byte? {
            b'\r' | b'\n' | END => break,
            INTERRUPT => return Err(io::Error::new(io::ErrorKind::Interrupted, "interrupted")),
            KILL => typed.clear(),
            byte if ERASE.contains(&byte) => drop(typed.pop()),
            byte => typed.push(byte),
        }
    }
    Ok(String::from_utf8_lossy(&typed).into_owned())
}

/// A terminal without echo, until this is dropped. It makes no signals meanwhile, because one would leave it so.
struct Quiet<'a> {
    terminal: BorrowedFd<'a>,
    before: Termios,
}

impl<'a> Quiet<'a> {
    fn make(terminal: BorrowedFd<'a>) -> io::Result<Self> {
        let before = tcgetattr(terminal)?;
        let mut quiet = before.clone();
        quiet
            .local_modes
            .remove(LocalModes::ECHO | LocalModes::ECHONL | LocalModes::ICANON | LocalModes::ISIG);
        quiet.special_codes[SpecialCodeIndex::VMIN] = 1;
        quiet.special_codes[SpecialCodeIndex::VTIME] = 0;
        tcsetattr(terminal, OptionalActions::Now, &quiet)?;
        Ok(Self { terminal, before })
    }
}

impl Drop for Quiet<'_> {
    fn drop(&mut self) {
        // A terminal that is gone needs no restoring.
        let _ = tcsetattr(self.terminal, OptionalActions::Now, &self.before);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_comes_from_the_environment_else_the_terminal_else_standard_input() {
        let check = |argument, environment, is_terminal, expected| {
            assert_eq!(
                source(argument, environment, is_terminal, "join nas", None).ok(),
                expected,
                "{argument:?} {environment:?}"
            );
        };
        check(None, Some("code"), true, Some(Source::Environment("code")));
        check(None, None, true, Some(Source::Terminal));
        check(None, None, false, Some(Source::Input));
        check(Some("-"), Some("code"), false, Some(Source::Input));
        check(Some("-"), None, true, Some(Source::Terminal));
        check(Some("AAAA"), Some("code"), true, None);
    }

    #[test]
    fn a_typed_line_is_edited_ended_and_interrupted() {
        let check = |typed: &str, expected: Option<&str>| {
            let found = line(typed.bytes().map(Ok)).ok();
            assert_eq!(found.as_deref(), expected, "{typed:?}");
        };
        check("abc\rrest", Some("abc"));
        check("abx\u{7f}c\n", Some("abc"));
        check("wrong\u{15}abc\u{4}", Some("abc"));
        check("abc", Some("abc"));
        check("ab\u{3}c\n", None);
    }
}
