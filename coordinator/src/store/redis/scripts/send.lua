-- Puts a message into the inbox: {'stored', position, how many are unshown}, {'repeated', envelope}, {'full', count}, {'nobody'}, {'away'}
-- or {'taken'}.
-- ARGV: id, call, bound, envelope, kind, thread, sender, accepted at, expires at, wants an answer, origin of the
-- wake, life of the archive, whether who is away is spared
local id, call, bound, sender = ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[7]
local key = message_key(id)

local before = redis.call('HMGET', key, 'call', 'env')
if before[1] then
  return before[1] == call and { 'repeated', before[2] } or { 'taken' }
end
local record = redis.call('HMGET', agent, 'state', 'held_until', 'due')
if not record[1] then
  return { 'nobody' }
end
if ARGV[13] == '1' and record[1] == 'away' and tonumber(record[2]) > now then
  return { 'away' }
end
expire_due(record[3])
local count = redis.call('ZCARD', inbox)
if count >= bound then
  return { 'full', count }
end

local position = redis.call('HINCRBY', agent, 'seq', 1)
local expires = tonumber(ARGV[9])
local settled_until = tonumber(ARGV[8]) + tonumber(ARGV[12])
local kept_until = math.max(settled_until, expires + tonumber(ARGV[12]))
redis.call('HSET', key, 'id', id, 'call', call, 'env', ARGV[4], 'kind', ARGV[5], 'thread', ARGV[6], 'from', sender,
  'at', ARGV[8], 'expires', ARGV[9], 'wants', ARGV[10], 'kept_until', digits(settled_until),
  'history', 'stored ' .. digits(now) .. ' - - -')
redis.call('PEXPIREAT', key, kept_until)
redis.call('ZADD', inbox, position, id)
redis.call('ZADD', unshown, position, id)
redis.call('ZADD', expiry, expires, id)
due_from(ARGV[9], record[3])
-- The first message of a thread is found by its id.
if ARGV[6] ~= id then
  local thread = slot .. 't:' .. ARGV[6]
  redis.call('ZADD', thread, ARGV[8], id)
  redis.call('PEXPIREAT', thread, kept_until)
end
wake(ARGV[11], 'inbox', string.match(agent, '{(.*)}'))
return { 'stored', position, count == 0 and 1 or redis.call('ZCARD', unshown) }
