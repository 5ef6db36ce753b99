-- Ends any hold: 'unknown', 'kept' or 'forgotten'.
-- ARGV: for how long positions are kept
if redis.call('EXISTS', agent) == 0 then
  return 'unknown'
end
expire()
redis.call('HSET', agent, 'held_until', '0')
if count_inbox() == 0 then
  forget(ARGV[1])
  return 'forgotten'
end
return 'kept'
