-- The fleet: its audit, its coordinators, and the decisions of people about pairs of agents.

-- Adds entries to the audit, as one entry of the stream.
-- The id of that entry is the position of its last audit entry, so that the id serves to trim and to find both.
-- KEYS: -, audit. ARGV: limit of entries, number of new entries, new entries as JSON
define('audit', LARGE, function(keys, args)
  local last = redis.call('XREVRANGE', keys[2], '+', '-', 'COUNT', 1)[1]
  local position = (last and tonumber(string.match(last[1], '^%d+')) or 0) + tonumber(args[2])
  local oldest = math.max(position - tonumber(args[1]) + 1, 0)
  redis.call('XADD', keys[2], 'MINID', '~', string.format('%.0f', oldest), string.format('%.0f-0', position), 'e', args[3])
  return position
end)

-- Records that a coordinator is there until its lease ends. Returns 1, or 0 if it was not listed. A key exists while there
-- are several coordinators; then each publishes its changes to the others.
-- KEYS: -, coordinators, peers. ARGV: origin, lease; 0 ends it
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

-- Stores a person's decision about a pair, and deletes expired allowances. Returns the time of the decision.
-- KEYS: -, guard. ARGV: pair, 'stop' or 'allow', lifetime of an allowance
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
