//! The commands of people: one file for each.

mod ack;
mod agents;
mod answer;
mod answers;
mod ask;
mod audit;
mod broadcast;
mod claude_code;
mod completions;
mod confirm;
mod doctor;
mod events;
mod failure;
mod guard;
mod hosts;
mod inbox;
mod install;
mod join;
mod login;
mod man;
mod message_id;
mod policy;
mod print;
mod questions;
mod receipt;
mod reply;
mod rest;
mod rows;
mod send;
mod sent;
mod session;
mod status;
mod statusline;
mod stored_login;
mod tail;
mod thread;
mod uninstall;
mod words;

use std::io::Read as _;
use std::process::ExitCode;

use c3po_shared::ids::AgentId;
use c3po_shared::limits::TEXT_MAX;
use c3po_shared::text::harmless;
use clap::{Parser, Subcommand};

use crate::config::Config;
use crate::{hook, logs, proxy};
pub use completions::complete;
use failure::Failure;
use print::Printer;

/// How many bytes are read from standard input: a character has at most four.
const STDIN_MAX: u64 = 4 * TEXT_MAX as u64;

/// The part of `--help` about exit codes.
const EXIT_CODES: &str = "\
Exit codes:
  0  done
  1  refused; standard error has the reason and what to try
  2  wrong usage or configuration
  3  no coordinator
  4  timeout
  5  the coordinator cannot use its store";

/// The part of `c3po join --help` about the code.
const JOIN: &str = "\
`c3po join` asks on the terminal for the code that `c3po-coordinator invite` printed, or reads it
from standard input or from the variable C3PO_JOIN_CODE. The code cannot be an argument: every
user of a machine can see the arguments of a program.";

/// The text of `c3po hook --help`.
const HOOK: &str = "\
It reads the client's description of the event from standard input, asks the proxy of the
same session, prints the answer for the client, and ends within 200 ms, or within 500 ms if
the client does not read that answer. If no proxy answers, it prints nothing and ends with
exit code 0: the session continues as without c3po.

Events: session-start user-prompt-submit pre-tool-use post-tool-batch (or post-tool-use)
permission-request notification stop stop-failure subagent-stop session-end wait";

/// The command line.
#[derive(Debug, Parser)]
#[command(
    name = "c3po",
    version,
    about = "Messages between agents on your own hosts and containers"
)]
#[command(after_help = EXIT_CODES)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
    #[command(flatten)]
    manner: Manner,
}

/// The options that all commands share.
#[derive(Debug, clap::Args)]
struct Manner {
    /// Print JSON: one document, or one per line if the command keeps running
    #[arg(long, global = true)]
    json: bool,
    /// Print times in UTC instead of this host's time zone; JSON always has UTC
    #[arg(long, global = true)]
    utc: bool,
    /// Act as this agent, which no session may hold at the same time; it is created if the key covers the name [default:
    /// human, or HOST-cli where that needs a login]
    #[arg(long = "as", value_name = "NAME", global = true, value_parser = agent_of, add = completions::agents())]
    name: Option<AgentId>,
}

/// Parses the name of `--as`.
fn agent_of(name: &str) -> Result<AgentId, String> {
    let agent: AgentId = name.parse().map_err(|error| format!("{error}"))?;
    if agent == AgentId::human() {
        return Err("a person logs in with `c3po login URL`, and leaves out --as".to_owned());
    }
    Ok(agent)
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Show whether this host reaches a coordinator, and which agents are online
    #[command(after_help = EXIT_CODES)]
    Status,
    /// Check everything that c3po needs on this host, and send test messages end to end
    #[command(after_help = EXIT_CODES)]
    Doctor,
    /// List the agents, or delete one
    #[command(after_help = EXIT_CODES, aliases = ["list", "ls"])]
    Agents(agents::Arguments),
    /// Send a message
    #[command(after_help = EXIT_CODES)]
    Send(send::Arguments),
    /// Send a message that wants no answer to all agents, or only those with a role or on a host
    #[command(after_help = EXIT_CODES)]
    Broadcast(broadcast::Arguments),
    /// Show the messages in your inbox
    #[command(after_help = EXIT_CODES)]
    Inbox {
        /// Continue with new messages as they arrive, like `c3po tail`; Ctrl-C ends it
        #[arg(long, short)]
        follow: bool,
    },
    /// Show the messages that you sent recently, and how far each got
    #[command(after_help = EXIT_CODES)]
    Sent,
    /// Answer a message
    #[command(after_help = EXIT_CODES)]
    Reply(reply::Arguments),
    /// Show the open questions of agents to people
    #[command(after_help = EXIT_CODES)]
    Questions(questions::Arguments),
    /// Answer a question of an agent to people
    #[command(after_help = EXIT_CODES)]
    Answer(answer::Arguments),
    /// Show, save or delete answers to send to questions
    #[command(after_help = EXIT_CODES, subcommand)]
    Answers(answers::SavedAnswers),
    /// Ask people a question, and wait for the answer
    #[command(after_help = EXIT_CODES)]
    Ask(ask::Question),
    /// Leave a notice for people, which needs no answer
    #[command(after_help = EXIT_CODES)]
    Notify(ask::Notice),
    /// Remove messages that need no answer from your inbox
    #[command(after_help = EXIT_CODES)]
    Ack(ack::Arguments),
    /// Show the conversation that a message belongs to
    #[command(after_help = EXIT_CODES)]
    Thread(thread::Arguments),
    /// Show how far a message got, with the evidence
    #[command(after_help = EXIT_CODES)]
    Receipt(receipt::Arguments),
    /// Show the messages in your inbox, then new ones as they arrive; Ctrl-C ends it
    #[command(after_help = EXIT_CODES)]
    Tail,
    /// Join this host to a coordinator, with a code from `c3po-coordinator invite`
    #[command(after_help = format!("{JOIN}\n\n{EXIT_CODES}"))]
    Join(join::Arguments),
    /// Show what changed, in order: messages, receipts, sessions and their states
    #[command(after_help = EXIT_CODES)]
    Events(events::Arguments),
    /// Log in as a person on this host: commands then act as human; the code comes from `c3po-coordinator login`
    #[command(after_help = EXIT_CODES)]
    Login(login::Arguments),
    /// Revoke that login, and delete it from this host
    #[command(after_help = EXIT_CODES)]
    Logout,
    /// Show the audit: each event in order, with agents and reasons
    #[command(after_help = EXIT_CODES)]
    Audit(audit::Arguments),
    /// Show the coordinator's policy, or check a case against it
    #[command(after_help = EXIT_CODES, subcommand)]
    Policy(policy::PolicyAction),
    /// Show, allow or stop pairs of agents that write to each other without a person; needs an admin key
    #[command(after_help = EXIT_CODES, subcommand)]
    Guard(guard::GuardAction),
    /// Rename a host, with its agents and keys
    #[command(after_help = EXIT_CODES, subcommand)]
    Hosts(hosts::HostsAction),
    /// Make Claude Code load c3po in all your sessions
    #[command(after_help = EXIT_CODES)]
    Install(install::Arguments),
    /// Revert `c3po install`
    #[command(after_help = EXIT_CODES)]
    Uninstall(uninstall::Arguments),
    /// Print one line about this session's messages, for the client's status line
    Statusline,
    /// Print a completion script for a shell, such as: source <(c3po completions bash)
    Completions(completions::Arguments),
    /// Write the manual pages into a folder
    Man(man::Arguments),
    /// Serve MCP on standard input and output; a client starts it beside a session
    Proxy,
    /// Report an event of a session to its proxy; run by the hooks of a client
    #[command(after_help = HOOK)]
    Hook {
        /// The event, such as session-start or stop
        event: Option<String>,
        /// For wait: session-start, if it starts together with the session
        beginning: Option<String>,
    },
}

/// Runs a command and returns its exit code.
pub fn run(cli: Cli, mut config: Config) -> ExitCode {
    match cli.command {
        Command::Hook { event, beginning } => run_hook(event.as_deref(), beginning.as_deref()),
        Command::Statusline => {
            statusline::run(&Printer::of_status_line(cli.manner.json, config.colour));
            ExitCode::SUCCESS
        }
        Command::Proxy => run_proxy(config),
        command => {
            logs::start(&config);
            config.agent = cli.manner.name.unwrap_or_else(AgentId::human);
            let printer = Printer::of_terminal(cli.manner.json, config.colour, cli.manner.utc);
            in_runtime(async {
                match Box::pin(for_a_person(command, config, &printer)).await {
                    Ok(()) => ExitCode::SUCCESS,
                    Err(failure) => failure.tell(printer.json),
                }
            })
        }
    }
}

/// Runs the proxy beside a session until the session ends.
pub fn run_proxy(config: Config) -> ExitCode {
    logs::start(&config);
    in_runtime(async {
        match proxy::run(config).await {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("c3po: {}", harmless(&format!("{error:#}"), true));
                ExitCode::FAILURE
            }
        }
    })
}

fn in_runtime(work: impl Future<Output = ExitCode>) -> ExitCode {
    let runtime = match tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
    {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("c3po: cannot start: {error}");
            return ExitCode::FAILURE;
        }
    };
    let code = runtime.block_on(work);
    // A thread that reads a terminal cannot be stopped, and there is nothing else to wait for.
    runtime.shutdown_background();
    code
}

fn run_hook(event: Option<&str>, beginning: Option<&str>) -> ExitCode {
    hook::run(event, beginning).unwrap_or_else(|| {
        eprintln!(
            "c3po: missing or unknown event; the hooks of a client run this: see `c3po hook --help`"
        );
        ExitCode::from(2)
    })
}

async fn for_a_person(command: Command, config: Config, printer: &Printer) -> Result<(), Failure> {
    let command = match command {
        Command::Completions(arguments) => return completions::run(&arguments),
        Command::Man(arguments) => return man::run(printer, &arguments),
        // Works with an invalid configuration too.
        Command::Uninstall(arguments) => return uninstall::run(&config, printer, arguments).await,
        // Works with an invalid configuration too, because it writes a new one.
        Command::Join(arguments) => return join::run(config, printer, arguments).await,
        Command::Doctor => return doctor::run(&config, printer).await,
        command => command,
    };
    if !config.problems.is_empty() {
        return Err(Failure::Usage(config.problems.join("\n")));
    }
    for warning in &config.warnings {
        eprintln!("c3po: {}", harmless(warning, true));
    }
    match command {
        Command::Proxy
        | Command::Hook { .. }
        | Command::Statusline
        | Command::Doctor
        | Command::Completions(_)
        | Command::Man(_)
        | Command::Join(_)
        | Command::Uninstall(_) => Ok(()),
        Command::Install(arguments) => install::run(&config, printer, arguments).await,
        Command::Status => status::run(config, printer).await,
        Command::Agents(arguments) => agents::run(config, printer, arguments).await,
        Command::Login(arguments) => login::run(config, printer, arguments).await,
        Command::Logout => login::log_out(config, printer).await,
        Command::Events(arguments) => events::run(config, printer, arguments).await,
        Command::Audit(arguments) => audit::run(config, printer, arguments).await,
        Command::Policy(action) => policy::run(config, printer, action).await,
        Command::Guard(action) => guard::run(config, printer, action).await,
        Command::Hosts(action) => hosts::run(config, printer, action).await,
        Command::Answers(action) => answers::run(&config, printer, action),
        command => Box::pin(as_person(command, config, printer)).await,
    }
}

/// Runs a command that acts as an agent: as `human` with the login of this host, if it has one.
async fn as_person(command: Command, config: Config, printer: &Printer) -> Result<(), Failure> {
    let config = if config.agent == AgentId::human() {
        config.of_person()
    } else {
        config
    };
    match command {
        Command::Send(arguments) => send::run(config, printer, arguments).await,
        Command::Broadcast(arguments) => broadcast::run(config, printer, arguments).await,
        Command::Inbox { follow: false } => inbox::run(config, printer).await,
        Command::Sent => sent::run(config, printer).await,
        Command::Ack(arguments) => ack::run(config, printer, arguments).await,
        Command::Reply(arguments) => reply::run(config, printer, arguments).await,
        Command::Questions(arguments) => questions::run(config, printer, arguments).await,
        Command::Answer(arguments) => answer::run(config, printer, arguments).await,
        Command::Ask(question) => ask::ask(config, printer, question).await,
        Command::Notify(notice) => ask::notify(config, printer, notice).await,
        Command::Thread(arguments) => thread::run(config, printer, arguments).await,
        Command::Receipt(arguments) => receipt::run(config, printer, arguments).await,
        _ => tail::run(config, printer).await,
    }
}

/// Returns the text of an argument; `-` reads standard input.
fn text(argument: String) -> Result<String, Failure> {
    if argument != "-" {
        return Ok(argument);
    }
    let failed =
        |why: String| Failure::Usage(format!("cannot read the text from standard input: {why}"));
    let mut bytes = Vec::new();
    std::io::stdin()
        .take(STDIN_MAX + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| failed(error.to_string()))?;
    if bytes.len() as u64 > STDIN_MAX {
        return Err(failed(format!("it is longer than {TEXT_MAX} characters")));
    }
    let text = String::from_utf8(bytes).map_err(|_| failed("it is not UTF-8".to_owned()))?;
    Ok(text.trim_end_matches('\n').to_owned())
}
