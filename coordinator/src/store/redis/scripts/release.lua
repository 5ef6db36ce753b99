-- Ends a session's hold: 'outdated', 'kept' or 'forgotten'.
-- ARGV: generation, instance, for how long positions are kept
if outdated(ARGV[1], ARGV[2]) then
  return 'outdated'
end
expire()
redis.call('HSET', agent, 'held_until', '0', 'last_seen', now)
if redis.call('HGET', agent, 'suffixed') == '1' and count_inbox() == 0 then
  forget(ARGV[3])
  return 'forgotten'
end
return 'kept'
