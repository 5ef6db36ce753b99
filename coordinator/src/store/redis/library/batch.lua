-- A batch: several calls in one step, with one look at the clock, one entry of the log's stream, and one reply of Redis.

-- Runs a call, whose arguments follow a position. Returns {its result}, or the text of its error: the client takes an error among
-- results for one of them all.
local function part(title, last, origin, args, at, count)
  local size, entries = log_size, logged
  local is_done, result = pcall(run, batched[title], last, origin, args, at, count)
  if not is_done then
    -- As in a call of its own: what it changed stays, and is in no log.
    log_size, logged = size, entries
    if type(result) ~= 'table' then
      local text = tostring(result)
      result = { err = string.find(text, '^%u+ ') and text or 'ERR ' .. text }
    end
  end
  return type(result) == 'table' and result.err or { result }
end

-- Runs batched functions, in their order. Returns the results of `part`. Once they have expired more than a few messages, the rest
-- of them are not begun, and have no result.
-- KEYS: -, --. ARGV: origin of the wakes, the last time of all calls, then of each its function, the number of its arguments, and its
-- arguments
functions[#functions + 1] = { 'batch', LARGE, function(keys, args)
  begin(keys)
  is_batch = true
  local results, origin, last, at, count = {}, args[1], args[2], 3, #args
  while at <= count and expired <= EXPIRED_FEW do
    local own = tonumber(args[at + 1])
    results[#results + 1] = part(args[at], last, origin, args, at + 1, own)
    at = at + 2 + own
  end
  append_log()
  return results
end }
