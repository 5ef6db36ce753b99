-- Puts a message into the inbox: {'stored', how many are unshown}, {'repeated', envelope}, {'full', count}, {'nobody'}, {'away'} or {'taken'}.
-- ARGV: id, call, bound, envelope, kind, thread, sender, accepted at, expires at, wants an answer, origin of the
-- wake, life of the call, life of the archive, whether who is away is spared
local id, bound, sender = ARGV[1], tonumber(ARGV[3]), ARGV[7]
local key, call = message_key(id), slot .. 'call:' .. ARGV[2]

local before = redis.call('GET', call)
if before then
  return { 'repeated', redis.call('HGET', message_key(before), 'env') }
end
if redis.call('EXISTS', agent) == 0 then
  return { 'nobody' }
end
if ARGV[14] == '1' then
  local session = redis.call('HMGET', agent, 'state', 'held_until')
  if session[1] == 'away' and tonumber(session[2]) > now then
    return { 'away' }
  end
end
expire_due()
local count = redis.call('ZCARD', inbox)
if count >= bound then
  return { 'full', count }
end
if redis.call('EXISTS', key) == 1 then
  return { 'taken' }
end

local position = redis.call('HINCRBY', agent, 'seq', 1)
local expires = tonumber(ARGV[9])
local settled_until = tonumber(ARGV[8]) + tonumber(ARGV[13])
local kept_until = math.max(settled_until, expires + tonumber(ARGV[12]))
redis.call('HSET', key, 'env', ARGV[4], 'kind', ARGV[5], 'thread', ARGV[6], 'from', sender, 'at', ARGV[8],
  'expires', ARGV[9], 'wants', ARGV[10], 'kept_until', digits(settled_until), 'history', 'stored ' .. digits(now) .. ' - - -')
redis.call('PEXPIREAT', key, kept_until)
redis.call('ZADD', inbox, position, id)
redis.call('ZADD', unshown, position, id)
redis.call('ZADD', expiry, expires, id)
local thread = slot .. 't:' .. ARGV[6]
redis.call('ZADD', thread, ARGV[8], id)
redis.call('PEXPIREAT', thread, kept_until)
redis.call('SET', call, id, 'PX', ARGV[12])
wake(ARGV[11], 'inbox', string.match(agent, '{(.*)}'))
return { 'stored', redis.call('ZCARD', unshown) }
