-- Reads a message: {envelope, history, reply}, each nothing where it is not kept.
-- ARGV: id
expire()
local kept = redis.call('HMGET', message_key(ARGV[1]), 'facts', 'history', 'env', 'reply')
if not read_facts(kept[1], ARGV[1]) then
  return { false, false, false }
end
return { kept[3], 'stored ' .. read_further_facts(kept[1]).stored .. ' - - -' .. (kept[2] or ''), kept[4] }
