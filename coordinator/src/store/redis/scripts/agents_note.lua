-- Notes the name of an agent. KEYS[1] is c3po:agents.
-- ARGV: agent
return redis.call('ZADD', KEYS[1], 0, ARGV[1])
