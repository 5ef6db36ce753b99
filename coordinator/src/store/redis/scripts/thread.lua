-- Reads the envelopes of a thread that this agent was sent and that are kept.
-- ARGV: thread
local index = slot .. 't:' .. ARGV[1]
local kept = {}
-- The first message of a thread has its id.
local first = redis.call('HMGET', message_key(ARGV[1]), 'facts', 'env')
if read_facts(first[1], ARGV[1]) then
  kept[1] = first[2]
end
for _, id in ipairs(redis.call('ZRANGE', index, 0, -1)) do
  local envelope = redis.call('HGET', message_key(id), 'env')
  if envelope then
    kept[#kept + 1] = envelope
  else
    redis.call('ZREM', index, id)
  end
end
return kept
