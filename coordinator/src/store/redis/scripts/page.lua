-- Reads a part of the inbox: {where to go on, or '' at the end, position, envelope, '1' where repeated or '', position, ...}.
-- ARGV: 'inbox' or 'unshown', after, how many, 'any' 'message' or 'reply', thread or '', how many to look at
local from, after, limit, wanted, thread = slot .. ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), ARGV[4], ARGV[5]
local most = tonumber(ARGV[6])
expire()

-- {id, position, id, position, ...}, and whether there is more behind them.
local function candidates()
  local index = slot .. 't:' .. thread
  if thread == '' or redis.call('ZCARD', index) >= most then
    local found = redis.call('ZRANGEBYSCORE', from, '(' .. ARGV[2], '+inf', 'WITHSCORES', 'LIMIT', 0, most)
    return found, #found == most * 2
  end
  local places, ids = {}, redis.call('ZRANGE', index, 0, -1)
  -- The first message of a thread has its id and is not in the index.
  ids[#ids + 1] = thread
  for _, id in ipairs(ids) do
    local position = redis.call('ZSCORE', from, id)
    if position and tonumber(position) > after then
      places[#places + 1] = { id, position }
    end
  end
  table.sort(places, function(a, b) return tonumber(a[2]) < tonumber(b[2]) end)
  local found = {}
  for _, place in ipairs(places) do
    found[#found + 1] = place[1]
    found[#found + 1] = place[2]
  end
  return found, false
end

local function admits(id)
  if wanted == 'any' and thread == '' then
    return true
  end
  local facts = redis.call('HMGET', message_key(id), 'kind', 'thread')
  local kind = wanted == 'any' or (wanted == 'reply') == (facts[1] == 'reply')
  return kind and (thread == '' or facts[2] == thread)
end

local some_repeated = redis.call('EXISTS', repeated) == 1
local found, more = candidates()
local page = { more and found[#found] or '' }
for i = 1, #found, 2 do
  if #page > limit * 3 then
    page[1] = ''
    break
  end
  local envelope = admits(found[i]) and redis.call('HGET', message_key(found[i]), 'env')
  if envelope then
    page[#page + 1] = found[i + 1]
    page[#page + 1] = envelope
    page[#page + 1] = some_repeated and redis.call('SISMEMBER', repeated, found[i]) == 1 and '1' or ''
  end
end
return page
