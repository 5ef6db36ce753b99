-- Until when it is kept: for a time of its own behind its end, or behind the moment that settled it where that comes first.
ALTER TABLE messages ADD COLUMN kept_until INTEGER NOT NULL DEFAULT 0;
-- A week; news, which are neither questions nor replies, a day. When a message was settled is not known of the earlier
-- formats: it is kept as long as they would have kept it.
UPDATE messages SET kept_until =
    CASE WHEN open = 0 THEN timestamp + 604800000
         ELSE expires_at + iif(wants_answer = 0 AND is_reply = 0, 86400000, 604800000) END;
DROP INDEX ages;
CREATE INDEX kept ON messages (kept_until) WHERE open = 0;
