-- Takes one use of an open invite: {uses before, record}, or nothing. KEYS[1] are the invites.
-- ARGV: hash
local uses, expires, record = open(redis.call('HGET', KEYS[1], ARGV[1]))
if not uses then
  return false
end
redis.call('HSET', KEYS[1], ARGV[1], (tonumber(uses) - 1) .. ' ' .. expires .. ' ' .. record)
return { uses, record }
