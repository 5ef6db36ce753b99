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
-- KEYS: -, --. ARGV: origin of the wakes, then for each call its function, its last time, the number of its arguments, and its arguments
functions[#functions + 1] = { 'batch', LARGE, function(keys, args)
  begin(keys)
  is_batch = true
  local results, origin, at, count = {}, args[1], 2, #args
  while at <= count and expired <= EXPIRED_FEW do
    local own = tonumber(args[at + 2])
    results[#results + 1] = part(args[at], args[at + 1], origin, args, at + 2, own)
    at = at + 3 + own
  end
  append_log()
  return results
end }
