-- Takes one use of an open invite and keeps a new key: 1, or 0 where it is over, a key has that id, or the key that the
-- invite was made with was changed since. KEYS[1] is c3po:keys, KEYS[2] are the invites.
-- ARGV: hash, id of the key, its revision, its record, id and revision of the key that it was made with, or two times ''
local uses, expires, record = open(redis.call('HGET', KEYS[2], ARGV[1]))
if not uses or redis.call('HEXISTS', KEYS[1], ARGV[2]) == 1 then
  return 0
end
if ARGV[5] ~= '' then
  local kept = redis.call('HGET', KEYS[1], ARGV[5]) or ''
  if string.match(kept, '^%d+') ~= ARGV[6] then
    return 0
  end
end
redis.call('HSET', KEYS[2], ARGV[1], (tonumber(uses) - 1) .. ' ' .. expires .. ' ' .. record)
redis.call('HSET', KEYS[1], ARGV[2], ARGV[3] .. ' ' .. ARGV[4])
redis.call('HINCRBY', KEYS[1], 'changes', 1)
return 1
