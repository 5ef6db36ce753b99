-- A batch: several calls in one step, with one look at the clock, one entry of the log's stream, and one reply of Redis.

-- Runs the call whose keys and arguments follow these positions. Returns {its result}, or the text of its error: the client takes
-- an error among results for one of them all.
local function part(title, last, keys, key_at, key_count, args, arg_at, arg_count)
  local entries = #logged
  local is_done, result = pcall(run, batched[title], last, keys, key_at, key_count, args, arg_at, arg_count)
  if not is_done then
    -- As in a call of its own: what it changed stays, and is in no log.
    for i = #logged, entries + 1, -1 do
      logged[i] = nil
    end
    if type(result) ~= 'table' then
      local text = tostring(result)
      result = { err = string.find(text, '^%u+ ') and text or 'ERR ' .. text }
    end
  end
  return type(result) == 'table' and result.err or { result }
end

-- Runs batched functions, in their order. Returns the results of `part`. Once they have expired more than a few messages, the rest
-- of them are not begun, and have no result.
-- KEYS: those of the calls, one after another. ARGV: for each call its function, its last time, the numbers of its keys and of its
-- arguments, and its arguments
functions[#functions + 1] = { 'batch', LARGE, function(keys, args)
  begin(keys)
  is_batch = true
  local results, key_at, at = {}, 0, 1
  while at <= #args and expired <= EXPIRED_FEW do
    local title, last, key_count, arg_count = args[at], args[at + 1], tonumber(args[at + 2]), tonumber(args[at + 3])
    results[#results + 1] = part(title, last, keys, key_at, key_count, args, at + 3, arg_count)
    key_at, at = key_at + key_count, at + 4 + arg_count
  end
  append_log()
  return results
end }
