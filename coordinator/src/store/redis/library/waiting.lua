-- Waits for answers: which agent waits for the answers to which of its messages, so that no cycle is closed.

-- The limits of one check: agents, each of which costs up to two commands, and waits of all of them. No call runs more than
-- 500 commands, and all others wait for it.
local WAITING_MAX = 128
local WAITS_MAX = 1024

-- How long the key of an agent stays after its last wait, at least: longer than any lease, so that no wait ends another one.
local WAITS_LIFE = 60 * 1000

-- How many waits are checked for their end when one is added: several, so that those that are over do not pile up.
local CHECKED = 4

-- Returns some of the messages whose answers an agent waits for, and how many waits it looked at. Removes waits that are over.
local function waits_of(agent_name, limit)
  local waits, over = {}, {}
  local found = redis.call('HRANDFIELD', waits_key(agent_name), limit, 'WITHVALUES')
  for at = 1, #found, 2 do
    table.insert(tonumber(found[at + 1]) > now and waits or over, found[at])
  end
  if #over > 0 then
    redis.call('HDEL', waits_key(agent_name), unpack(over))
  end
  return waits, #found / 2
end

-- Records that the sender of a message waits for its answer, for the given time, unless it is answered or expired. Returns
-- how many waits it looked at, and an empty list. If the wait would close a cycle, records nothing and returns the messages of
-- that cycle in the list, beginning with the recipient's own. Returns nothing if the session is outdated.
-- KEYS: -, the message. ARGV: message, lease, whose
define('await_answer', SMALL, function(keys, args)
  local id, lease = args[1], tonumber(args[2])
  local waiter, whom = string.match(id, '^(.-)::(.-)::')
  if args[3] ~= '' and refused_speaker({ waiter, args[3] }, 1) then
    return false
  end
  local kept = redis.call('HMGET', keys[2], 'facts', 'reply')
  local facts = read_facts(kept[1], id)
  if facts then
    local left = kept[2] and 0 or tonumber(facts.expires) - now
    if left <= 0 then
      return { 0, {} }
    end
    lease = math.min(lease, left)
  end
  -- Each agent that the recipient directly or indirectly waits for, and the message that led to it.
  local reached, reached_by, queue, left = {}, {}, { whom }, WAITS_MAX
  for at = 1, WAITING_MAX do
    local who = queue[at]
    if not who or reached[waiter] or left <= 0 then
      break
    end
    local waits, looked_at = waits_of(who, left)
    left = left - looked_at
    for _, wait in ipairs(waits) do
      local to = string.match(wait, '^.-::(.-)::')
      if not reached[to] then
        reached[to], reached_by[to] = who, wait
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
    return { WAITS_MAX - left, cycle }
  end
  waits_of(waiter, CHECKED)
  redis.call('HSET', waits_key(waiter), id, now + lease)
  redis.call('PEXPIREAT', waits_key(waiter), now + math.max(lease, WAITS_LIFE))
  return { WAITS_MAX - left, {} }
end)
