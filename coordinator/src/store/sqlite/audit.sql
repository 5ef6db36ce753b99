-- What happened, one entry a row. The number never comes again, also where the oldest rows are gone.
CREATE TABLE audit (position INTEGER PRIMARY KEY AUTOINCREMENT, entry TEXT NOT NULL) STRICT;
