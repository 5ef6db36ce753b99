-- The host for which the name of a deleted agent stays reserved, so that no other host gets the messages still stored.
CREATE TABLE former (
    id      TEXT PRIMARY KEY,
    host    TEXT NOT NULL,
    made_by TEXT NOT NULL,
    at      INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX formers ON former (made_by, at);

-- 1 if the name stays reserved when the agent is deleted.
ALTER TABLE agents ADD COLUMN reserved INTEGER NOT NULL DEFAULT 0;

-- At most 1,000 names for each key: the oldest reservation ends first.
CREATE TRIGGER reserve AFTER DELETE ON agents WHEN OLD.reserved = 1 AND OLD.host IS NOT NULL
BEGIN
    INSERT OR REPLACE INTO former VALUES (OLD.id, OLD.host, OLD.made_by, CAST(unixepoch('subsec') * 1000 AS INTEGER));
    DELETE FROM former WHERE id =
        (SELECT id FROM former WHERE made_by = OLD.made_by ORDER BY at DESC LIMIT 1 OFFSET 1000);
END;
