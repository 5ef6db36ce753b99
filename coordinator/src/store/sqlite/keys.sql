-- Keys and invites: hashes, never secrets. Keys stay when they have ended, so that the sum of their revisions only grows.
CREATE TABLE keys (
    id       TEXT PRIMARY KEY,
    revision INTEGER NOT NULL,
    record   TEXT NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE invites (
    hash       TEXT PRIMARY KEY,
    uses       INTEGER NOT NULL,
    expires_at INTEGER NOT NULL,
    record     TEXT NOT NULL
) STRICT, WITHOUT ROWID;
