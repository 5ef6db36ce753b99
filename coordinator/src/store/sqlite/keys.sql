-- Keys and invites: hashes, never secrets. The row without an id
-- has the revisions of deleted keys, so that the sum of all revisions only grows.
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
