-- Decisions of people about pairs of agents: stopped until they are allowed, or allowed with a new count.
CREATE TABLE guard (pair TEXT PRIMARY KEY, stopped INTEGER NOT NULL, at INTEGER NOT NULL) STRICT, WITHOUT ROWID;

-- When a person last typed a prompt in the agent's session; 0 if none is known.
ALTER TABLE agents ADD COLUMN prompted_at INTEGER NOT NULL DEFAULT 0;
