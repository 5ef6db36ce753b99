-- What every script about one agent begins with: its keys, the store's clock, and what leaves an inbox by itself.
-- KEYS[1] is c3po:{agent}:agent. Every other key is derived from it, has the same hash tag, and so is on the same node.
local agent = KEYS[1]
local slot = string.sub(agent, 1, -6)
local inbox, unshown, expiry, outbox = slot .. 'inbox', slot .. 'unshown', slot .. 'expiry', slot .. 'outbox'
-- A time that does not come.
local NEVER = '9007199254740991'
-- What of the inbox an earlier session or context was shown. Mostly there is no such key, so reading costs nothing.
local repeated = slot .. 'repeated'

local clock = redis.call('TIME')
local now = tonumber(clock[1]) * 1000 + math.floor(tonumber(clock[2]) / 1000)

-- Lua would write a time as 1.7e+12.
local function digits(number)
  return string.format('%.0f', number)
end

-- By the number of the id alone: a call that is sent again has the same number, also under another sender's name.
-- Whoever was told an id from outside has to see that the message under the key has it.
local function message_key(id)
  return slot .. 'm:' .. string.sub(id, -8)
end

local function wake(origin, what, whom)
  redis.call('PUBLISH', 'c3po:wake', origin .. ' ' .. what .. ' ' .. whom)
end

-- Adds a line to a history that was read: stage, time, evidence, session, reply; a dash where there is none.
local function note_behind(history, id, stage, at, via, session, reply)
  local longer = history .. '\n' .. table.concat({ stage, digits(at), via, session, reply }, ' ')
  redis.call('HSET', message_key(id), 'history', longer)
  return longer
end

local function note(id, stage, at, via, session, reply)
  local history = redis.call('HGET', message_key(id), 'history')
  if history then
    note_behind(history, id, stage, at, via, session, reply)
  end
end

local function take_out(id)
  if redis.call('ZREM', inbox, id) == 1 then
    redis.call('ZREM', unshown, id)
    redis.call('ZREM', expiry, id)
    redis.call('SREM', repeated, id)
  end
end

-- The last thing done to a message: one that is older than the archive is gone after it.
local function settle(id, kept_until)
  take_out(id)
  redis.call('PEXPIREAT', message_key(id), kept_until)
end

-- Notes that something in the inbox may be past its time from then on.
local function due_from(expires, due)
  if not due or tonumber(expires) < tonumber(due) then
    redis.call('HSET', agent, 'due', expires)
  end
end

-- Takes out what is past its time; `due` is what the record says, before which there is nothing to look for. Each
-- message costs this once in its life, and an inbox is bounded.
-- Everybody may hear of it, also the process that asked: it does not know whom to wake.
local function expire_due(due)
  if due and now < tonumber(due) then
    return 0
  end
  local senders = {}
  local over = redis.call('ZRANGEBYSCORE', expiry, '-inf', now, 'WITHSCORES')
  for i = 1, #over, 2 do
    local id = over[i]
    local sender = redis.call('HGET', message_key(id), 'from')
    take_out(id)
    if sender then
      note(id, 'expired', tonumber(over[i + 1]), '-', '-', '-')
      senders[sender] = true
    end
  end
  for sender in pairs(senders) do
    wake('-', 'receipt', sender)
  end
  if redis.call('EXISTS', agent) == 1 then
    redis.call('HSET', agent, 'due', redis.call('ZRANGE', expiry, 0, 0, 'WITHSCORES')[2] or NEVER)
  end
  return #over / 2
end

local function expire()
  return expire_due(redis.call('HGET', agent, 'due'))
end

local function outdated(generation, instance)
  local held = redis.call('HMGET', agent, 'generation', 'instance')
  return held[1] ~= generation or held[2] ~= instance
end

-- Makes every message of the inbox unshown; what was shown is put to the session as repeated.
local function unshow()
  expire()
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
    'registered_at', digits(now), 'last_seen', digits(now), 'seq', seq, 'due', NEVER)
end

-- Positions outlive the agent for as long as anything that it was sent is kept.
local function forget(life)
  redis.call('SET', slot .. 'seq', redis.call('HGET', agent, 'seq'), 'PX', life)
  redis.call('DEL', agent, inbox, unshown, expiry, repeated)
end
