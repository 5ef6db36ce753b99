-- What every script about one agent begins with: its keys, the store's clock, and what leaves an inbox by itself.
-- KEYS[1] is c3po:{agent}:agent, KEYS[2] is never there. Every other key is derived from the first, has the same hash tag,
-- and so is on the same node.
-- A call of Redis from here costs as much as most commands do: what can be read or written together is.
local agent = KEYS[1]
local slot = string.sub(agent, 1, -6)
-- The inbox, by position: what the present session was not shown, and the rest.
local unshown, shown = slot .. 'unshown', slot .. 'shown'
local expiry, outbox = slot .. 'expiry', slot .. 'outbox'
-- A time that does not come.
local NEVER = '9007199254740991'
-- What of the inbox an earlier session or context was shown. Mostly there is no such key, so reading costs nothing.
local repeated = slot .. 'repeated'

-- Lua writes numbers of up to 14 digits as they are, which is enough for times in milliseconds.
local clock = redis.call('TIME')
local now = tonumber(clock[1]) * 1000 + math.floor(tonumber(clock[2]) / 1000)

-- By the number of the id alone: a call that is sent again has the same number, also under another sender's name.
local function message_key(id)
  return slot .. 'm:' .. string.sub(id, -8)
end

-- What was noted of a message when it was stored. Nothing where `facts` are those of another one, or missing.
local function read_facts(facts, id)
  local found, from, wants, kept_until, expires, at, kind, thread, call, stored =
    string.match(facts or '', '^(%S+) (%S+) (%d) (%d+) (%d+) (%d+) (%S+) (%S+) (%S+) (%d+)$')
  if found == id then
    return { from = from, wants = wants == '1', kept_until = kept_until, expires = expires, at = at, kind = kind,
      thread = thread, stored = stored }
  end
end

local function facts_of(id)
  return read_facts(redis.call('HGET', message_key(id), 'facts'), id)
end

local function in_inbox(id)
  return redis.call('ZSCORE', unshown, id) or redis.call('ZSCORE', shown, id)
end

local function count_inbox()
  return redis.call('ZCARD', unshown) + redis.call('ZCARD', shown)
end

local function wake(origin, what, whom)
  redis.call('PUBLISH', 'c3po:wake', origin .. ' ' .. what .. ' ' .. whom)
end

-- One line of a history: stage, time, evidence, session, reply; a dash where there is none. The first step, that it
-- was stored, stands in the facts.
local function step(stage, at, via, session, reply)
  return '\n' .. stage .. ' ' .. at .. ' ' .. via .. ' ' .. session .. ' ' .. reply
end

local function note(id, line)
  local key = message_key(id)
  redis.call('HSET', key, 'history', (redis.call('HGET', key, 'history') or '') .. line)
end

local function take_out(id)
  if redis.call('ZREM', shown, id) == 1 or redis.call('ZREM', unshown, id) == 1 then
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
-- message costs this once in its life, and an inbox is bounded. Returns what the record says from now on.
-- Everybody may hear of it, also the process that asked: it does not know whom to wake.
local function expire_due(due)
  if due and now < tonumber(due) then
    return due
  end
  local senders = {}
  local over = redis.call('ZRANGEBYSCORE', expiry, '-inf', now)
  for _, id in ipairs(over) do
    local facts = facts_of(id)
    take_out(id)
    if facts then
      note(id, step('expired', facts.expires, '-', '-', '-'))
      senders[facts.from] = true
    end
  end
  for sender in pairs(senders) do
    wake('-', 'receipt', sender)
  end
  local next_due = redis.call('ZRANGE', expiry, 0, 0, 'WITHSCORES')[2] or NEVER
  if redis.call('EXISTS', agent) == 1 then
    redis.call('HSET', agent, 'due', next_due)
  end
  return next_due
end

local function expire()
  expire_due(redis.call('HGET', agent, 'due'))
end

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
  redis.call('DEL', agent, unshown, shown, expiry, repeated)
end
