-- How often the name was claimed: distinguishes the present link of a session from earlier ones.
ALTER TABLE agents ADD COLUMN link INTEGER NOT NULL DEFAULT 0;
