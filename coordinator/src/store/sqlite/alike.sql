-- Finds names that differ only in case: no two such names may exist.
CREATE INDEX alike ON agents (id COLLATE NOCASE);
