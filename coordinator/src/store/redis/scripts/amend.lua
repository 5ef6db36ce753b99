-- Changes fields of the record: 1, or 0 where there is no such agent.
-- ARGV: field, value, field, value, ...
if redis.call('EXISTS', agent) == 0 then
  return 0
end
if #ARGV > 0 then
  redis.call('HSET', agent, unpack(ARGV))
end
return 1
