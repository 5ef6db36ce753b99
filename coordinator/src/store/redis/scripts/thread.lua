-- Finds what of a thread this agent was sent and is kept, behind a mark in it: {when the last one that was looked at was
-- accepted, its id, or two times '' where the thread ends, when accepted, id, bytes of the envelope, ...}. It reads no
-- envelope, so that the caller reads only those that it shows.
-- ARGV: thread, the time and id of the mark, or two times '' for all, 'sender::' or '' for
-- everybody's, how many to look at, how many to find, after how many bytes to stop
local index = slot .. 't:' .. ARGV[1]
local after_at, after_id, wanted = ARGV[2], ARGV[3], ARGV[4]
local most, limit, room = tonumber(ARGV[5]), tonumber(ARGV[6]), tonumber(ARGV[7])

-- By their bytes, as the index has them: what Lua itself says of texts depends on the server's locale.
local function sorts_behind(id, other)
  for i = 1, #id do
    local byte, others = string.byte(id, i), string.byte(other, i) or -1
    if byte ~= others then
      return byte > others
    end
  end
  return false
end

-- The rank of the first one behind the mark. Of those of the same millisecond it is searched for by halves.
local function rank_behind()
  if after_id == '' then
    return 0
  end
  local low = redis.call('ZCOUNT', index, '-inf', '(' .. after_at)
  local high = low + redis.call('ZCOUNT', index, after_at, after_at)
  while low < high do
    local middle = math.floor((low + high) / 2)
    if sorts_behind(redis.call('ZRANGE', index, middle, middle)[1], after_id) then
      high = middle
    else
      low = middle + 1
    end
  end
  return low
end

local found = { '', '' }

-- Returns how many bytes it has, 0 where it is not kept.
local function add(id, at)
  local bytes = redis.call('HSTRLEN', message_key(id), 'env')
  if bytes > 0 then
    found[#found + 1] = at
    found[#found + 1] = id
    found[#found + 1] = tostring(bytes)
  end
  return bytes
end

local function is_wanted(id)
  return string.sub(id, 1, #wanted) == wanted
end

-- The first message of a thread has its id and is not in the index.
local function add_first()
  local id = ARGV[1]
  local facts = redis.call('HGET', message_key(id), 'facts')
  if not is_wanted(id) or not read_facts(facts, id) then
    return
  end
  local at = read_further_facts(facts).at
  local since = after_id == '' and 1 or tonumber(at) - tonumber(after_at)
  if since > 0 or since == 0 and sorts_behind(id, after_id) then
    add(id, at)
  end
end

add_first()
local rank = rank_behind()
local ids = redis.call('ZRANGE', index, rank, rank + most - 1, 'WITHSCORES')
local i = 1
while i < #ids and limit > 0 and room >= 0 do
  if is_wanted(ids[i]) then
    local bytes = add(ids[i], ids[i + 1])
    if bytes > 0 then
      limit, room = limit - 1, room - bytes
    else
      redis.call('ZREM', index, ids[i])
    end
  end
  i = i + 2
end
if i < #ids or #ids == most * 2 then
  found[1], found[2] = ids[i - 1], ids[i - 2]
end
return found
