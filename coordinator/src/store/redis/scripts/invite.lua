-- What every script about invites begins with: the time, and how one is kept.
local clock = redis.call('TIME')
local now = tonumber(clock[1]) * 1000 + math.floor(tonumber(clock[2]) / 1000)

-- Returns uses, end and record of an invite as it is kept, if it is open.
local function open(kept)
  local uses, expires, record = string.match(kept or '', '^(%d+) (%d+) (.*)$')
  if uses and uses ~= '0' and tonumber(expires) > now then
    return uses, expires, record
  end
end

