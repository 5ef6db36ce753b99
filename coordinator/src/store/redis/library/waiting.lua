-- Waits for answers: which agent waits for the answers to which of its messages, so that no cycle is closed.

-- The messages whose answers an agent waits for, each with the end of its lease.
local function waits_key(agent_name)
  return fleet .. 'waits:' .. agent_name
end

-- The limit of agents that one call looks at: each costs one command, and no call runs more than 500.
local WAITING_MAX = 400

-- Records that the sender of a message waits for its answer, for the given time. Returns nothing. If the wait would close a
-- cycle, records nothing and returns the messages of that cycle, beginning with the recipient's own.
-- KEYS: -. ARGV: message, lease
define('await_answer', SMALL, function(keys, args)
  begin(keys)
  local id, lease = args[1], tonumber(args[2])
  local waiter, whom = string.match(id, '^(.-)::(.-)::')
  -- Each agent that the recipient directly or indirectly waits for, and the message that led to it.
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
