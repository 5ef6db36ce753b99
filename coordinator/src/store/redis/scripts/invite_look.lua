-- Looks at an open invite: {uses, record}, or nothing. KEYS[1] are the invites.
-- ARGV: hash
local uses, _, record = open(redis.call('HGET', KEYS[1], ARGV[1]))
return uses and { uses, record }
