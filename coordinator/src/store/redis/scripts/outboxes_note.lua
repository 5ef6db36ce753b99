-- Notes that this agent may have an unfinished answer. KEYS[1] is c3po:outboxes.
-- ARGV: agent
local clock = redis.call('TIME')
return redis.call('ZADD', KEYS[1], clock[1], ARGV[1])
