-- The audit, one entry per row. Numbers are never reused, even after the oldest rows were deleted.
CREATE TABLE audit (position INTEGER PRIMARY KEY AUTOINCREMENT, entry TEXT NOT NULL) STRICT;
