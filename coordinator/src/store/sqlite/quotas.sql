-- How many bytes of messages were stored with each key in each hour since 1970. Hours of a day ago count no more.
CREATE TABLE quotas (
    key   TEXT NOT NULL,
    hour  INTEGER NOT NULL,
    bytes INTEGER NOT NULL,
    PRIMARY KEY (key, hour)
) STRICT, WITHOUT ROWID;
