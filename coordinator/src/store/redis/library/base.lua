-- What every function begins with: the keys of its fleet, the server's clock, and what leaves an inbox by itself.
-- All keys of a fleet begin with {FLEET}: and so lie in one hash slot. KEYS[1] is {FLEET}:-, which is never there: while
-- a cluster moves the slot, a call that names a missing key is refused as a whole and nothing is half done.
-- The library is loaded once, so a call pays neither for these definitions nor for their text.

-- A time that does not come.
local NEVER = '9007199254740991'
-- How many messages of one inbox one call expires: each costs six commands, and no call runs more than 500. A call that
-- expired more than a few does nothing else, and is made again.
local EXPIRED_MAX, EXPIRED_FEW = 80, 5

-- Of the call that runs: the prefix of its fleet's keys, the time, the agent in use, whom to wake, and whether the
-- coordinator that calls is to hear of it too, since it does not know whom to wake by itself.
local fleet, now
local name, agent, unshown, shown, repeated
local woken, is_news

local function begin(keys)
  fleet = string.sub(keys[1], 1, -2)
  woken, is_news = {}, false
  -- Lua writes numbers of up to 14 digits as they are, which is enough for times in milliseconds.
  local clock = redis.call('TIME')
  now = tonumber(clock[1]) * 1000 + math.floor(tonumber(clock[2]) / 1000)
end

-- Takes the agent whose four keys begin there as the one that the rest of the call is about.
-- The inbox, by position: what the present session was not shown, and the rest; each member is 'id end'. What of it an
-- earlier session or context was shown is in a set of its own, which is mostly not there.
local function use(keys, at)
  agent, unshown, shown, repeated = keys[at], keys[at + 1], keys[at + 2], keys[at + 3]
  name = string.sub(agent, #fleet + 7)
end

-- By the number of the id alone: a call that is sent again has the same number, also under another sender's name.
local function message_key(id)
  return fleet .. 'm:' .. name .. ':' .. string.sub(id, -8)
end

-- Some of what was noted of a message when it was stored: each further capture is a text that Lua hashes as a whole.
-- Nothing where `facts` are those of another message, or missing.
local function read_facts(facts, id)
  local found, from, wants, kept_until, expires = string.match(facts or '', '^(%S+) (%S+) (%d) (%d+) (%d+)')
  if found == id then
    return { from = from, wants = wants == '1', kept_until = kept_until, expires = expires }
  end
end

-- The rest of it: {when it was accepted, kind, thread, call, when it was stored}.
local function read_further_facts(facts)
  local at, kind, thread, sent_by, stored = string.match(facts, '^%S+ %S+ %d %d+ %d+ (%d+) (%S+) (%S+) (%S+) (%d+)$')
  return { at = at, kind = kind, thread = thread, call = sent_by, stored = stored }
end

-- The open questions of a one-shot session, and some that are open no more: they end with it.
local function asked_key(agent_name)
  return fleet .. 'asked:' .. agent_name
end

local function member(id, facts)
  return id .. ' ' .. facts.expires
end

local function in_inbox(id, facts)
  local place = member(id, facts)
  return redis.call('ZSCORE', unshown, place) or redis.call('ZSCORE', shown, place)
end

local function count_inbox()
  return redis.call('ZCARD', unshown) + redis.call('ZCARD', shown)
end

-- Notes that someone who waits for that agent's inbox or receipts is to look again.
local function wake(what, whom)
  woken[#woken + 1] = what .. ' ' .. whom
end

-- Passes the wakes on, where another coordinator of the fleet is there to receive them. Those of no origin are for all.
local function publish(origin)
  if #woken > 0 and (is_news or redis.call('EXISTS', fleet .. 'peers') == 1) then
    redis.call('SPUBLISH', fleet .. 'wake', (is_news and '-' or origin) .. ' ' .. table.concat(woken, ' '))
  end
end

-- One line of a history: stage, time, evidence, session, reply; a dash where there is none. The first step, that it
-- was stored, is in the facts.
local function step(stage, at, via, session, reply)
  return '\n' .. stage .. ' ' .. at .. ' ' .. via .. ' ' .. session .. ' ' .. reply
end

-- Returns whether it was in the inbox.
local function take_out(place)
  if redis.call('ZREM', shown, place) == 1 or redis.call('ZREM', unshown, place) == 1 then
    redis.call('SREM', repeated, place)
    return true
  end
end

-- The last thing done to a message: from then on it is kept as long as it would have been behind its end. One that is out
-- already is kept from the moment that took it out.
local function settle(id, facts)
  if take_out(member(id, facts)) then
    redis.call('PEXPIREAT', message_key(id), now + facts.kept_until - facts.expires)
  end
end

-- Notes that something in the inbox may be past its time from then on.
local function due_from(expires, due)
  if tonumber(expires) < tonumber(due) then
    redis.call('HSET', agent, 'due', expires)
  end
end

-- Takes a message out of the inbox, where it is still in it, because its time is over since `at`.
local function expire_one(id, expires, at)
  if not take_out(id .. ' ' .. expires) then
    return
  end
  local key = message_key(id)
  local kept = redis.call('HMGET', key, 'facts', 'history')
  local facts = read_facts(kept[1], id)
  if facts then
    redis.call('HSET', key, 'history', (kept[2] or '') .. step('expired', at, '-', '-', '-'))
    wake('receipt', facts.from)
    is_news = true
  end
end

-- Takes what is past its time out of one list. Returns when the next one ends, and how many more may be taken out.
local function expire_from(list, next_due, left)
  for _, place in ipairs(redis.call('ZRANGE', list, 0, -1)) do
    local id, expires = string.match(place, '^(%S+) (%d+)$')
    local ends = tonumber(expires)
    if ends <= now and left > 0 then
      left = left - 1
      expire_one(id, expires, expires)
    else
      next_due = math.min(next_due, ends)
    end
  end
  return next_due, left
end

-- Takes out what is past its time; `due` is what the record says, before which there is nothing to look for: a list of
-- ends would cost every message two writes. Returns what the record says from now on; nothing where it took out more
-- than a few, and the call is to be made again.
local function expire(due)
  if not due or now < tonumber(due) then
    return due or NEVER
  end
  local next_due, left = expire_from(unshown, tonumber(NEVER), EXPIRED_MAX)
  next_due, left = expire_from(shown, next_due, left)
  next_due = string.format('%.0f', next_due)
  redis.call('HSET', agent, 'due', next_due)
  publish('-')
  woken = {}
  return EXPIRED_MAX - left <= EXPIRED_FEW and next_due or nil
end

-- What a function returns whose call is to be made again.
local AGAIN = { err = 'AGAIN what is past its time was taken out, and nothing else was done' }

local function expire_due()
  return expire(redis.call('HGET', agent, 'due'))
end

local functions = {}

-- Names a function. Those that are small run also when Redis is full: they read, settle or note a little, or answer.
-- The others are refused as a whole before they begin.
local function define(title, flags, body)
  functions[#functions + 1] = { title, flags, body }
end
local SMALL, LARGE = { 'allow-oom' }, {}
