-- Ends a session's hold: 'outdated', 'kept' or 'forgotten'.
-- ARGV: generation, instance, link, for how long positions are kept
if outdated(ARGV[1], ARGV[2]) or redis.call('HGET', agent, 'link') ~= ARGV[3] then
  return 'outdated'
end
expire()
redis.call('HSET', agent, 'held_until', '0', 'last_seen', now)
if redis.call('HGET', agent, 'suffixed') == '1' and count_inbox() == 0 then
  forget(ARGV[4])
  return 'forgotten'
end
return 'kept'
