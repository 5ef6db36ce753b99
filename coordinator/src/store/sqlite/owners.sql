-- The owner of an agent: a host, the name that its sessions request, and the number of the session of that name, from 1. The
-- slot is 0 for an agent that no session ever held.
ALTER TABLE agents ADD COLUMN base TEXT NOT NULL DEFAULT '';
ALTER TABLE agents ADD COLUMN slot INTEGER NOT NULL DEFAULT 0;
ALTER TABLE agents RENAME COLUMN suffixed TO fleeting;

-- Until now a generated name meant that another session had the requested one: the base of web-2 is web.
UPDATE agents SET base = id;
UPDATE agents SET base = substr(rtrim(id, '0123456789'), 1, length(rtrim(id, '0123456789')) - 1)
    WHERE fleeting = 1 AND one_shot = 0 AND id GLOB '?*-[0-9]*' AND substr(rtrim(id, '0123456789'), -1) = '-';
UPDATE agents SET slot = ranked.slot
    FROM (SELECT id, row_number() OVER (PARTITION BY base, host ORDER BY fleeting, length(id), id) AS slot
        FROM agents WHERE generation > 0 AND host IS NOT NULL) AS ranked
    WHERE ranked.id = agents.id;
-- The first session of a host keeps its agent.
UPDATE agents SET fleeting = 0 WHERE slot = 1 AND one_shot = 0;
CREATE UNIQUE INDEX owners ON agents (base, host, slot) WHERE slot > 0;
