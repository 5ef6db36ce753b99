-- Makes a hold last: 1, or 0 where the tenure is outdated.
-- ARGV: generation, instance, lease
if outdated(ARGV[1], ARGV[2]) then
  return 0
end
redis.call('HSET', agent, 'held_until', now + tonumber(ARGV[3]), 'last_seen', now)
return 1
