-- The end of its storage: a fixed time after it expires, or after it was settled if that comes first.
ALTER TABLE messages ADD COLUMN kept_until INTEGER NOT NULL DEFAULT 0;
-- A week; for news, which is neither a question nor a reply, a day. Earlier formats did not record when a message was
-- settled: it is stored as long as they would have stored it.
UPDATE messages SET kept_until =
    CASE WHEN open = 0 THEN timestamp + 604800000
         ELSE expires_at + iif(wants_answer = 0 AND is_reply = 0, 86400000, 604800000) END;
DROP INDEX ages;
CREATE INDEX kept ON messages (kept_until) WHERE open = 0;
