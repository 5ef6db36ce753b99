-- Forgets a key, unless it was changed since. KEYS[1] is c3po:keys.
-- ARGV: id, revision
local before = redis.call('HGET', KEYS[1], ARGV[1])
if before and string.match(before, '^%d+') == ARGV[2] then
  redis.call('HDEL', KEYS[1], ARGV[1])
  redis.call('HINCRBY', KEYS[1], 'changes', 1)
end
return 1
