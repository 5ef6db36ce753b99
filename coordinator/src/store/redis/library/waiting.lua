-- Waits for answers: which agent waits for the answer to which of its messages, so that no cycle of them is closed.

-- The messages whose answers an agent waits for, each with the time to which that is known.
local function waits_key(agent_name)
  return fleet .. 'waits:' .. agent_name
end

-- How many agents one call looks at: each costs one command, and no call runs more than 500.
local WAITING_MAX = 400

-- Notes that the sender of a message waits for its answer, for so long from now. Returns nothing, or the messages of the
-- cycle that it would close, from the recipient's own on; then it notes nothing.
-- KEYS: -. ARGV: message, for how long
define('await_answer', SMALL, function(keys, args)
  begin(keys)
  local id, lease = args[1], tonumber(args[2])
  local waiter, whom = string.match(id, '^(.-)::(.-)::')
  -- Each agent that the recipient waits for in the end, and by which message it was reached.
  local reached, reached_by, queue = {}, {}, { whom }
  for _ = 1, WAITING_MAX do
    local who = table.remove(queue, 1)
    if not who then
      break
    end
    local waits = redis.call('HGETALL', waits_key(who))
    for at = 1, #waits, 2 do
      local to = string.match(waits[at], '^.-::(.-)::')
      if tonumber(waits[at + 1]) > now and not reached[to] then
        reached[to], reached_by[to] = who, waits[at]
        queue[#queue + 1] = to
      end
    end
  end
  if reached[waiter] then
    local cycle, at = {}, waiter
    repeat
      table.insert(cycle, 1, reached_by[at])
      at = reached[at]
    until at == whom
    return cycle
  end
  redis.call('HSET', waits_key(waiter), id, now + lease)
  redis.call('PEXPIREAT', waits_key(waiter), now + lease)
  return {}
end)
