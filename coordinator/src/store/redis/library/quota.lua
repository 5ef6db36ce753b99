-- Quotas: the bytes of messages stored with each key within the last day. Each key has one text, which expires by itself:
-- 'hour bytes earlier hour:bytes hour:bytes …': the latest hour and its bytes, the sum of the earlier hours, and each of these.

local HOUR, QUOTA_HOURS = 3600000, 24

-- The state of the call that runs: the key and the text to write with the message, or nothing without a quota.
local charged_key, charged

-- Returns when so many bytes are out of the day. `hours` is a text of hours, the earliest first.
local function freed_at(hours, excess)
  local last
  for at, bytes in string.gmatch(hours, ' (%d+):(%d+)') do
    last, excess = at, excess - tonumber(bytes)
    if excess <= 0 then
      break
    end
  end
  return string.format('%.0f', (tonumber(last) + QUOTA_HOURS) * HOUR)
end

-- Begins a new hour, without the hours before the last day. Returns the sum of the earlier hours, and each of them.
local function next_hour(hour, hours)
  local before, kept = 0, {}
  for at, bytes in string.gmatch(hours, ' (%d+):(%d+)') do
    if tonumber(at) > hour - QUOTA_HOURS then
      before = before + tonumber(bytes)
      kept[#kept + 1] = ' ' .. at .. ':' .. bytes
    end
  end
  return before, table.concat(kept)
end

-- Checks whether a quota has room. Returns nothing, or the refusal: {'over', bytes of the last day, time from which there is
-- room}. `price` is 'bytes limit key', or ''.
local function charge(price)
  charged = nil
  if price == '' then
    return
  end
  local bytes, most, key = string.match(price, '^(%d+) (%d+) (.*)$')
  bytes, most = tonumber(bytes), tonumber(most)
  charged_key = fleet .. 'quota:' .. key
  local hour = math.floor(now / HOUR)
  local kept = redis.call('GET', charged_key) or '0 0 0'
  local last, latest, before, hours = string.match(kept, '^(%d+) (%d+) (%d+)(.*)$')
  last, latest, before = tonumber(last), tonumber(latest), tonumber(before)
  if hour > last then
    before, hours = next_hour(hour, hours .. ' ' .. last .. ':' .. latest)
    last, latest = hour, 0
  end
  local count = latest + before
  if count + bytes > most then
    return { 'over', count, freed_at(hours .. ' ' .. last .. ':' .. latest, count + bytes - most) }
  end
  charged = last .. ' ' .. (latest + bytes) .. ' ' .. before .. hours
end

-- Stores the charge.
local function note_charge()
  if charged then
    redis.call('SET', charged_key, charged, 'PX', QUOTA_HOURS * HOUR)
  end
end
