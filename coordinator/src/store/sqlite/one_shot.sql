-- 1 if the agent is a session that answers one prompt and ends: it leaves nothing behind.
ALTER TABLE agents ADD COLUMN one_shot INTEGER NOT NULL DEFAULT 0;

-- 1 for a question of such a session: it ends with the session. Other messages are not in the index and cost nothing.
ALTER TABLE messages ADD COLUMN one_shot INTEGER NOT NULL DEFAULT 0;
CREATE INDEX asked ON messages (from_agent) WHERE one_shot = 1 AND open = 1;
