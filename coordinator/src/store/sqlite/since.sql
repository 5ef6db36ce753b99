-- When the host of a reserved name first had it: a later agent of the host has received the mail of the earlier one. It is 0, so
-- always, for a name that was reserved before.
ALTER TABLE former ADD COLUMN since INTEGER NOT NULL DEFAULT 0;
DROP TRIGGER reserve;
CREATE TRIGGER reserve AFTER DELETE ON agents WHEN OLD.reserved = 1 AND OLD.host IS NOT NULL
BEGIN
    INSERT OR REPLACE INTO former (id, host, made_by, at, since)
        VALUES (lower(OLD.id), OLD.host, OLD.made_by, CAST(unixepoch('subsec') * 1000 AS INTEGER), OLD.registered_at);
    DELETE FROM former WHERE id =
        (SELECT id FROM former WHERE made_by = OLD.made_by ORDER BY at DESC LIMIT 1 OFFSET 1000);
END;
