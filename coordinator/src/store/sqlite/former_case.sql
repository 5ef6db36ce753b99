-- A name stays reserved in every spelling: names that differ only in case are one name.
DROP TRIGGER reserve;
UPDATE OR REPLACE former SET id = lower(id);
CREATE TRIGGER reserve AFTER DELETE ON agents WHEN OLD.reserved = 1 AND OLD.host IS NOT NULL
BEGIN
    INSERT OR REPLACE INTO former
        VALUES (lower(OLD.id), OLD.host, OLD.made_by, CAST(unixepoch('subsec') * 1000 AS INTEGER));
    DELETE FROM former WHERE id =
        (SELECT id FROM former WHERE made_by = OLD.made_by ORDER BY at DESC LIMIT 1 OFFSET 1000);
END;
