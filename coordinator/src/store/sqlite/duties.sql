-- Timed work: a row until it is done. `due` is the time of the work, `until` the end of a claim.
CREATE TABLE duties (
    kind  TEXT NOT NULL,
    id    TEXT NOT NULL,
    due   INTEGER NOT NULL,
    -- The id of the claim; NULL unless the row is claimed.
    claim BLOB,
    until INTEGER,
    -- The time for which the duty was planned during its claim.
    again INTEGER,
    PRIMARY KEY (kind, id)
) STRICT, WITHOUT ROWID;
CREATE INDEX due ON duties (coalesce(until, due));

-- An agent that is deleted has no messages that could expire.
CREATE TRIGGER dismiss AFTER DELETE ON agents
BEGIN
    DELETE FROM duties WHERE kind = 'expire' AND id = OLD.id;
END;

-- The first message of each inbox to expire. An hour for an agent with a generated name to come back, 30 days for others.
INSERT INTO duties (kind, id, due)
    SELECT 'expire', to_agent, min(expires_at) FROM messages WHERE open = 1 GROUP BY to_agent;
INSERT INTO duties (kind, id, due)
    SELECT 'withdraw', id, iif(one_shot, held_until, max(held_until, last_seen) + iif(fleeting, 3600000, 2592000000))
        FROM agents WHERE one_shot = 1 OR fleeting = 1 OR slot > 0;
