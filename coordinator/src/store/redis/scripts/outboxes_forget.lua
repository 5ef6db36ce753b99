-- Forgets an agent without unfinished answers, unless it may have begun one just now. KEYS[1] is c3po:outboxes.
-- ARGV: agent, for how many seconds a note counts as just now
local clock = redis.call('TIME')
local noted = redis.call('ZSCORE', KEYS[1], ARGV[1])
if noted and tonumber(noted) < tonumber(clock[1]) - tonumber(ARGV[2]) then
  redis.call('ZREM', KEYS[1], ARGV[1])
end
return 0
