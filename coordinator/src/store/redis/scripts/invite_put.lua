-- Keeps an invite, and forgets those that have ended. KEYS[1] is c3po:invites.
-- ARGV: hash, uses, expires at, record
local clock = redis.call('TIME')
local now = tonumber(clock[1]) * 1000 + math.floor(tonumber(clock[2]) / 1000)
local kept = redis.call('HGETALL', KEYS[1])
for i = 1, #kept, 2 do
  local uses, expires = string.match(kept[i + 1], '^(%d+) (%d+)')
  if uses == '0' or tonumber(expires) <= now then
    redis.call('HDEL', KEYS[1], kept[i])
  end
end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[2] .. ' ' .. ARGV[3] .. ' ' .. ARGV[4])
return 1
