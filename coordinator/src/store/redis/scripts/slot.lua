-- What every script about one agent begins with: its keys, the store's clock, and what leaves an inbox by itself.
-- KEYS[1] is c3po:{agent}:agent, KEYS[2] is never there. Every other key is derived from it, has the same hash tag, and so is on the same node.
local agent = KEYS[1]
local slot = string.sub(agent, 1, -6)
local inbox, unshown, expiry, outbox = slot .. 'inbox', slot .. 'unshown', slot .. 'expiry', slot .. 'outbox'
-- What of the inbox an earlier session or context was shown. Mostly there is no such key, so reading costs nothing.
local repeated = slot .. 'repeated'

local clock = redis.call('TIME')
local now = tonumber(clock[1]) * 1000 + math.floor(tonumber(clock[2]) / 1000)

-- Lua would write a time as 1.7e+12.
local function digits(number)
  return string.format('%.0f', number)
end

local function message_key(id)
  return slot .. 'm:' .. id
end

local function wake(origin, what, whom)
  redis.call('PUBLISH', 'c3po:wake', origin .. ' ' .. what .. ' ' .. whom)
end

-- One line of a history: stage, time, evidence, session, reply; a dash where there is none.
local function note(id, stage, at, via, session, reply)
  local key = message_key(id)
  local line = table.concat({ stage, digits(at), via, session, reply }, ' ')
  local before = redis.call('HGET', key, 'history')
  if before then
    redis.call('HSET', key, 'history', before .. '\n' .. line)
  end
end

local function take_out(id)
  redis.call('ZREM', inbox, id)
  redis.call('ZREM', unshown, id)
  redis.call('ZREM', expiry, id)
  redis.call('SREM', repeated, id)
end

-- The last thing done to a message: one that is older than the archive is gone after it.
local function settle(id)
  take_out(id)
  local key = message_key(id)
  local kept_until = redis.call('HGET', key, 'kept_until')
  if kept_until then
    redis.call('PEXPIREAT', key, kept_until)
  end
end

-- Takes out what is past its time. Each message costs this once in its life, and an inbox is bounded.
-- Everybody may hear of it, also the process that asked: it does not know whom to wake.
local function expire_due()
  local senders = {}
  local due = redis.call('ZRANGEBYSCORE', expiry, '-inf', now, 'WITHSCORES')
  for i = 1, #due, 2 do
    local id = due[i]
    local sender = redis.call('HGET', message_key(id), 'from')
    take_out(id)
    if sender then
      note(id, 'expired', tonumber(due[i + 1]), '-', '-', '-')
      senders[sender] = true
    end
  end
  for sender in pairs(senders) do
    wake('-', 'receipt', sender)
  end
  return #due / 2
end

local function outdated(generation, instance)
  local held = redis.call('HMGET', agent, 'generation', 'instance')
  return held[1] ~= generation or held[2] ~= instance
end

-- Makes every message of the inbox unshown; what was shown is put to the session as repeated.
local function unshow()
  expire_due()
  for _, id in ipairs(redis.call('ZDIFF', 2, inbox, unshown)) do
    redis.call('SADD', repeated, id)
  end
  redis.call('ZUNIONSTORE', unshown, 1, inbox)
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

-- Makes the agent, going on with the positions of an earlier agent of that name.
local function create(uid)
  local seq = redis.call('GET', slot .. 'seq') or '0'
  redis.call('HSET', agent, 'uid', uid, 'generation', '0', 'instance', '', 'held_until', '0', 'state', 'stopped',
    'registered_at', digits(now), 'last_seen', digits(now), 'seq', seq)
end

-- Positions outlive the agent for as long as anything that it was sent is kept.
local function forget(life)
  redis.call('SET', slot .. 'seq', redis.call('HGET', agent, 'seq'), 'PX', life)
  redis.call('DEL', agent, inbox, unshown, expiry, repeated)
end
