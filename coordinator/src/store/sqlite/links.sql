-- How often the name was claimed: tells the present link of a session from its earlier ones.
ALTER TABLE agents ADD COLUMN link INTEGER NOT NULL DEFAULT 0;
