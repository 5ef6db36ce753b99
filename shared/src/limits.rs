//! Every number that bounds something a user can meet. Each refusal names its limit and the current count.

use std::time::Duration;

/// The longest `message`, `response` or `context`, in characters.
pub const TEXT_MAX: usize = 50_000;
/// The longest `title`, in characters.
pub const TITLE_MAX: usize = 200;
/// The longest `description`, `current_task` or single capability, in characters.
pub const LABEL_MAX: usize = 500;

/// The highest number that a context of a session may have. Every store counts so far.
pub const CONTEXT_MAX: u64 = u32::MAX as u64;
/// How many capabilities an agent may name.
pub const CAPABILITIES_MAX: usize = 50;
/// The largest frame on the link, in bytes.
pub const FRAME_MAX: usize = 1 << 20;
/// The largest frame on the link before `hello` was answered, in bytes.
pub const HELLO_MAX: usize = 16 << 10;
/// How many bytes of messages and requests that are not whole, or whose calls are not done, a coordinator holds.
pub const UNFINISHED_MAX: usize = 64 << 20;
/// How many of them may come under one key, or without any.
pub const UNFINISHED_PER_KEY: usize = 16 << 20;
/// How many unacknowledged messages an inbox holds before senders get `INBOX_FULL`.
pub const INBOX_MAX: usize = 1_000;
/// How long a message waits for its recipient, unless the coordinator is told another time.
pub const MESSAGE_LIFE: Duration = Duration::from_secs(7 * 24 * 60 * 60);
/// The shortest life of messages that a coordinator can be told.
pub const MESSAGE_LIFE_MIN: Duration = Duration::from_secs(60 * 60);
/// The longest life of messages that a coordinator can be told.
pub const MESSAGE_LIFE_MAX: Duration = Duration::from_secs(30 * 24 * 60 * 60);
/// How long questions and replies stay readable in threads and receipts once they are settled.
pub const ARCHIVE_LIFE: Duration = Duration::from_secs(7 * 24 * 60 * 60);
/// How long other messages do, which want no answer.
pub const NEWS_LIFE: Duration = Duration::from_secs(24 * 60 * 60);
/// Sends per rolling minute and agent, unless the coordinator is told another number.
pub const SENDS_PER_MINUTE: u32 = 200;
/// Messages and replies between two agents within [`LOOP_WINDOW`] without a person, unless the coordinator is told another
/// number.
pub const LOOP_MESSAGES: u32 = 60;
/// How long a message between two agents counts towards that.
pub const LOOP_WINDOW: Duration = Duration::from_secs(10 * 60);
/// How long a host keeps the name of an agent that is not seen and leaves nothing behind.
pub const NAME_LIFE: Duration = Duration::from_secs(30 * 24 * 60 * 60);
/// How many processes `hello` may name that are known to be dead.
pub const SUCCEEDS_MAX: usize = 8;
/// The longest wait, in seconds.
pub const WAIT_MAX: u64 = 3_600;
/// The wait where none is named, in seconds.
pub const WAIT_DEFAULT: u64 = 60;
/// How many messages a page of `get_messages` holds where no limit is named.
pub const PAGE_DEFAULT: usize = 50;
/// How many messages or agents one page can be asked for.
pub const PAGE_MAX: usize = 1_000;
/// The longest result of a tool that reads, in bytes of JSON: it fits into 25,000 tokens, of which clients take no more.
pub const PAGE_BYTES: usize = 24_000;
/// How many message ids one call may name.
pub const IDS_MAX: usize = 1_000;
/// How often a proxy says that it is alive.
pub const HEARTBEAT: Duration = Duration::from_secs(15);
/// After how much silence a proxy counts as gone.
pub const SILENCE_MAX: Duration = Duration::from_secs(45);
/// From how much on it is reported that a host's clock and the coordinator's are apart.
pub const CLOCK_SKEW: Duration = Duration::from_secs(5);
/// How long a client without a proxy stays online after a request.
pub const HTTP_PRESENCE: Duration = Duration::from_secs(90);
/// How many calls one connection may have under way.
pub const CALLS_IN_FLIGHT: usize = 256;

/// How long an invite lasts where nothing is said.
pub const INVITE_LIFE: Duration = Duration::from_secs(15 * 60);
/// How long an invite may last.
pub const INVITE_LIFE_MAX: Duration = Duration::from_secs(7 * 24 * 3_600);
/// How many hosts one invite may let in.
pub const INVITE_USES_MAX: u32 = 1_000;
/// How many invites may be open at once.
pub const INVITES_MAX: usize = 1_000;
/// How many bytes of messages may be stored with one key within [`QUOTA_HOURS`], unless the coordinator is told another number.
pub const STORE_QUOTA: u64 = 256_000_000;
/// For how many hours a message counts towards that, the one in which it was stored among them.
pub const QUOTA_HOURS: u64 = 24;
/// How many agents there may be that were made with one key.
pub const AGENTS_PER_KEY: usize = 1_000;
/// How many there may be that were made without a key, together.
pub const AGENTS_WITHOUT_KEY: usize = 20_000;
/// How many keys there may be. A new one takes the place of the one that ended first.
pub const KEYS_MAX: usize = 10_000;
/// How long a key may last that ends by itself.
pub const KEY_LIFE_MAX: Duration = Duration::from_secs(10 * 365 * 24 * 3_600);
/// How many globs of agents one key may have.
pub const GLOBS_MAX: usize = 32;
/// How many wrong join codes are told to be wrong in a minute, of all hosts together.
pub const WRONG_CODES_PER_MINUTE: u32 = 30;
/// How many links and requests may go on under one key at once.
pub const AT_ONCE_PER_KEY: usize = 2_000;
/// How many rules a policy may have.
pub const POLICY_RULES_MAX: usize = 1_000;
/// The largest file of rules, in bytes.
pub const POLICY_BYTES_MAX: u64 = 1 << 20;
/// How many entries the audit keeps, unless the coordinator is told another number.
pub const AUDIT_ENTRIES: u64 = 100_000;
/// How many entries one page of the audit can have.
pub const AUDIT_PAGE_MAX: usize = 1_000;
