-- A send writes one index of the inbox instead of three. With the expiry in it, the messages of an agent that have expired
-- are found without their rows.
DROP INDEX inbox;
DROP INDEX unshown;
DROP INDEX expiring;
CREATE INDEX inbox ON messages (to_agent, shown, position, expires_at) WHERE open = 1;

-- The envelopes of new long messages, whose rows have an empty one: a receipt rewrites the row. Earlier long messages stay
-- in their rows, so that the migration is short.
CREATE TABLE long_messages (position INTEGER PRIMARY KEY, envelope TEXT NOT NULL) STRICT;
CREATE TRIGGER shorten AFTER DELETE ON messages WHEN OLD.envelope = ''
BEGIN
    DELETE FROM long_messages WHERE position = OLD.position;
END;
