-- Finds a name that differs from another in case alone: none is taken beside it.
CREATE INDEX alike ON agents (id COLLATE NOCASE);
