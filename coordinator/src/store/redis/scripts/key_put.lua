-- Keeps a key as its next revision: 1, or 0 where it was changed since. KEYS[1] is c3po:keys.
-- ARGV: id, revision, record
local before = redis.call('HGET', KEYS[1], ARGV[1])
local revision = before and tonumber(string.match(before, '^%d+')) or 0
if revision + 1 ~= tonumber(ARGV[2]) then
  return 0
end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[2] .. ' ' .. ARGV[3])
redis.call('HINCRBY', KEYS[1], 'changes', 1)
return 1
