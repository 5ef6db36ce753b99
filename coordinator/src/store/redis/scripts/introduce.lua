-- Makes sure that the agent exists and notes that it was seen.
-- ARGV: uid where the name is new, host
if redis.call('EXISTS', agent) == 0 then
  create(ARGV[1])
end
local held = tonumber(redis.call('HGET', agent, 'held_until')) > now
if ARGV[2] ~= '' and not held then
  redis.call('HSET', agent, 'host', ARGV[2])
end
redis.call('HSET', agent, 'last_seen', now)
return 1
