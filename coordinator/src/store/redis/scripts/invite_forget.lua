-- Forgets an open invite: {uses, record} as it was, or nothing. KEYS[1] are the invites.
-- ARGV: hash
local uses, _, record = open(redis.call('HGET', KEYS[1], ARGV[1]))
if not uses then
  return false
end
redis.call('HDEL', KEYS[1], ARGV[1])
return { uses, record }
