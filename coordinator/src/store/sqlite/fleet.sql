-- The fleet of the database: one row, written when it is opened for the first time.
CREATE TABLE fleet (name TEXT NOT NULL) STRICT;
