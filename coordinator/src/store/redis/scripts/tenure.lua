-- What the scripts share that know of sessions: which one is the present one, and what begins anew with it.
local function outdated(generation, instance)
  local held = redis.call('HMGET', agent, 'generation', 'instance')
  return held[1] ~= generation or held[2] ~= instance
end

-- Makes every message of the inbox unshown; what was shown is put to the session as repeated.
local function unshow()
  expire()
  local marked = redis.call('ZRANGE', shown, 0, -1)
  if #marked > 0 then
    redis.call('SADD', repeated, unpack(marked))
    redis.call('ZUNIONSTORE', unshown, 2, unshown, shown)
    redis.call('DEL', shown)
  end
end

local function present_context()
  return tonumber(redis.call('HGET', agent, 'context') or '0')
end

-- Makes a context the present one where it is newer: it has been shown nothing.
local function enter_context(context)
  if tonumber(context) > present_context() then
    redis.call('HSET', agent, 'context', context)
    unshow()
  end
end

-- Makes the agent, going on with the positions of an earlier agent of that name, and with links that none of it had.
local function create(uid)
  local seq = redis.call('GET', slot .. 'seq') or '0'
  redis.call('HSET', agent, 'uid', uid, 'generation', '0', 'instance', '', 'held_until', '0', 'state', 'stopped',
    'registered_at', now, 'last_seen', now, 'seq', seq, 'due', NEVER, 'link', now)
end

-- Positions outlive the agent for as long as anything that it was sent is kept.
local function forget(life)
  redis.call('SET', slot .. 'seq', redis.call('HGET', agent, 'seq'), 'PX', life)
  redis.call('DEL', agent, unshown, shown, repeated)
end
