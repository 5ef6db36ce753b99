-- The fleet itself: its audit and its coordinators.

-- Adds entries of the audit, all of them as one of the stream.
-- The id of an entry of the stream is the position of the last entry in it, so that the id trims and finds both.
-- KEYS: -, audit. ARGV: how many are kept, how many these are, these as JSON
define('audit', LARGE, function(keys, args)
  local last = redis.call('XREVRANGE', keys[2], '+', '-', 'COUNT', 1)[1]
  local position = (last and tonumber(string.match(last[1], '^%d+')) or 0) + tonumber(args[2])
  local oldest = math.max(position - tonumber(args[1]) + 1, 0)
  redis.call('XADD', keys[2], 'MINID', '~', string.format('%.0f', oldest), string.format('%.0f-0', position), 'e', args[3])
  return position
end)

-- Notes that a coordinator is there until its lease ends: 1, or 0 where it was not listed. While there are several, a key
-- says so, and whatever any of them does is published to the others.
-- KEYS: -, coordinators, peers. ARGV: origin, lease, which is 0 where it ends
define('attend', SMALL, function(keys, args)
  begin(keys)
  redis.call('ZREMRANGEBYSCORE', keys[2], '-inf', now)
  local was_listed = redis.call('ZSCORE', keys[2], args[1])
  if args[2] == '0' then
    redis.call('ZREM', keys[2], args[1])
  else
    redis.call('ZADD', keys[2], now + tonumber(args[2]), args[1])
  end
  if redis.call('ZCARD', keys[2]) > 1 then
    redis.call('SET', keys[3], '1')
  else
    redis.call('DEL', keys[3])
  end
  return was_listed and 1 or 0
end)
