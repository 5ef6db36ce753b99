-- A send writes one index of the inbox instead of three. With the expiry in it, the messages of an agent that have expired
-- are found without their rows.
DROP INDEX inbox;
DROP INDEX unshown;
DROP INDEX expiring;
CREATE INDEX inbox ON messages (to_agent, shown, position, expires_at) WHERE open = 1;
