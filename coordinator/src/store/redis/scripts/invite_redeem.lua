-- Looks at an invite, and takes uses of it: {uses before, record}, or nothing. KEYS[1] is c3po:invites.
-- ARGV: hash, how many uses are taken
local clock = redis.call('TIME')
local now = tonumber(clock[1]) * 1000 + math.floor(tonumber(clock[2]) / 1000)
local uses, expires, record = string.match(redis.call('HGET', KEYS[1], ARGV[1]) or '', '^(%d+) (%d+) (.*)$')
if not uses or uses == '0' or tonumber(expires) <= now then
  return false
end
if ARGV[2] == '0' then
  return { uses, record }
end
redis.call('HSET', KEYS[1], ARGV[1], (tonumber(uses) - tonumber(ARGV[2])) .. ' ' .. expires .. ' ' .. record)
return { uses, record }
