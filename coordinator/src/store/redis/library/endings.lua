-- The work of duties: messages whose life is over leave their inboxes, and agents that did not come back are deleted.

-- Expires messages of an inbox. Returns how long until the next one expires, or nothing if the inbox is empty.
-- KEYS: -, agent
define('expire', SMALL, function(keys)
  use(keys[2])
  local due = redis.call('HGET', agent, 'due')
  if not due then
    return false
  end
  local next_due = expire(due)
  if not next_due then
    return AGAIN
  end
  return next_due ~= NEVER and math.max(tonumber(next_due) - now, 0)
end)

-- Deletes an agent that did not come back and leaves nothing, and a one-shot session whose hold has ended. Returns how long
-- until it must be checked again, or nothing if the agent is gone or stays for good.
-- KEYS: -, agent. ARGV: how long a fleeting agent may take to come back, how long any other one may,
-- how long positions are stored
define('withdraw', SMALL, function(keys, args)
  use(keys[2])
  local due = redis.call('HGET', agent, 'due')
  local ends, is_one_shot = end_of_name(args[1], args[2])
  if not due or not ends then
    return false
  end
  if ends > now then
    return ends - now
  end
  if not expire(due) or (is_one_shot and not end_one_shot()) then
    return AGAIN
  end
  if not is_done() then
    return tonumber(args[1])
  end
  forget(args[3])
  return false
end)

-- Plans the duties of agents for which an earlier build planned none. Returns the names that it read, in order.
-- KEYS: -, agents. ARGV: after, limit, then as the first two of `withdraw`
define('adopt', SMALL, function(keys, args)
  local from = args[1] == '' and '-' or '(' .. args[1]
  local titles = redis.call('ZRANGEBYLEX', keys[2], from, '+', 'LIMIT', 0, args[2])
  for _, title in ipairs(titles) do
    use_named(title)
    local due, ends = redis.call('HGET', agent, 'due'), end_of_name(args[3], args[4])
    if due and due ~= NEVER then
      plan('expire', title, due)
    end
    if ends then
      plan('withdraw', title, ends)
    end
  end
  return titles
end)
