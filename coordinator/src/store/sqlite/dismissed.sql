-- An agent that is deleted has no messages that could expire, and no name to withdraw. A claim of that work ends by itself.
DROP TRIGGER dismiss;
CREATE TRIGGER dismiss AFTER DELETE ON agents
BEGIN
    DELETE FROM duties WHERE id = OLD.id AND (kind = 'expire' OR kind = 'withdraw' AND claim IS NULL);
END;
DELETE FROM duties WHERE kind = 'withdraw' AND claim IS NULL AND id NOT IN (SELECT id FROM agents);
