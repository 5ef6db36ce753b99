-- Reads a message: {envelope, history, reply}, each nothing where it is not kept.
-- ARGV: id
expire()
local kept = redis.call('HMGET', message_key(ARGV[1]), 'facts', 'history', 'env', 'reply')
local facts = read_facts(kept[1], ARGV[1])
if not facts then
  return { false, false, false }
end
return { kept[3], 'stored ' .. facts.stored .. ' - - -' .. (kept[2] or ''), kept[4] }
