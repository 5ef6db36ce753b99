-- Reads a message: {envelope, history, reply}, each nothing where it is not kept.
-- ARGV: id
expire()
local facts = redis.call('HMGET', message_key(ARGV[1]), 'env', 'history', 'reply', 'id')
if facts[4] ~= ARGV[1] then
  return { false, false, false }
end
return { facts[1], facts[2], facts[3] }
