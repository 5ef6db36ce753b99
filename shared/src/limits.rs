//! Every limit that a user can meet. Each refusal names its limit and the current count.

use std::time::Duration;

/// The longest `message`, `response` or `context`, in characters.
pub const TEXT_MAX: usize = 50_000;
/// The longest `title`, in characters.
pub const TITLE_MAX: usize = 200;
/// The longest `description`, `current_task` or single capability, in characters.
pub const LABEL_MAX: usize = 500;

/// The highest context number that a session may have. Every store can count that far.
pub const CONTEXT_MAX: u64 = u32::MAX as u64;
/// The maximum number of capabilities of an agent.
pub const CAPABILITIES_MAX: usize = 50;
/// The most characters of all capabilities together.
pub const CAPABILITIES_TEXT_MAX: usize = 2_000;
/// The largest frame on the link, in bytes.
pub const FRAME_MAX: usize = 1 << 20;
/// The largest frame on the link before `hello` is answered, in bytes.
pub const HELLO_MAX: usize = 16 << 10;
/// The most bytes of incomplete messages and requests, and of calls in progress, that a coordinator holds; and as many again
/// of long answers that are not written yet.
pub const UNFINISHED_MAX: usize = 64 << 20;
/// The most of either that one key may use, or all requests without a key.
pub const UNFINISHED_PER_KEY: usize = 16 << 20;
/// The rate of messages and requests above 4 KiB, and heads of requests above 2 KiB, of one key, or of all clients without a
/// key, in bytes per second.
pub const LONG_INPUT_PER_SECOND: u32 = 8 << 20;
/// The most unacknowledged messages in an inbox before senders get `INBOX_FULL`.
pub const INBOX_MAX: usize = 1_000;
/// How long a message waits for its recipient, unless configured otherwise.
pub const MESSAGE_LIFE: Duration = Duration::from_secs(7 * 24 * 60 * 60);
/// The shortest message lifetime that can be configured.
pub const MESSAGE_LIFE_MIN: Duration = Duration::from_secs(60 * 60);
/// The longest message lifetime that can be configured.
pub const MESSAGE_LIFE_MAX: Duration = Duration::from_secs(30 * 24 * 60 * 60);
/// How long questions and replies stay readable in threads and receipts after they are settled.
pub const ARCHIVE_LIFE: Duration = Duration::from_secs(7 * 24 * 60 * 60);
/// How long messages that need no answer stay readable after they are settled; reports about an open question as long as questions.
pub const NEWS_LIFE: Duration = Duration::from_secs(24 * 60 * 60);
/// The default rate limit: sends per rolling minute and agent.
pub const SENDS_PER_MINUTE: u32 = 200;
/// The default limit of messages and replies between two agents within [`LOOP_WINDOW`] without a person.
pub const LOOP_MESSAGES: u32 = 60;
/// How long a message between two agents counts towards that limit.
pub const LOOP_WINDOW: Duration = Duration::from_secs(10 * 60);
/// How long a host keeps the name of an agent that is not seen and has no messages.
pub const NAME_LIFE: Duration = Duration::from_secs(30 * 24 * 60 * 60);
/// The most dead processes that one `hello` may name.
pub const SUCCEEDS_MAX: usize = 8;
/// The longest wait, in seconds.
pub const WAIT_MAX: u64 = 3_600;
/// The default length of a wait, in seconds.
pub const WAIT_DEFAULT: u64 = 60;
/// The longest wait for people, in seconds. Their question lives longer.
pub const ASK_MAX: u64 = 86_400;
/// The default length of a wait for people, in seconds.
pub const ASK_DEFAULT: u64 = 1_800;
/// The default size of a page of `get_messages`.
pub const PAGE_DEFAULT: usize = 50;
/// The largest page of messages or agents.
pub const PAGE_MAX: usize = 1_000;
/// The longest result of a tool that reads, in bytes of JSON: it fits into 25,000 tokens, the limit of clients.
pub const PAGE_BYTES: usize = 24_000;
/// The longest reply, as JSON in bytes, that a full store still accepts.
pub const SHORT_REPLY_BYTES: usize = 4 << 10;
/// The most message ids in one call.
pub const IDS_MAX: usize = 1_000;
/// The interval of a proxy's heartbeats.
pub const HEARTBEAT: Duration = Duration::from_secs(15);
/// The silence after which a proxy counts as gone.
pub const SILENCE_MAX: Duration = Duration::from_secs(45);
/// The difference between the clocks of a host and the coordinator, or of that and Redis, from which it is reported.
pub const CLOCK_SKEW: Duration = Duration::from_secs(5);
/// How long a client without a proxy counts as online after a request.
pub const HTTP_PRESENCE: Duration = Duration::from_secs(90);
/// The most calls that may be in flight on one connection.
pub const CALLS_IN_FLIGHT: usize = 256;

/// The default lifetime of an invite.
pub const INVITE_LIFE: Duration = Duration::from_secs(15 * 60);
/// The longest lifetime of an invite.
pub const INVITE_LIFE_MAX: Duration = Duration::from_secs(7 * 24 * 3_600);
/// The most hosts that can join with one invite.
pub const INVITE_USES_MAX: u32 = 1_000;
/// The most invites that may be open at once.
pub const INVITES_MAX: usize = 1_000;
/// The default quota: bytes of messages stored per key within [`QUOTA_HOURS`].
pub const STORE_QUOTA: u64 = 256_000_000;
/// The hours for which a message counts towards the quota, including the one in which it was stored.
pub const QUOTA_HOURS: u64 = 24;
/// The most agents that may be created with one key.
pub const AGENTS_PER_KEY: usize = 1_000;
/// The most agents that may be created without a key, in total.
pub const AGENTS_WITHOUT_KEY: usize = 20_000;
/// The most keys that are kept. A new one replaces the one that ended first.
pub const KEYS_MAX: usize = 10_000;
/// The longest lifetime of a key that expires.
pub const KEY_LIFE_MAX: Duration = Duration::from_secs(10 * 365 * 24 * 3_600);
/// The most agent globs of one key.
pub const GLOBS_MAX: usize = 32;
/// The most wrong join codes that are answered as wrong within a minute, from all hosts together.
pub const WRONG_CODES_PER_MINUTE: u32 = 30;
/// How long a login is valid after its latest use.
pub const LOGIN_LIFE: Duration = Duration::from_secs(30 * 24 * 3_600);
/// The least time between two extensions of a login.
pub const LOGIN_EXTENDED_EVERY: Duration = Duration::from_secs(3_600);
/// How long the code of a login is valid.
pub const LOGIN_CODE_LIFE: Duration = Duration::from_secs(15 * 60);
/// The most logins that are kept. A new one replaces the one that ended first.
pub const LOGINS_MAX: usize = 1_000;
/// The most codes of logins that may be open at once.
pub const LOGIN_CODES_MAX: usize = 100;
/// The most concurrent links and requests under one key.
pub const AT_ONCE_PER_KEY: usize = 2_000;

/// The most simultaneous calls and receipts under one key, besides waits. A further one waits, and is refused
/// after about two seconds.
pub const CALLS_PER_KEY: usize = 64;
/// The same for all clients without a key of their own: they may be many hosts.
pub const CALLS_WITHOUT_KEY: usize = 256;
/// The rate of calls and receipts of one key, per second. Work that grows with stored or sent data counts more than once: the
/// prices are in `docs/API.md`.
pub const CALLS_PER_SECOND: u32 = 5_000;

/// The most simultaneous reads of texts and long lists, acknowledgements of more than four messages, and sends of many copies, under
/// one key.
/// A further one waits as above.
pub const READS_PER_KEY: usize = 2;
/// The same for all clients without a key of their own: they may be many hosts.
pub const READS_WITHOUT_KEY: usize = 16;

/// The most simultaneous pages of the audit or of events under one key, whose reads take turns with others. A further one waits
/// as above.
pub const LOG_PAGES_PER_KEY: usize = 2;
/// The same for all clients without a key of their own.
pub const LOG_PAGES_WITHOUT_KEY: usize = 4;

/// The most simultaneous pages of the open questions to people under one key, whose reads take turns with others. A further one
/// waits as above.
pub const QUESTION_PAGES_PER_KEY: usize = 2;
/// The same for all clients without a key of their own.
pub const QUESTION_PAGES_WITHOUT_KEY: usize = 4;

/// The most simultaneous lists without texts under one key: of agents, and of who waits for people. A further one waits as above.
pub const LISTS_PER_KEY: usize = 1;
/// The same for all clients without a key of their own.
pub const LISTS_WITHOUT_KEY: usize = 4;

/// The most simultaneous waits under one key.
pub const WAITS_PER_KEY: usize = 4_096;

/// The most simultaneous waits of all clients without a key.
pub const WAITS_WITHOUT_KEY: usize = 6_144;
/// The most parts of a question to people.
pub const PARTS_MAX: usize = 4;
/// The most options of a part.
pub const OPTIONS_MAX: usize = 10;
/// The longest label of an option, in characters.
pub const OPTION_LABEL_MAX: usize = 80;
/// The largest request of a client that people are asked about, in bytes of JSON. A larger one stays at the terminal.
pub const REQUEST_MAX: usize = 256 << 10;
/// The most open questions to people, in total.
pub const QUESTIONS_MAX: usize = 500;
/// The most open questions to people of one agent.
pub const QUESTIONS_PER_AGENT: usize = 20;
/// The most open questions to people of the agents of one host.
pub const QUESTIONS_PER_HOST: usize = 100;
/// The most notices in the inbox of people. A further one replaces the oldest of an agent.
pub const NOTICES_MAX: usize = 1_000;
/// The most notices of the agents of one host. A further one replaces the oldest of them.
pub const NOTICES_PER_HOST: usize = 100;
/// The longest name of a saved answer, in characters.
pub const SAVED_NAME_MAX: usize = 40;
/// How old a question is by default before it is pushed: many are answered by then.
pub const PUSH_GRACE: Duration = Duration::from_secs(10);
/// The longest time that may be set for that.
pub const PUSH_GRACE_MAX: Duration = Duration::from_secs(600);
/// How long an input of a person on a page keeps the pushes of questions to that person waiting.
pub const PAGE_USED_WITHIN: Duration = Duration::from_secs(60);
/// The longest text of a push, in bytes. ntfy makes a longer one a file.
pub const PUSH_BYTES_MAX: usize = 4_000;
/// The most pushes to a person within [`PUSHES_WITHIN`]. Further questions are only counted in one that is updated.
pub const PUSHES_MAX: usize = 10;
/// How many of them may be of agents of one host.
pub const PUSHES_PER_HOST: usize = 8;
/// The time in which pushes are counted.
pub const PUSHES_WITHIN: Duration = Duration::from_secs(300);
/// The wrong codes within a minute after which answers in words of a reply topic are ignored for a minute; buttons go on.
pub const WRONG_REPLIES_MAX: usize = 5;
/// The most people in `notify.toml`.
pub const NOTIFY_PEOPLE_MAX: usize = 32;
/// The largest `notify.toml`, in bytes.
pub const NOTIFY_BYTES_MAX: u64 = 64 << 10;
/// How soon a triage agent takes a question before people are notified.
pub const TRIAGE_WITHIN: Duration = Duration::from_secs(30);
/// How long a triage agent keeps a question from the notifications of people.
pub const TRIAGE_CLAIM: Duration = Duration::from_secs(5 * 60);
/// How long a person may correct the answer of a triage agent.
pub const CORRECTED_WITHIN: Duration = Duration::from_secs(24 * 3_600);
/// The most triage agents in a policy.
pub const TRIAGE_AGENTS_MAX: usize = 16;
/// The most words that a policy keeps from triage agents.
pub const TRIAGE_WORDS_MAX: usize = 100;
/// The most rules in a policy.
pub const POLICY_RULES_MAX: usize = 1_000;
/// The largest rules file, in bytes.
pub const POLICY_BYTES_MAX: u64 = 1 << 20;
/// The default number of entries that the audit keeps.
pub const AUDIT_ENTRIES: u64 = 100_000;
/// The entries that the audit keeps at least, when the store is full or nearly full.
pub const AUDIT_ENTRIES_LEAST: u64 = 2_000;
/// The largest page of the audit, in entries.
pub const AUDIT_PAGE_MAX: usize = 1_000;
/// The most streams of events that a coordinator serves at once.
pub const EVENT_READERS: usize = 32;
/// The most streams of events under one key or login.
pub const EVENT_READERS_PER_KEY: usize = 8;
