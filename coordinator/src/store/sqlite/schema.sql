CREATE TABLE agents (
    id             TEXT PRIMARY KEY,
    uid            BLOB NOT NULL,
    host           TEXT,
    session_id     TEXT,
    description    TEXT,
    capabilities   TEXT NOT NULL,
    role           TEXT,
    state          TEXT NOT NULL,
    current_task   TEXT,
    reach          TEXT NOT NULL,
    generation     INTEGER NOT NULL,
    instance       BLOB NOT NULL,
    suffixed       INTEGER NOT NULL,
    held_until     INTEGER NOT NULL,
    registered_at  INTEGER NOT NULL,
    last_seen      INTEGER NOT NULL,
    -- The number of open messages to it, so that neither a send nor a count reads the inbox.
    open_count     INTEGER NOT NULL DEFAULT 0
) STRICT, WITHOUT ROWID;

CREATE TABLE messages (
    -- One sequence for all inboxes. AUTOINCREMENT: the position of a deleted message is never reused.
    position       INTEGER PRIMARY KEY AUTOINCREMENT,
    id             TEXT NOT NULL UNIQUE,
    thread_id      TEXT NOT NULL,
    from_agent     TEXT NOT NULL,
    to_agent       TEXT NOT NULL,
    call           BLOB NOT NULL,
    is_reply       INTEGER NOT NULL,
    wants_answer   INTEGER NOT NULL,
    timestamp      INTEGER NOT NULL,
    expires_at     INTEGER NOT NULL,
    -- 1 until it is acknowledged, answered, settled as seen, or expired by its duty.
    open           INTEGER NOT NULL DEFAULT 1,
    -- 1 if the recipient's present session was shown the message.
    shown          INTEGER NOT NULL DEFAULT 0,
    reply          TEXT,
    envelope       TEXT NOT NULL,
    history        TEXT NOT NULL,
    -- The call first: its ids grow with time, so new entries are adjacent in the index.
    UNIQUE (call, to_agent)
) STRICT;

CREATE INDEX inbox ON messages (to_agent, position) WHERE open = 1;
CREATE INDEX unshown ON messages (to_agent, position) WHERE open = 1 AND shown = 0;
-- By time before agent, for the same reason. Expired messages are here only until their duty is done.
CREATE INDEX expiring ON messages (expires_at, to_agent) WHERE open = 1;
-- The first message of a thread is found by the id of the thread.
CREATE INDEX threads ON messages (thread_id) WHERE thread_id <> id;
CREATE INDEX ages ON messages (timestamp);
