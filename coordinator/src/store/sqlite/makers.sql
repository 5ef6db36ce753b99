-- With which key the agent was made, or a word for those who have none; empty where that is not known. A key has so many agents.
ALTER TABLE agents ADD COLUMN made_by TEXT NOT NULL DEFAULT '';
CREATE INDEX makers ON agents (made_by) WHERE made_by <> '';
