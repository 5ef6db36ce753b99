-- The bytes of messages stored with each key, by hours since 1970. Hours older than a day no longer count.
CREATE TABLE quotas (
    key   TEXT NOT NULL,
    hour  INTEGER NOT NULL,
    bytes INTEGER NOT NULL,
    PRIMARY KEY (key, hour)
) STRICT, WITHOUT ROWID;
