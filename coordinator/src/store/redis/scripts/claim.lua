-- Takes the name for a session: {uid, generation, link}, or nothing where another process holds it.
-- ARGV: instance, lease, uid where the name is new, host, session id, reach, suffixed, context, state or '', the
-- processes that are known to be dead
local instance, lease = ARGV[1], tonumber(ARGV[2])
local held = redis.call('HMGET', agent, 'instance', 'held_until', 'suffixed', 'generation')
if held[1] and held[1] ~= instance and not string.find(ARGV[10], held[1], 1, true) and tonumber(held[2]) > now then
  return false
end
if not held[1] then
  create(ARGV[3])
end
if held[1] ~= instance then
  redis.call('HINCRBY', agent, 'generation', 1)
  redis.call('HSET', agent, 'instance', instance, 'state', 'starting', 'host', ARGV[4], 'session_id', ARGV[5],
    'context', ARGV[8])
  redis.call('HDEL', agent, 'current_task')
  unshow()
  -- A name that somebody once chose is never one that was made; who comes back under its own name chooses nothing.
  local made = ARGV[7] == '1' and (held[3] == '1' or not held[1] or held[4] == '0')
  redis.call('HSET', agent, 'suffixed', made and '1' or '0')
end
enter_context(ARGV[8])
if ARGV[9] ~= '' then
  redis.call('HSET', agent, 'state', ARGV[9])
end
if ARGV[4] ~= '' then
  redis.call('HSET', agent, 'host', ARGV[4])
end
if ARGV[5] ~= '' then
  redis.call('HSET', agent, 'session_id', ARGV[5])
end
redis.call('HSET', agent, 'reach', ARGV[6], 'held_until', now + lease, 'last_seen', now)
redis.call('HINCRBY', agent, 'link', 1)
return redis.call('HMGET', agent, 'uid', 'generation', 'link')
