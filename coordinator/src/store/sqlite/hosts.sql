-- The host that a message to people counts for, also when its agent is deleted. The coordinator counts as a host.
ALTER TABLE messages ADD COLUMN counts_for TEXT;
UPDATE messages SET counts_for = CASE from_agent WHEN 'system' THEN 'system::' ELSE
        coalesce((SELECT host FROM agents WHERE agents.id = from_agent),
                 (SELECT host FROM former WHERE former.id = lower(from_agent)), '') END
    WHERE to_agent = 'human' AND open = 1;
