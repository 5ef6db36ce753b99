-- The key that made the agent, or a word for clients without one; empty if unknown. Agents are limited per key.
ALTER TABLE agents ADD COLUMN made_by TEXT NOT NULL DEFAULT '';
CREATE INDEX makers ON agents (made_by) WHERE made_by <> '';
