-- The fleet itself: its audit, its coordinators, and what a person ruled about pairs of agents.

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

-- Keeps what a person ruled about a pair, and forgets allowances that are over. Returns when that was.
-- KEYS: -, guard. ARGV: pair, 'stop' or 'allow', for how long an allowance is kept
define('rule', SMALL, function(keys, args)
  begin(keys)
  local over = {}
  local kept = redis.call('HGETALL', keys[2])
  for i = 1, #kept, 2 do
    local allowed_at = string.match(kept[i + 1], '^allow (%d+)$')
    if allowed_at and tonumber(allowed_at) + tonumber(args[3]) <= now then
      over[#over + 1] = kept[i]
    end
  end
  if #over > 0 then
    redis.call('HDEL', keys[2], unpack(over))
  end
  redis.call('HSET', keys[2], args[1], args[2] .. ' ' .. now)
  return now
end)
