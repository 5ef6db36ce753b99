-- Agents and their sessions: the holder of each name, and the changes of a new session or context.
-- The field `session` is 'generation instance context', one text to check whether a session is outdated.
-- `whose` is the 'generation instance' of the calling session, or '' for a person.

local FIELDS = { 'uid', 'host', 'session_id', 'description', 'capabilities', 'role', 'state', 'current_task', 'reach',
  'session', 'held_until', 'registered_at', 'last_seen', 'prompted_at', 'base', 'slot', 'made_by' }

-- The agents whose owners requested one name: 'slot host' of each, and its name.
local function names_key(base)
  return fleet .. 'names:' .. base
end

-- 'key@since host': the key that made a deleted agent, and the host for which its name stays reserved in every spelling, so
-- that no other host gets the messages that are still stored. `since` is when the host first had it; it is missing, so always,
-- for a name that an earlier build reserved.
local function former_key(title)
  return fleet .. 'former:' .. string.lower(title)
end

-- Returns the key, the time and the host of a reservation, or nothing if the name is free.
local function reservation(title)
  return string.match(redis.call('GET', former_key(title)) or '', '^([^@ ]*)@?(%d*) (.*)$')
end

local function former_host()
  local _, _, host = reservation(name)
  return host
end

-- The limit of reserved names of one key: the oldest reservation ends first.
local FORMER_MAX = 1000

-- The hosts with reservations by keys, each with the latest time at which one ends. A name that is freed before stays there.
local function former_hosts_key()
  return fleet .. 'former_hosts'
end

local function note_former_host(host, maker, ends)
  if #maker == 8 and not string.find(maker, '[^0-9a-f]') then
    redis.call('ZREMRANGEBYSCORE', former_hosts_key(), '-inf', now)
    redis.call('ZADD', former_hosts_key(), 'GT', ends, host)
  end
end

local function reserve(host, maker, since, life)
  note_former_host(host, maker, now + tonumber(life))
  local formers = fleet .. 'formers:' .. maker
  redis.call('SET', former_key(name), maker .. '@' .. since .. ' ' .. host, 'PX', life)
  redis.call('ZADD', formers, now, string.lower(name))
  redis.call('PEXPIREAT', formers, now + tonumber(life))
  if redis.call('ZCARD', formers) > FORMER_MAX then
    -- The reservation may have ended, and the name may be reserved by another key.
    local oldest = redis.call('ZPOPMIN', formers)[1]
    if reservation(oldest) == maker then
      redis.call('DEL', former_key(oldest))
    end
  end
end

-- Returns whether an owner may take the agent in use. It may if there is no such agent, or it owns the agent, or the agent is
-- of its host and without an owner, and the owner has no other one. Earlier builds stored no owner.
local function may_have(base, slot, host)
  local found = redis.call('HMGET', agent, 'base', 'slot', 'host')
  if found[2] then
    return found[1] == base and found[2] == slot and found[3] == host
  end
  local of = found[3] or former_host() or ''
  local is_of_host = of == '' or of == host
  return is_of_host and redis.call('HEXISTS', names_key(base), slot .. ' ' .. host) == 0
end

-- Returns whether the session has that generation and instance.
local function is_of(session, whose)
  return string.find(session, whose, 1, true) == 1 and string.byte(session, #whose + 1) == 32
end

-- Returns the name of a session in histories: its generation and, but for the first one, its context.
local function session_name(generation, context)
  return context == '0' and generation or generation .. '.' .. context
end

-- Returns the present context as text, or nothing if the session is outdated.
local function context_of(whose)
  local session = speaking == name and speaking_session or redis.call('HGET', agent, 'session') or ''
  if is_of(session, whose) then
    return string.sub(session, #whose + 2)
  end
end

local function is_outdated(whose)
  return whose ~= '' and not context_of(whose)
end

-- Returns the refusal of a caller that may act as its agent no longer: {'outdated'} if its session is, or if the agent is gone,
-- {'reserved', host} if a person's agent is another host's.
-- ARGV from `at` on: the agent or '', whose, host of a person or ''
local function refused_speaker(args, at)
  local title, whose, host = args[at], args[at + 1], args[at + 2]
  if title == '' then
    return
  end
  local record = title == name and agent or fleet .. 'agent:' .. title
  local kept = redis.call('HMGET', record, 'session', 'registered_at')
  local session = kept[1]
  speaking, speaking_session, speaking_since = title, session, kept[2]
  if not session or whose ~= '' and not is_of(session, whose) then
    return { 'outdated' }
  end
  local of = whose == '' and redis.call('HGET', record, 'host')
  if of and of ~= '' and of ~= host then
    return { 'reserved', of }
  end
end

-- How many messages one command makes unshown: Lua passes up to 8,000 arguments.
local UNSHOWN_AT_ONCE = 500

-- Makes every message of the inbox one that was not shown; those that were come to the session as repeated. It costs as much as
-- they are, and each of them a receipt: a union of both lists would copy the whole inbox for each new context.
local function unshow()
  local marked = redis.call('ZRANGE', shown, 0, -1, 'WITHSCORES')
  for first = 1, #marked, 2 * UNSHOWN_AT_ONCE do
    local moved = {}
    for i = first, math.min(first + 2 * UNSHOWN_AT_ONCE, #marked + 1) - 1, 2 do
      moved[#moved + 1], moved[#moved + 2] = marked[i + 1], marked[i]
    end
    redis.call('ZADD', unshown, unpack(moved))
  end
  redis.call('DEL', shown)
end

-- Makes a newer context the present one: it was shown nothing.
local function enter_context(context)
  local whose, present = string.match(redis.call('HGET', agent, 'session'), '^(.*) (%d+)$')
  if tonumber(context) > tonumber(present) then
    redis.call('HSET', agent, 'session', whose .. ' ' .. context)
    unshow()
  end
end

-- The agents that one key made.
local function made_key(maker)
  return fleet .. 'made:' .. maker
end

-- Records the key that made the agent, if agents of the key are counted and its key is unknown.
local function note_maker(maker)
  if maker ~= '' and redis.call('HSETNX', agent, 'made_by', maker) == 1 then
    redis.call('SADD', made_key(maker), name)
  end
end

-- The names of agents by their lower-case spelling. An agent of an earlier build is added with its next session.
local function folded_key()
  return fleet .. 'folded'
end

-- Returns the refusal of a new agent: {'alike', agent} if a name differs only in case, {'crowded', count} if the key made as
-- many agents as it may. Returns nothing if the agent may be made.
local function refused_agent(maker, most)
  local known = redis.call('HGET', folded_key(), string.lower(name))
  if known and known ~= name and redis.call('EXISTS', fleet .. 'agent:' .. known) == 1 then
    return { 'alike', known }
  end
  local count = maker ~= '' and redis.call('SCARD', made_key(maker)) or -1
  if count >= tonumber(most) then
    return { 'crowded', count }
  end
end

-- Makes the agent. Positions continue those of an earlier agent of the name; link numbers are new.
local function create(uid)
  local positions = redis.call('GET', fleet .. 'seq:' .. name) or '0'
  local _, since, host = reservation(name)
  redis.call('HSET', agent, 'uid', uid, 'session', '0 - 0', 'held_until', '0', 'state', 'stopped', 'registered_at',
    host and (tonumber(since) or 0) or now_text, 'last_seen', now, 'seq', positions, 'due', NEVER, 'link', now)
  if host then
    redis.call('HSET', agent, 'host', host, 'reserved', '1')
    redis.call('DEL', former_key(name))
  end
  redis.call('ZADD', fleet .. 'agents', 0, name)
  redis.call('HSET', folded_key(), string.lower(name), name)
end

-- Returns the time at which the agent in use is deleted unless it comes back, or nothing if it stays for good, and whether it
-- is a one-shot session. People stay.
local function end_of_name(fleeting_life, life)
  if name == 'human' then
    return
  end
  local record = redis.call('HMGET', agent, 'held_until', 'last_seen', 'fleeting', 'one_shot', 'slot')
  local held = tonumber(record[1])
  if record[4] == '1' then
    return held, true
  end
  local may_take = record[3] == '1' and fleeting_life or record[5] and life
  return may_take and math.max(held, tonumber(record[2])) + tonumber(may_take)
end

-- Positions are stored for as long as any message to the agent is stored.
local function forget(life)
  local record = redis.call('HMGET', agent, 'base', 'slot', 'host', 'made_by', 'seq', 'reserved', 'registered_at')
  if record[2] then
    redis.call('HDEL', names_key(record[1]), record[2] .. ' ' .. record[3])
  end
  if record[4] then
    redis.call('SREM', made_key(record[4]), name)
  end
  if record[5] ~= '0' then
    redis.call('SET', fleet .. 'seq:' .. name, record[5], 'PX', life)
  end
  if record[6] == '1' then
    reserve(record[3], record[4] or '', record[7], life)
  end
  -- Earlier builds had a set of repeated messages.
  redis.call('DEL', agent, unshown, shown, fleet .. 'repeated:' .. name, asked_key(name), waits_key(name))
  redis.call('ZREM', fleet .. 'agents', name)
  cancel('expire', name)
  if redis.call('HEXISTS', claims_key(), 'withdraw ' .. name) == 0 then
    cancel('withdraw', name)
  end
  if redis.call('HGET', folded_key(), string.lower(name)) == name then
    redis.call('HDEL', folded_key(), string.lower(name))
  end
end

-- Returns whether nothing waits for the agent in use.
local function is_done()
  return count_inbox() == 0 and #own_questions() == 0
end

-- The limit of messages of a one-shot session that one call removes: each costs up to six commands, a question to people
-- eleven, and no call runs more than 500.
local ENDED_MAX = 50

-- Removes the messages to a one-shot session, and its questions, from all inboxes. Returns nothing if there may be more; then
-- the call is repeated.
local function end_one_shot()
  local own, left = name, ENDED_MAX
  for _, list in ipairs({ unshown, shown }) do
    for _, place in ipairs(left > 0 and redis.call('ZRANGE', list, 0, left - 1) or {}) do
      local id, expires = string.match(place, '^(%S+) (%d+)$')
      left = left - 1
      expire_one(id, expires, now)
    end
  end
  for _, id in ipairs(redis.call('SPOP', asked_key(name), left)) do
    left = left - 1
    local to = string.match(id, '^.-::(.-)::')
    use_named(to)
    local facts = read_facts(redis.call('HGET', message_key(id), 'facts'), id)
    if facts then
      expire_one(id, facts.expires, now)
    end
  end
  use_named(own)
  publish('-')
  woken_count = 0
  return left > 0 or nil
end

local function record()
  return redis.call('HMGET', agent, unpack(FIELDS))
end

-- Claims the name for a session. Returns {uid, generation, link, 1 for a one-shot session or else 0}. Returns nothing if the
-- name is another owner's, the owner has another name, or another process holds it. Or returns as `refused_agent` does.
-- KEYS: -, agent. ARGV: instance, lease, uid for a new name, host, session id, reach, fleeting, context, state or '', the
-- processes known to be dead, whether it is a one-shot session, base name and slot of the owner, the key or '', limit of
-- agents of the key, whether the name stays reserved when the agent is deleted, the key that is used or '', the word for the
-- connection, how long a fleeting agent may take to come back, how long any other one may
define('claim', SMALL, function(keys, args)
  use(keys[2])
  local instance, context, host, base, slot = args[1], args[8], args[4], args[12], args[13]
  if not may_have(base, slot, host) then
    return false
  end
  local held = redis.call('HMGET', agent, 'session', 'held_until', 'fleeting', 'due', 'one_shot')
  local generation, holder, present = string.match(held[1] or '', '^(%d+) (%S+) (%d+)$')
  local is_same = holder == instance
  if holder and not is_same and not string.find(args[10], holder, 1, true) and tonumber(held[2]) > now then
    return false
  end
  if not expire(held[4]) or (held[5] == '1' and not is_same and not end_one_shot()) then
    return AGAIN
  end
  local refused = not holder and refused_agent(args[14], args[15])
  if refused then
    return refused
  end
  if not holder then
    create(args[3])
    generation, present = '0', '0'
  end
  if is_same then
    enter_context(context)
  else
    -- A name that was once chosen explicitly never counts as generated; a process that returns under its own name chooses
    -- nothing.
    local made = args[7] == '1' and (held[3] == '1' or generation == '0')
    local one_shot = args[11] == '1' and (held[5] == '1' or generation == '0')
    local session = (tonumber(generation) + 1) .. ' ' .. instance .. ' ' .. context
    redis.call('HSET', agent, 'session', session, 'state', 'starting', 'session_id', args[5], 'fleeting', made and '1' or '0', 'one_shot', one_shot and '1' or '0')
    redis.call('HDEL', agent, 'current_task')
    unshow()
  end
  redis.call('HSET', names_key(base), slot .. ' ' .. host, name)
  note_maker(args[14])
  redis.call('HSETNX', folded_key(), string.lower(name), name)
  local fields = { 'reach', args[6], 'held_until', now + tonumber(args[2]), 'last_seen', now, 'base', base, 'slot', slot, 'host', host,
    'reserved', args[16] }
  for field, value in pairs({ state = args[9], session_id = args[5] }) do
    if value ~= '' then
      fields[#fields + 1] = field
      fields[#fields + 1] = value
    end
  end
  redis.call('HSET', agent, unpack(fields))
  plan('withdraw', name, end_of_name(args[19], args[20]))
  local link = redis.call('HINCRBY', agent, 'link', 1)
  local session = redis.call('HMGET', agent, 'uid', 'session', 'one_shot', 'state')
  if not is_same or tonumber(held[2]) <= now then
    log('session_begun', name, field('key', args[17]) .. field('verb', args[18]))
    publish('-')
    tell_state(session[1], 'stopped', session[4])
  end
  return { session[1], tonumber(string.match(session[2], '^%d+')), link, session[3] == '1' and 1 or 0 }
end)

-- Renews a hold. Returns 1, or 0 if the session is outdated. KEYS: -, agent. ARGV: whose, lease
define('renew', SMALL, function(keys, args)
  use(keys[2])
  if is_outdated(args[1]) then
    return 0
  end
  redis.call('HSET', agent, 'held_until', now + tonumber(args[2]), 'last_seen', now)
  return 1
end)

-- Ends the hold of a session. If the session is over, deletes a fleeting agent with an empty inbox, and a one-shot session
-- with everything that it left; otherwise the hold of such a session ends by itself.
-- KEYS: -, agent. ARGV: whose, link, whether the session is over, how long positions are stored, the key that is used or '',
-- the word for the end, the new name of the session or ''
define('release', SMALL, function(keys, args)
  use(keys[2])
  local record = redis.call('HMGET', agent, 'link', 'due', 'fleeting', 'one_shot', 'uid', 'state')
  local is_over, is_one_shot = args[3] == '1', record[4] == '1'
  if is_outdated(args[1]) or record[1] ~= args[2] or (is_one_shot and not is_over) then
    return 0
  end
  if not expire(record[2]) or (is_one_shot and not end_one_shot()) then
    return AGAIN
  end
  redis.call('HSET', agent, 'held_until', '0', 'last_seen', now)
  if args[7] ~= '' then
    log('renamed', name, field('key', args[5]) .. field('to', args[7]))
  else
    log('session_ended', name, field('key', args[5]) .. field('verb', args[6]))
  end
  publish('-')
  tell_state(record[5], record[6], 'stopped')
  if is_over and (is_one_shot or record[3] == '1') and is_done() then
    forget(args[4])
  end
  return 1
end)

-- Returns the host to which the agent in use belongs, if that is another one. `human` belongs to all.
local function other_host(host)
  local of = redis.call('HGET', agent, 'host')
  return of and of ~= '' and host ~= '' and of ~= host and name ~= 'human' and of
end

-- Ends the hold of any session, and deletes an agent for which nothing waits. Returns 0 if there is no such agent, or its host if it is
-- another one.
-- KEYS: -, agent. ARGV: how long positions are stored, host or '', entry of the log or ''
define('unregister', SMALL, function(keys, args)
  use(keys[2])
  local due = redis.call('HGET', agent, 'due')
  if not due then
    return 0
  end
  local of = other_host(args[2])
  if of then
    return of
  end
  if not expire(due) then
    return AGAIN
  end
  local generation = string.match(redis.call('HGET', agent, 'session'), '^%d+')
  redis.call('HSET', agent, 'held_until', '0', 'session', generation .. ' - 0')
  if is_done() then
    forget(args[1])
  end
  log_whole(args[3])
  publish('-')
  return 1
end)

-- Deletes an agent that no session holds, and expires its questions to people and its inbox. Returns 1, 0 if there is none, 2
-- if it is held, or its host if it is another one. If the name is to be free for all hosts, a reservation by an agent that was
-- deleted before ends too.
-- KEYS: -, agent. ARGV: how long positions are stored, host or '', whether the name is free for all hosts, entry of the log or ''
define('remove', SMALL, function(keys, args)
  use(keys[2])
  local held = redis.call('HGET', agent, 'held_until')
  if not held and (args[3] == '0' or redis.call('DEL', former_key(name)) == 0) then
    return 0
  end
  local of = other_host(args[2])
  if of then
    return of
  end
  if held and tonumber(held) > now then
    return 2
  end
  local questions = held and own_questions() or {}
  if #questions > 0 then
    redis.call('SADD', asked_key(name), unpack(questions))
  end
  if held and not end_one_shot() then
    return AGAIN
  end
  if held then
    if args[3] == '1' then
      redis.call('HDEL', agent, 'reserved')
    end
    forget(args[1])
  end
  log_whole(args[4])
  publish('-')
  return 1
end)

-- The limit of agents of one base name that one call moves to another host: each costs up to seven commands.
local MOVED_MAX = 70

-- Moves the agents of one host under a base name to another host. If both have a slot, the moved agent keeps it, and the other
-- one gets the lowest free slot. Returns the number of moved agents, at most MOVED_MAX.
-- KEYS: -, names of that base, agent of that name. ARGV: from, to
define('move_host', SMALL, function(keys, args)
  local names, from, to = keys[2], args[1], args[2]
  local taken, moved, kept = {}, {}, redis.call('HGETALL', names)
  for i = 1, #kept, 2 do
    local slot, host = string.match(kept[i], '^(%d+) (.*)$')
    if host == to then
      taken[slot] = kept[i + 1]
    elseif host == from and #moved < MOVED_MAX then
      moved[#moved + 1] = { slot = slot, name = kept[i + 1] }
    end
  end
  table.sort(moved, function(a, b) return tonumber(a.slot) < tonumber(b.slot) end)
  for _, one in ipairs(moved) do
    taken[one.slot] = taken[one.slot] or ''
  end
  for _, one in ipairs(moved) do
    local there = taken[one.slot]
    if there ~= '' then
      local free = 1
      while taken[tostring(free)] do
        free = free + 1
      end
      taken[tostring(free)] = there
      redis.call('HSET', fleet .. 'agent:' .. there, 'slot', free, 'fleeting', '1')
      redis.call('HSET', names, free .. ' ' .. to, there)
      plan('withdraw', there, now)
    end
    taken[one.slot] = ''
    redis.call('HDEL', names, one.slot .. ' ' .. from)
    redis.call('HSET', names, one.slot .. ' ' .. to, one.name)
    redis.call('HSET', fleet .. 'agent:' .. one.name, 'host', to)
  end
  local own = redis.call('HMGET', keys[3], 'slot', 'host')
  if not own[1] and own[2] == from then
    redis.call('HSET', keys[3], 'host', to)
    return #moved + 1
  end
  return #moved
end)

-- Moves reservations of one host to its new name. Returns how many names of the key it looked at.
-- KEYS: -. ARGV: the key that made the agents, from, to, number of names to skip
define('move_reservations', SMALL, function(keys, args)
  local maker, from, to, offset = args[1], args[2], args[3], tonumber(args[4])
  local names = redis.call('ZRANGE', fleet .. 'formers:' .. maker, offset, offset + MOVED_MAX - 1)
  for _, title in ipairs(names) do
    local of, since, host = reservation(title)
    if of == maker and host == from then
      redis.call('SET', former_key(title), maker .. '@' .. since .. ' ' .. to, 'KEEPTTL')
      -- An earlier build did not note it.
      note_former_host(to, maker, redis.call('ZSCORE', former_hosts_key(), from) or now)
    end
  end
  return #names
end)

-- Returns the hosts with reservations by keys. KEYS: -
define('former_hosts', SMALL, function(keys)
  return redis.call('ZRANGEBYSCORE', former_hosts_key(), '(' .. now, '+inf')
end)

-- Creates the agent unless it exists, and records that it was seen. Returns its record, as `refused_agent` does, or
-- {'reserved', host} if it is or was another host's.
-- KEYS: -, agent. ARGV: uid for a new name, host, the key or '', limit of agents of the key, whether the name stays reserved
-- for the host
define('introduce', SMALL, function(keys, args)
  use(keys[2])
  local is_known = redis.call('EXISTS', agent) == 1
  local of = is_known and other_host(args[2]) or not is_known and args[2] ~= '' and former_host()
  if of and of ~= args[2] then
    return { 'reserved', of }
  end
  if not is_known then
    local refused = refused_agent(args[3], args[4])
    if refused then
      return refused
    end
    create(args[1])
    note_maker(args[3])
  end
  if args[2] ~= '' and redis.call('HEXISTS', agent, 'slot') == 0 then
    redis.call('HSET', agent, 'host', args[2])
    if args[5] == '1' then
      redis.call('HSET', agent, 'reserved', '1')
    end
  end
  redis.call('HSET', agent, 'last_seen', now)
  return record()
end)

-- Changes fields of the record. Returns the new record, nothing if there is no such agent, or the result of `refused_speaker`.
-- KEYS: -, agent.
-- ARGV: the speaker, context or '', how long it counts as online or '', the key that is used or '', the new state or '', field,
-- value, field, value, ...
define('amend', SMALL, function(keys, args)
  use(keys[2])
  local refused = refused_speaker(args, 1)
  if refused then
    return refused
  end
  if redis.call('EXISTS', agent) == 0 then
    return false
  end
  local context, attends, key, state = args[4], args[5], args[6], args[7]
  if context ~= '' then
    if not expire_due() then
      return AGAIN
    end
    enter_context(context)
  end
  if attends ~= '' then
    redis.call('HSET', agent, 'held_until', now + tonumber(attends), 'last_seen', now)
  end
  local known = redis.call('HMGET', agent, 'state', 'uid')
  if state ~= '' and known[1] ~= state then
    redis.call('HSET', agent, 'state', state)
    log('status_changed', name, field('key', key) .. field('verb', state))
    publish('-')
    tell_state(known[2], known[1], state)
  end
  if #args > 7 then
    redis.call('HSET', agent, unpack(args, 8))
  end
  return record()
end)

-- Reads the fields by which a session chooses its own name, of the agents with these names: {name, fields, name, fields, ...}.
-- KEYS: -. ARGV: names
define('namesakes', SMALL, function(keys, args)
  local found = {}
  for _, title in ipairs(args) do
    found[#found + 1] = title
    found[#found + 1] = redis.call('HMGET', fleet .. 'agent:' .. title, 'base', 'slot', 'host', 'session', 'held_until')
  end
  return found
end)

-- Reads agents in the order of names: {name, record, name, record, ...}. KEYS: -, agents. ARGV: after, limit
define('agents', SMALL, function(keys, args)
  local found = {}
  local from = args[1] == '' and '-' or '(' .. args[1]
  for _, title in ipairs(redis.call('ZRANGEBYLEX', keys[2], from, '+', 'LIMIT', 0, args[2])) do
    found[#found + 1] = title
    found[#found + 1] = redis.call('HMGET', fleet .. 'agent:' .. title, unpack(FIELDS))
  end
  return found
end)
