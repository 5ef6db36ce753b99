-- What every script about one agent begins with: its keys, the store's clock, and what leaves an inbox by itself.
-- KEYS[1] is c3po:{agent}:agent, KEYS[2] is never there. Every other key is derived from the first, has the same hash tag,
-- and so is on the same node.
-- A call of Redis from here costs as much as most commands do: what can be read or written together is.
local agent = KEYS[1]
local slot = string.sub(agent, 1, -6)
-- The inbox, by position: what the present session was not shown, and the rest.
local unshown, shown = slot .. 'unshown', slot .. 'shown'
local outbox = slot .. 'outbox'
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

-- What was noted of a message when it was stored, as far as nearly every script needs it: each further capture is a
-- text that Lua hashes as a whole. Nothing where `facts` are those of another message, or missing.
local function read_facts(facts, id)
  local found, from, wants, kept_until, expires = string.match(facts or '', '^(%S+) (%S+) (%d) (%d+) (%d+)')
  if found == id then
    return { from = from, wants = wants == '1', kept_until = kept_until, expires = expires }
  end
end

-- The rest of it: {when it was accepted, kind, thread, when it was stored}.
local function read_further_facts(facts)
  local at, kind, thread, stored = string.match(facts, '^%S+ %S+ %d %d+ %d+ (%d+) (%S+) (%S+) %S+ (%d+)$')
  return { at = at, kind = kind, thread = thread, stored = stored }
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

-- Looks through the inbox, which is bounded, and takes out what is past its time. Returns what is next, and whom to tell.
-- A question that is being answered does not expire meanwhile.
local function expire_from(list, next_due, senders)
  for _, id in ipairs(redis.call('ZRANGE', list, 0, -1)) do
    local kept = redis.call('HMGET', message_key(id), 'facts', 'claim')
    local facts = read_facts(kept[1], id)
    if facts and not kept[2] then
      if tonumber(facts.expires) <= now then
        take_out(id)
        note(id, step('expired', facts.expires, '-', '-', '-'))
        senders[facts.from] = true
      else
        next_due = math.min(next_due, tonumber(facts.expires))
      end
    end
  end
  return next_due
end

-- Takes out what is past its time; `due` is what the record says, before which there is nothing to look for: a list of
-- ends would cost every message two writes. Returns what the record says from now on.
-- Everybody may hear of it, also the process that asked: it does not know whom to wake.
local function expire_due(due)
  if due and now < tonumber(due) then
    return due
  end
  local senders = {}
  local next_due = expire_from(unshown, tonumber(NEVER), senders)
  next_due = string.format('%.0f', expire_from(shown, next_due, senders))
  for sender in pairs(senders) do
    wake('-', 'receipt', sender)
  end
  if redis.call('EXISTS', agent) == 1 then
    redis.call('HSET', agent, 'due', next_due)
  end
  return next_due
end

local function expire()
  expire_due(redis.call('HGET', agent, 'due'))
end
