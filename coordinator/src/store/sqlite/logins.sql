-- Logins of people, and their codes: as the tables of keys and invites.
CREATE TABLE logins (
    id       TEXT PRIMARY KEY,
    revision INTEGER NOT NULL,
    record   TEXT NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE login_codes (
    hash       TEXT PRIMARY KEY,
    uses       INTEGER NOT NULL,
    expires_at INTEGER NOT NULL,
    record     TEXT NOT NULL
) STRICT, WITHOUT ROWID;
