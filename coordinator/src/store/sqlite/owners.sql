-- To whom an agent belongs: a host, by the name that its sessions wish, and which of its sessions of that name, from 1. Slot 0
-- of an agent that no session ever had.
ALTER TABLE agents ADD COLUMN base TEXT NOT NULL DEFAULT '';
ALTER TABLE agents ADD COLUMN slot INTEGER NOT NULL DEFAULT 0;
ALTER TABLE agents RENAME COLUMN suffixed TO fleeting;

-- Until now a made name told that another session had the wished one: web-2 is of web.
UPDATE agents SET base = id;
UPDATE agents SET base = substr(rtrim(id, '0123456789'), 1, length(rtrim(id, '0123456789')) - 1)
    WHERE fleeting = 1 AND one_shot = 0 AND id GLOB '?*-[0-9]*' AND substr(rtrim(id, '0123456789'), -1) = '-';
UPDATE agents SET slot = ranked.slot
    FROM (SELECT id, row_number() OVER (PARTITION BY base, host ORDER BY fleeting, length(id), id) AS slot
        FROM agents WHERE generation > 0 AND host IS NOT NULL) AS ranked
    WHERE ranked.id = agents.id;
-- What the first session of a host has it keeps.
UPDATE agents SET fleeting = 0 WHERE slot = 1 AND one_shot = 0;
CREATE UNIQUE INDEX owners ON agents (base, host, slot) WHERE slot > 0;
