-- Puts a message into the inbox: {'stored', position, whether it is the only one that is unshown}, {'repeated', envelope},
-- {'full', count}, {'nobody'}, {'away'} or {'taken'}.
-- ARGV: id, call, bound, envelope, facts but for when it was stored, expires at, kept until, thread or '' where it begins
-- one, accepted at, origin of the wake, whether who is away is spared
local id, call, bound = ARGV[1], ARGV[2], tonumber(ARGV[3])
local key = message_key(id)

local before = redis.call('HMGET', key, 'facts', 'env')
if before[1] then
  return string.match(before[1], '(%S+) %d+$') == call and { 'repeated', before[2] } or { 'taken' }
end
local record = redis.call('HMGET', agent, 'state', 'held_until', 'due')
if not record[1] then
  return { 'nobody' }
end
if ARGV[11] == '1' and record[1] == 'away' and tonumber(record[2]) > now then
  return { 'away' }
end
local due = expire_due(record[3])
local others = redis.call('ZCARD', unshown)
local count = others + redis.call('ZCARD', shown)
if count >= bound then
  return { 'full', count }
end

local position = redis.call('HINCRBY', agent, 'seq', 1)
redis.call('HSET', key, 'facts', ARGV[5] .. ' ' .. now, 'env', ARGV[4])
redis.call('PEXPIREAT', key, ARGV[7])
redis.call('ZADD', unshown, position, id)
due_from(ARGV[6], due)
if ARGV[8] ~= '' then
  local thread = slot .. 't:' .. ARGV[8]
  redis.call('ZADD', thread, ARGV[9], id)
  redis.call('PEXPIREAT', thread, ARGV[7])
end
wake(ARGV[10], 'inbox', string.sub(agent, 7, -8))
return { 'stored', position, others == 0 and 1 or 0 }
