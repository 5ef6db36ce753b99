-- The context of its session: 0, and one more with each /clear and compaction.
ALTER TABLE agents ADD COLUMN context INTEGER NOT NULL DEFAULT 0;

-- 1 if an earlier session or context of the recipient was shown the message.
ALTER TABLE messages ADD COLUMN repeated INTEGER NOT NULL DEFAULT 0;
UPDATE messages SET repeated = 1 WHERE open = 1 AND shown = 0 AND history LIKE '%"in_session"%';
