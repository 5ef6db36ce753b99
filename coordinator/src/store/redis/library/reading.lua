-- Reading inboxes, messages and threads.

-- Returns the position after which to read. A Redis that lost its latest data counts anew: then no message is after an older one.
local function known_position(after)
  local latest = tonumber(redis.call('HGET', agent, 'seq')) or 0
  return tonumber(after) > latest and '0' or after
end

-- Adds the members of one list after the position, within a limit. Returns whether there may be more.
local function add_from(list, after, most, places)
  local found = redis.call('ZRANGEBYSCORE', list, '(' .. after, '+inf', 'WITHSCORES', 'LIMIT', 0, most)
  for i = 1, #found, 2 do
    places[#places + 1] = { member = found[i], position = tonumber(found[i + 1]), is_unshown = list == unshown }
  end
  return #found == most * 2
end

-- Returns the messages to look at, by position, and whether there are more.
local function candidates(lists, after, most)
  local places, more = {}, false
  for _, list in ipairs(lists) do
    more = add_from(list, after, most, places) or more
  end
  table.sort(places, function(a, b) return a.position < b.position end)
  if not more then
    return places, false
  end
  -- Only up to the position to which every list was read.
  for i = most + 1, #places do
    places[i] = nil
  end
  return places, true
end

-- Returns whether a message is of the wanted kind and thread.
local function is_wanted(id, kind, thread)
  if kind == 'any' and thread == '' then
    return true
  end
  local kept = redis.call('HGET', message_key(id), 'facts')
  local facts = kept and read_further_facts(kept)
  if not facts or (thread ~= '' and facts.thread ~= thread) then
    return false
  end
  return kind == 'any' or (kind == 'reply') == (facts.kind == 'reply')
end

-- Returns whether an earlier session or context was shown the message with that history. The present one was shown none of those in
-- the list of unshown messages. People, who have no session, do not count.
local function was_shown_before(history, is_unshown, session)
  for whose in string.gmatch(history or '', '\nin_session %d+ %S+ (%S+)') do
    if is_unshown or whose ~= session and whose ~= '-' then
      return true
    end
  end
  return false
end

-- Reads a part of the inbox. Returns {position to continue at, or '' at the end, position, envelope, '1' if repeated or '',
-- position, ...}.
-- KEYS: -, agent. ARGV: 'inbox' or 'unshown', after, limit, 'any', 'message' or 'reply', thread or '',
-- limit of messages to look at, bytes after which to stop
define('page', SMALL, function(keys, args)
  use(keys[2])
  if not expire_due() then
    return AGAIN
  end
  local limit, room = tonumber(args[3]), tonumber(args[7])
  local lists = args[1] == 'inbox' and { unshown, shown } or { unshown }
  local found, more = candidates(lists, known_position(args[2]), tonumber(args[6]))
  local page = { more and tostring(found[#found].position) or '' }
  local generation, context = string.match(redis.call('HGET', agent, 'session') or '', '^(%d+) %S+ (%d+)$')
  local session = generation and session_name(generation, context)
  for _, place in ipairs(found) do
    if #page > limit * 3 or room < 0 then
      page[1] = room < 0 and page[#page - 2] or ''
      break
    end
    local id = string.match(place.member, '^%S+')
    -- The envelopes of the others may be long.
    local kept = is_wanted(id, args[4], args[5]) and redis.call('HMGET', message_key(id), 'env', 'history') or {}
    if kept[1] then
      room = room - #kept[1]
      page[#page + 1] = tostring(place.position)
      page[#page + 1] = kept[1]
      page[#page + 1] = was_shown_before(kept[2], place.is_unshown, session) and '1' or ''
    end
  end
  return page
end)

-- Counts the inbox. Returns {count, time of acceptance of the oldest or nothing}. KEYS: -, agent
define('pending', SMALL, function(keys)
  use(keys[2])
  if not expire_due() then
    return AGAIN
  end
  local oldest = candidates({ unshown, shown }, '0', 1)[1]
  local facts = oldest and redis.call('HGET', message_key(string.match(oldest.member, '^%S+')), 'facts')
  return { count_inbox(), facts and tonumber(read_further_facts(facts).at) or false }
end)

-- Reads the open questions to people, unless they are those with the known mark: their number and the latest. No other questions
-- have both, because each later one is the latest. Returns {mark, place, place, ...}, without places if the mark is the known one.
-- A place is the id and the time of expiry: an agent can use an id again. KEYS: -, human.
-- ARGV: known mark or ''
define('open_questions', SMALL, function(keys, args)
  use(keys[2])
  if not expire_due() then
    return AGAIN
  end
  local latest = redis.call('ZRANGE', questions_key(), -1, -1)[1] or ''
  local open = { redis.call('ZCARD', questions_key()) .. ' ' .. latest }
  if open[1] ~= args[1] then
    for _, place in ipairs(redis.call('ZRANGE', questions_key(), 0, -1)) do
      open[#open + 1] = place
    end
  end
  return open
end)

-- Returns the times of acceptance of messages to people, or '' for one that is not stored. KEYS: -, --. ARGV: ids
define('times', SMALL, function(_, args)
  use_named('human')
  local times = {}
  for i, id in ipairs(args) do
    local facts = redis.call('HGET', message_key(id), 'facts')
    times[i] = read_facts(facts, id) and tostring(read_further_facts(facts).at) or ''
  end
  return times
end)

-- Reads a message. Returns {that field of it, history, reply}, or nothing if it is not stored.
-- KEYS: -, agent, message. ARGV: id, field
define('message', SMALL, function(keys, args)
  use(keys[2])
  local facts = redis.call('HGET', keys[3], 'facts')
  local found = read_facts(facts, args[1])
  if not found then
    return false
  end
  if found.expires <= now_text then
    expire_one(args[1], found.expires, found.expires)
    publish('-')
  end
  local kept = redis.call('HMGET', keys[3], args[2], 'history', 'reply')
  return { kept[1], 'stored ' .. read_further_facts(facts).stored .. ' - - -' .. (kept[2] or ''), kept[3] }
end)

-- Compares bytes, as the index does: Lua itself compares texts by the locale of the server.
local function sorts_behind(id, other)
  for i = 1, #id do
    local byte, others = string.byte(id, i), string.byte(other, i) or -1
    if byte ~= others then
      return byte > others
    end
  end
  return false
end

-- Returns the rank of the first member after the mark. Among those of the same millisecond it searches by bisection.
local function rank_behind(index, at, id)
  if id == '' then
    return 0
  end
  local low = redis.call('ZCOUNT', index, '-inf', '(' .. at)
  local high = low + redis.call('ZCOUNT', index, at, at)
  while low < high do
    local middle = math.floor((low + high) / 2)
    if sorts_behind(redis.call('ZRANGE', index, middle, middle)[1], id) then
      high = middle
    else
      low = middle + 1
    end
  end
  return low
end

-- Returns the key of a message of any agent.
local function key_of(id)
  return fleet .. 'm:' .. string.match(id, '^.-::(.-)::') .. ':' .. string.sub(id, -8)
end

-- Returns whether one message of a thread is before another.
local function stands_before(at, id, other_at, other_id)
  local since = tonumber(other_at) - tonumber(at)
  return since > 0 or since == 0 and sorts_behind(other_id, id)
end

-- How many members of a thread are read at once: most pages are full before the second read.
local THREAD_STEP = 25

-- Calls `visit` with each message of a thread after the mark, in order, until it returns false or the limit is reached. The
-- first message of a thread has the id of the thread and is not in the index.
local function walk(index, first, at, behind, most, visit)
  local facts = redis.call('HGET', key_of(first), 'facts')
  local first_at = read_facts(facts, first) and read_further_facts(facts).at
  if first_at and behind ~= '' and not stands_before(at, behind, first_at, first) then
    first_at = nil
  end
  local rank = rank_behind(index, at, behind)
  for _ = 1, most / THREAD_STEP do
    local found = redis.call('ZRANGE', index, rank, rank + THREAD_STEP - 1, 'WITHSCORES')
    for i = 1, #found, 2 do
      if first_at and stands_before(first_at, first, found[i + 1], found[i]) then
        if not visit(first, first_at) then
          return
        end
        first_at = nil
      end
      if not visit(found[i], found[i + 1]) then
        return
      end
    end
    rank = rank + THREAD_STEP
    if #found < THREAD_STEP * 2 then
      return not first_at or visit(first, first_at), true
    end
  end
end

-- Reads a part of a thread after a mark in it. Returns {time of acceptance and id of the last message looked at, or '' and ''
-- at the end of the thread, envelope, time of storing, ...}, in order.
-- KEYS: -, thread. ARGV: thread, time and id of the mark or '' and '', the reader, limit of messages to look at, limit of
-- messages to find, bytes after which to stop, 'env', or 'sent' for only the ids of the messages that the reader sent
define('thread', SMALL, function(keys, args)
  local limit, room, ids_only = tonumber(args[6]), tonumber(args[7]), args[8] == 'sent'
  local sent, received = args[4] .. '::', '::' .. args[4] .. '::'
  local page, last_at, last_id, gone = { '', '' }, '', '', {}
  local function visit(id, at)
    if limit == 0 or room < 0 then
      return false
    end
    last_at, last_id = at, id
    if string.sub(id, 1, #sent) == sent or not ids_only and string.find(id, received, 1, true) then
      local kept = redis.call('HMGET', key_of(id), 'facts', ids_only and 'facts' or 'env')
      if read_facts(kept[1], id) then
        local found = ids_only and id or kept[2]
        page[#page + 1] = found
        if not ids_only then
          page[#page + 1] = read_further_facts(kept[1]).stored
        end
        limit, room = limit - 1, room - #found
      else
        gone[#gone + 1] = id
      end
    end
    return true
  end
  local took_last, is_end = walk(keys[2], args[1], args[2], args[3], tonumber(args[5]), visit)
  if not (took_last and is_end) then
    page[1], page[2] = last_at, last_id
  end
  if #gone > 0 then
    redis.call('ZREM', keys[2], unpack(gone))
  end
  return page
end)

-- Returns the host that has an agent of this name in any case, or to which the name of a deleted one stays reserved, and since
-- when; or nothing.
-- KEYS: -, agent
define('holder', SMALL, function(keys)
  use(keys[2])
  local known = redis.call('HGET', folded_key(), string.lower(name)) or name
  local kept = redis.call('HMGET', fleet .. 'agent:' .. known, 'host', 'registered_at')
  if kept[1] and kept[1] ~= '' then
    return { kept[1], tonumber(kept[2]) }
  end
  local _, since, host = reservation(name)
  return host and { host, tonumber(since) or 0 } or false
end)
