-- Keeps an invite, and forgets those that have ended. KEYS[1] are the invites.
-- ARGV: hash, uses, expires at, record
local kept = redis.call('HGETALL', KEYS[1])
for i = 1, #kept, 2 do
  if not open(kept[i + 1]) then
    redis.call('HDEL', KEYS[1], kept[i])
  end
end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[2] .. ' ' .. ARGV[3] .. ' ' .. ARGV[4])
return 1
