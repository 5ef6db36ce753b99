-- The fleet: its audit, its coordinators, and the decisions of people about pairs of agents.

-- Begins the log if there is none, and deletes its oldest entries beyond the limit. An earlier build kept no `audit_end`.
-- KEYS: -, audit, audit_end, audit_most. ARGV: limit of entries
define('keep_log', SMALL, function(keys, args)
  local last = redis.call('XREVRANGE', keys[2], '+', '-', 'COUNT', 1)[1]
  local position = last and tonumber(string.match(last[1], '^%d+')) or 0
  if tonumber(redis.call('GET', keys[3]) or '-1') < position then
    redis.call('SET', keys[3], string.format('%.0f', position))
  end
  redis.call('SET', keys[4], args[1])
  shorten_log(keys[2], position, args[1])
  return position
end)

-- Adds entries to the log, for what changes nothing else. Each is JSON. KEYS: -. ARGV: entries
define('audit', LARGE, function(keys, args)
  for i = 1, #args do
    log_whole(args[i])
  end
  local failed = append_log()
  publish('-')
  return failed or 1
end)

-- Publishes the text of a broadcast for monitors. Returns 1, or the result of `refused_speaker`.
-- KEYS: -, agent that sends it. ARGV: text, the speaker
define('announce', SMALL, function(keys, args)
  local refused = refused_speaker(args, 2)
  if refused then
    return refused
  end
  local text = { type = 'broadcast', from = redis.call('HGET', keys[2], 'uid') or '', message = args[1], timestamp = time_text(now) }
  tell('broadcast', cjson.encode(text))
  return 1
end)

-- Records that a coordinator is there until its lease ends. Returns 1, or 0 if it was not listed. A key exists while there
-- are several coordinators; then each publishes its changes to the others.
-- KEYS: -, coordinators, peers. ARGV: origin, lease; 0 ends it
define('attend', SMALL, function(keys, args)
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
-- KEYS: -, guard. ARGV: pair, 'stop' or 'allow', lifetime of an allowance, entry of the log or ''
define('rule', SMALL, function(keys, args)
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
  log_whole(args[4])
  publish('-')
  return now
end)
