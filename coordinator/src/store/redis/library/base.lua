-- Shared definitions: the keys of a fleet, the server's clock, and the expiry of messages.
-- All keys of a fleet begin with {FLEET}:, so they are in one hash slot. KEYS[1] is {FLEET}:-, a key that never exists:
-- while a cluster moves the slot, it refuses each call that names several keys of which one is missing as a whole, so no call is
-- half done. A call that needs no other key names {FLEET}:-- too, which never exists either.
-- The library is loaded once, so calls do not send its text.

-- A time that is never reached.
local NEVER = '9007199254740991'
-- The limit of messages that one call expires: each costs up to eight commands, one to people ten, and no call runs more than
-- 500. A call that expired more than a few messages does nothing else, and is repeated.
local EXPIRED_MAX, EXPIRED_OF_PEOPLE_MAX, EXPIRED_FEW = 60, 45, 5
-- The limit of all calls of a batch.
local EXPIRED_OF_BATCH_MAX = 20

-- The state of the call that runs: the key prefix of its fleet, the time, the agent in use, the agents to wake, whether
-- the wakes go to the calling coordinator too, which does not know them itself. Tables that grow cost as much as a command, so one
-- is used by all calls, with the number of its present values.
local fleet, now
local name, agent, unshown, shown
local woken, woken_count, is_news = {}, 0, false
-- The new entries of the log, of the whole step: texts that follow each other, their number, and how many entries they are.
local log_texts, log_size, logged = {}, 0, 0
-- The agent that was checked to be the caller's, its session, and since when its host has had the name.
local speaking, speaking_session, speaking_since
-- Most steps need these at their end, and read them at once: whether another coordinator is there, and the position of the last
-- entry of the log, or false if none is kept. Both are nothing until then.
local has_peers, log_end

-- How far ahead the last time of a call may be, in milliseconds: further ahead, one of the clocks has stepped.
local AHEAD_MAX = 2000

-- How many messages the step expired, and whether it is a batch.
local expired, is_batch

-- The time as text, the last time that a call may have, and the beginning of the entries of the log once one is needed.
-- Times have 13 digits, also those of a clock that stands at its beginning, and NEVER begins with a 9, so texts have their order.
-- Their conversion to numbers took a twentieth of the time of Redis.
local now_text, ahead_text, entry_head

-- Begins a step, which runs one call or several.
local function begin(keys)
  fleet = string.sub(keys[1], 1, -2)
  log_size, logged, expired, is_batch = 0, 0, 0, false
  has_peers, log_end, entry_head = nil, nil, nil
  local clock = redis.call('TIME')
  now = tonumber(clock[1]) * 1000 + math.floor(tonumber(clock[2]) / 1000)
  now_text, ahead_text = string.format('%013.0f', now), string.format('%013.0f', now + AHEAD_MAX)
end

-- Runs a call, unless it is late: it would act by rights that may have ended, and its caller waits no longer. `last` is the time
-- after which it is. `...` is for `body`.
local function run(body, last, ...)
  -- Calls of other fleets share this state: one that selects no agent must not find theirs.
  name, agent, unshown, shown = nil, nil, nil, nil
  woken_count, is_news, speaking = 0, false, nil
  if now_text > last or last > ahead_text then
    return { err = 'LATE ' .. now .. ' it was under way for too long, and was not done' }
  end
  return body(...)
end

local function read_end()
  if has_peers == nil then
    local found = redis.call('MGET', fleet .. 'peers', fleet .. 'audit_end')
    has_peers, log_end = found[1] ~= false, found[2]
  end
end

-- Selects an agent by its name: its record and its inbox.
-- Its inbox is two sorted sets by position: the messages that the present session was not shown, and the others. Each member
-- is 'id end'.
local function use_named(title)
  name, agent = title, fleet .. 'agent:' .. title
  unshown, shown = fleet .. 'unshown:' .. title, fleet .. 'shown:' .. title
end

-- Selects an agent by the key of its record.
local function use(key)
  use_named(string.sub(key, #fleet + 7))
end

-- By the number of the id alone: a repeated call has the same number, also under another sender's name.
local function message_key(id)
  return fleet .. 'm:' .. name .. ':' .. string.sub(id, -8)
end

-- Returns a part of the facts that were stored with a message: Lua hashes each further captured text as a whole.
-- Returns nothing if `facts` are missing or those of another message.
local function read_facts(facts, id)
  if facts and string.find(facts, id, 1, true) == 1 then
    local from, wants, kept_until, expires = string.match(facts, '^ (%S+) (%d) (%d+) (%d+)', #id + 1)
    return from and { from = from, wants = wants == '1', kept_until = kept_until, expires = expires }
  end
end

-- Returns the call in facts without the time of storing.
local function call_of(facts)
  return string.match(facts, ' (%S+)$')
end

-- Returns the other facts: {time of acceptance, kind, thread, call, time of storing}.
local function read_further_facts(facts)
  local at, kind, thread, sent_by, stored = string.match(facts, '^%S+ %S+ %d %d+ %d+ (%d+) (%S+) (%S+) (%S+) (%d+)$')
  return { at = at, kind = kind, thread = thread, call = sent_by, stored = stored }
end

-- The open questions of a one-shot session, which end with it, and some that are closed already.
local function asked_key(agent_name)
  return fleet .. 'asked:' .. agent_name
end

-- The messages whose answers an agent waits for, each with the end of its lease.
local function waits_key(agent_name)
  return fleet .. 'waits:' .. agent_name
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

-- Records that waits for the inbox of an agent, or for news of a message (`receipt`), look again after the call.
local function wake(kind, subject)
  woken[woken_count + 1], woken[woken_count + 2] = kind, subject
  woken_count = woken_count + 2
end

-- The latest second that was written as text, and that text: many calls write the same one.
local written_second, second_text

-- Returns a time as text: 2026-01-15T10:30:00.000Z.
local function time_text(millis)
  local seconds = math.floor(millis / 1000)
  if seconds ~= written_second then
    local days, second = math.floor(seconds / 86400), seconds % 86400
    -- The civil date of a day: years begin in March, so that the leap day is the last one.
    local shifted = days + 719468
    local era = math.floor(shifted / 146097)
    local day = shifted - era * 146097
    local year = math.floor((day - math.floor(day / 1460) + math.floor(day / 36524) - math.floor(day / 146096)) / 365)
    day = day - (365 * year + math.floor(year / 4) - math.floor(year / 100))
    local month = math.floor((5 * day + 2) / 153)
    day = day - math.floor((153 * month + 2) / 5) + 1
    month = month < 10 and month + 3 or month - 9
    second_text = string.format('%04d-%02d-%02dT%02d:%02d:%02d', year + era * 400 + (month < 3 and 1 or 0), month, day,
      math.floor(second / 3600), math.floor(second / 60) % 60, second % 60)
    written_second = seconds
  end
  return second_text .. string.format('.%03dZ', millis % 1000)
end

-- Adds an entry to the log, in two parts, as JSON.
local function log_parts(head, rest)
  log_texts[log_size + 1], log_texts[log_size + 2], log_texts[log_size + 3] = logged == 0 and '[' or ',', head, rest
  log_size, logged = log_size + 3, logged + 1
  -- One wake is enough for the readers of all entries of the step, which are appended together.
  if logged == 1 then
    wake('log', '-')
  end
end

-- Adds a complete entry to the log, unless it is ''.
local function log_whole(entry)
  if entry ~= '' then
    log_parts(entry, '')
  end
end

-- Returns a value as it stands in JSON between quotes: the name of a host or of a person may need escapes.
local function escaped(value)
  return string.find(value, '["\\%c]') and string.sub(cjson.encode(value), 2, -2) or value
end

-- Returns a field of an entry that follows others; '' without a value.
local function field(title, value)
  return value == '' and '' or '","' .. title .. '":"' .. escaped(value)
end

-- Adds an entry of which the coordinator made all that follows its time.
local function log_rest(rest)
  entry_head = entry_head or '{"at":"' .. time_text(now)
  log_parts(entry_head, rest)
end

-- Adds an entry about an agent to the log, with further fields. They are JSON already, as `field` returns it: ids and words of
-- the vocabulary need no escapes. Each text is joined at once, because Lua hashes every text that it makes.
local function log(event, who, fields)
  log_rest('","event":"' .. event .. '","agent":"' .. who .. fields .. '"}')
end

-- Returns the fields of an entry about a message.
local function about_message(to, id)
  return '","to":"' .. to .. '","message_id":"' .. id
end

-- After how many entries the log is shortened. Redis deletes at most 10,000 at once.
local SHORTENED_EVERY = 100

-- Deletes the oldest entries of the log beyond that number, if there is one.
local function shorten_log(log, position, most)
  if most then
    redis.call('XTRIM', log, 'MINID', '~', string.format('%.0f', math.max(position - tonumber(most) + 1, 0)))
  end
end

-- Appends the new entries of the call to the log, if one is kept: then `audit_end` is the position of its last entry. The id
-- of an entry of the stream is the position of the last log entry in it, so that the id serves to trim and to find both.
-- Returns the error if the log cannot be written: the change of the call stays, and readers notice that positions are missing.
local function append_log()
  local entries, size, log_key = logged, log_size, fleet .. 'audit'
  log_size, logged = 0, 0
  if entries == 0 then
    return
  end
  read_end()
  if not log_end then
    return
  end
  local position = tonumber(log_end) + entries
  local written = string.format('%.0f', position)
  redis.call('SET', fleet .. 'audit_end', written)
  log_texts[size + 1] = ']'
  local text = table.concat(log_texts, '', 1, size + 1)
  local added = redis.pcall('XADD', log_key, written .. '-0', 'e', text)
  if position % SHORTENED_EVERY < entries then
    shorten_log(log_key, position, redis.call('GET', fleet .. 'audit_most'))
  end
  return type(added) == 'table' and added.err and added or nil
end

-- Publishes a message for monitors on a channel of the fleet, outside of the slot: `c3po:status`.
local function tell(channel, text)
  redis.call('PUBLISH', string.sub(fleet, 2, -3) .. ':' .. channel, text)
end

-- Publishes another state of the agent in use, for all monitors and for those of this agent.
local function tell_state(uid, before, after)
  if before ~= after then
    local text = '{"type":"agent_status_change","agent_id":"' .. uid .. '","agent_name":"' .. name .. '","old_state":"'
      .. before .. '","new_state":"' .. after .. '","timestamp":"' .. time_text(now) .. '"}'
    tell('status', text)
    tell('status:' .. uid, text)
  end
end

-- Publishes the wakes if another coordinator of the fleet is there. Wakes without an origin are for all coordinators.
local function publish(origin)
  if woken_count == 0 then
    return
  end
  read_end()
  if is_news or has_peers then
    redis.call('SPUBLISH', fleet .. 'wake', (is_news and '-' or origin) .. ' ' .. table.concat(woken, ' ', 1, woken_count))
  end
end

-- One line of a history: stage, time, evidence, session, reply; a dash in place of a missing value. The first step,
-- `stored`, is in the facts.
local function step(stage, at, via, session, reply)
  return '\n' .. stage .. ' ' .. at .. ' ' .. via .. ' ' .. session .. ' ' .. reply
end

-- The open questions in the inbox of people, by position. Members are those of the inbox.
local function questions_key()
  return fleet .. 'questions'
end

-- The hosts of the senders of messages in the inbox of people, by message.
local function hosts_key()
  return fleet .. 'hosts'
end

-- The index of the inbox of people. All members have the score 0, so they are in the order of their text: 'group', a line
-- break, 'position' and the member of the inbox. Each message is in two groups. The field `grouped` of the record is the
-- position of the latest message there.
local function groups_key()
  return fleet .. 'groups'
end

-- Returns both members of a message in the index.
local function grouped(place, position, host, is_question)
  local from, rest = string.match(place, '^(.-)::'), string.format('\n%016d ', position) .. place
  if is_question then
    return 'agent ' .. from .. rest, 'questions ' .. host .. rest
  end
  return (from == 'system' and 'alarms' or 'notices') .. rest, 'notices ' .. host .. rest
end

-- Whether the last message that left an inbox had been shown: the next one is in the same list more often than not.
local was_last_shown = true

-- Removes a message from the inbox. Returns whether it was there.
local function take_out(place)
  if name == 'human' then
    local position = redis.call('ZSCORE', unshown, place) or redis.call('ZSCORE', shown, place)
    if not position then
      return
    end
    local id, is_question = string.match(place, '^%S+'), redis.call('ZREM', questions_key(), place) == 1
    local host = redis.call('HGET', hosts_key(), id) or ''
    redis.call('HDEL', hosts_key(), id)
    redis.call('ZREM', groups_key(), grouped(place, position, host, is_question))
  end
  local first, second = shown, unshown
  if not was_last_shown then
    first, second = unshown, shown
  end
  if redis.call('ZREM', first, place) == 1 then
    return true
  end
  if redis.call('ZREM', second, place) == 1 then
    was_last_shown = not was_last_shown
    return true
  end
end

-- Makes a planned duty due now. A claimed one is due again when its claim ends.
local function hasten(duty)
  local claims = fleet .. 'duty_claims'
  local claim, since = string.match(redis.call('HGET', claims, duty) or '', '^(%S+) (%d+)')
  if claim then
    redis.call('HSET', claims, duty, claim .. ' ' .. since .. ' ' .. now)
  else
    redis.call('ZADD', fleet .. 'duties', 'XX', 'LT', now, duty)
  end
end

-- Settles a message. From now on it is stored for as long as it would have been after its expiry. A message that was removed
-- from the inbox earlier keeps its end of storage. Returns whether it was in the inbox.
local function settle(id, facts)
  local was_open = take_out(member(id, facts))
  if was_open then
    -- As text: the conversion of a number by Redis takes as long as a command.
    redis.call('PEXPIREAT', message_key(id), string.format('%d', now + facts.kept_until - facts.expires))
    if name == 'human' then
      hasten('push ' .. id)
    end
  end
  return was_open
end

-- Expires a message at the time `at`, if it is still in the inbox.
local function expire_one(id, expires, at)
  if not take_out(id .. ' ' .. expires) then
    return
  end
  expired = expired + 1
  local key = message_key(id)
  local kept = redis.call('HMGET', key, 'facts', 'history')
  local facts = read_facts(kept[1], id)
  if facts then
    redis.call('HSET', key, 'history', (kept[2] or '') .. step('expired', at, '-', '-', '-'))
    log('receipt', name, about_message(facts.from, id) .. field('stage', 'expired'))
    wake('receipt', id)
    is_news = true
  end
end

-- Expires the messages of one list. Returns the next expiry, and how many more messages may be expired. Members end with their
-- expiry, in 13 digits: as texts, times have the same order, and a list may be long.
local function expire_from(list, next_due, left)
  for _, place in ipairs(redis.call('ZRANGE', list, 0, -1)) do
    local ends = string.sub(place, -13)
    if ends <= now_text and left > 0 then
      left = left - 1
      expire_one(string.match(place, '^%S+'), ends, ends)
    elseif ends < next_due then
      next_due = ends
    end
  end
  return next_due, left
end

-- Expires messages of an inbox. `due` is the recorded time before which none expires; a list of expiry times would cost two
-- writes for every message. Returns the new time to record, or nothing if it expired more than a few messages; then the call
-- is repeated.
local function expire(due)
  if not due or now_text < due then
    return due or NEVER
  end
  local most = is_batch and EXPIRED_OF_BATCH_MAX - expired or name == 'human' and EXPIRED_OF_PEOPLE_MAX or EXPIRED_MAX
  local next_due, left = expire_from(unshown, NEVER, most)
  next_due, left = expire_from(shown, next_due, left)
  redis.call('HSET', agent, 'due', next_due)
  publish('-')
  woken_count = 0
  return most - left <= EXPIRED_FEW and next_due or nil
end

-- The return value of a function whose call must be repeated.
local AGAIN = { err = 'AGAIN what is past its time was taken out, and nothing else was done' }

local function expire_due()
  return expire(redis.call('HGET', agent, 'due'))
end

local functions = {}

-- Defines a function. Small functions also run when Redis is full: they read, settle or record a little, or answer.
-- All others are refused as a whole before they begin. The last argument is for `run`.
local function define(title, flags, body)
  functions[#functions + 1] = { title, flags, function(keys, args)
    begin(keys)
    local result = run(body, table.remove(args), keys, args)
    append_log()
    return result
  end }
end

-- The functions that run in batches, by their titles.
local batched = {}

-- Defines a function that may run in a batch: body(origin of its wakes, arguments of the whole batch, position before its own, their
-- number). Copies of its arguments would cost as much as two commands, and so would its keys, so it makes them of names.
local function define_batched(title, flags, body)
  batched[title] = body
  define(title, flags, function(_, args)
    return body(args[1], args, 1, #args - 1)
  end)
end
local SMALL, LARGE = { 'allow-oom' }, {}
