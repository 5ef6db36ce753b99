-- Reads a part of the inbox: {where to go on, or '' at the end, position, envelope, '1' where repeated or '', position, ...}.
-- ARGV: 'inbox' or 'unshown', after, how many, 'any' 'message' or 'reply', thread or '', how many to look at,
-- after how many bytes to stop
local after, limit, wanted, thread = tonumber(ARGV[2]), tonumber(ARGV[3]), ARGV[4], ARGV[5]
local most, room = tonumber(ARGV[6]), tonumber(ARGV[7])
local lists = ARGV[1] == 'inbox' and { unshown, shown } or { unshown }
expire()

-- Adds what one list has behind the position, at most so much. Returns whether it may have more.
local function add_from(list, places)
  local found = redis.call('ZRANGEBYSCORE', list, '(' .. ARGV[2], '+inf', 'WITHSCORES', 'LIMIT', 0, most)
  for i = 1, #found, 2 do
    places[#places + 1] = { id = found[i], position = tonumber(found[i + 1]) }
  end
  return #found == most * 2
end

-- Adds what of a thread stands behind the position.
local function add_thread(places)
  local ids = redis.call('ZRANGE', slot .. 't:' .. thread, 0, -1)
  -- The first message of a thread has its id and is not in the index.
  ids[#ids + 1] = thread
  for _, id in ipairs(ids) do
    for _, list in ipairs(lists) do
      local position = tonumber(redis.call('ZSCORE', list, id) or '0')
      if position > after then
        places[#places + 1] = { id = id, position = position }
      end
    end
  end
end

-- What to look at, by position, and whether there is more behind it.
local function candidates()
  local places, more = {}, false
  if thread ~= '' and redis.call('ZCARD', slot .. 't:' .. thread) < most then
    add_thread(places)
  else
    for _, list in ipairs(lists) do
      more = add_from(list, places) or more
    end
  end
  table.sort(places, function(a, b) return a.position < b.position end)
  if not more then
    return places, false
  end
  -- Only so far as every list was read.
  for i = most + 1, #places do
    places[i] = nil
  end
  return places, true
end

local function admits(facts)
  facts = read_further_facts(facts)
  local kind = wanted == 'any' or (wanted == 'reply') == (facts.kind == 'reply')
  return kind and (thread == '' or facts.thread == thread)
end

-- The envelope, where the message is wanted.
local function envelope_of(id)
  if wanted == 'any' and thread == '' then
    return redis.call('HGET', message_key(id), 'env')
  end
  local kept = redis.call('HMGET', message_key(id), 'facts', 'env')
  return read_facts(kept[1], id) and admits(kept[1]) and kept[2]
end

local some_repeated = redis.call('EXISTS', repeated) == 1
local found, more = candidates()
local page = { more and tostring(found[#found].position) or '' }
for _, place in ipairs(found) do
  if #page > limit * 3 or room < 0 then
    page[1] = room < 0 and page[#page - 2] or ''
    break
  end
  local envelope = envelope_of(place.id)
  if envelope then
    room = room - #envelope
    page[#page + 1] = tostring(place.position)
    page[#page + 1] = envelope
    page[#page + 1] = some_repeated and redis.call('SISMEMBER', repeated, place.id) == 1 and '1' or ''
  end
end
return page
