-- The inbox of people: the limits of questions, the open ones of an agent, and the notices that further ones replace. All are
-- read from the index of that inbox, because its lists are long.

-- The limit of messages that are added to the index at once: Lua passes up to 8,000 arguments.
local GROUPED_MAX = 500

-- Makes the index anew. A message of a build before `hosts` gets the host that its sender has now.
local function regroup(seq)
  local is_question, own, known = {}, {}, { system = 'system::' }
  for _, place in ipairs(redis.call('ZRANGE', questions_key(), 0, -1)) do
    is_question[place] = true
  end
  local kept = redis.call('HGETALL', hosts_key())
  for i = 1, #kept, 2 do
    own[kept[i]] = kept[i + 1]
  end
  redis.call('DEL', groups_key())
  for _, list in ipairs({ unshown, shown }) do
    for first = 0, redis.call('ZCARD', list) - 1, GROUPED_MAX do
      local found = redis.call('ZRANGE', list, first, first + GROUPED_MAX - 1, 'WITHSCORES')
      local hosts, members = {}, {}
      for i = 1, #found, 2 do
        local id, from = string.match(found[i], '^((.-)::%S+)')
        if not own[id] then
          known[from] = known[from] or redis.call('HGET', fleet .. 'agent:' .. from, 'host') or ''
        end
        local host = own[id] or known[from]
        hosts[i], hosts[i + 1] = id, host
        local one, other = grouped(found[i], found[i + 1], host, is_question[found[i]])
        local at = #members
        members[at + 1], members[at + 2], members[at + 3], members[at + 4] = 0, one, 0, other
      end
      redis.call('HSET', hosts_key(), unpack(hosts))
      redis.call('ZADD', groups_key(), unpack(members))
    end
  end
  redis.call('HSET', agent, 'grouped', seq)
end

-- Makes the index anew if a coordinator of an earlier build, which keeps none, changed the inbox. `count` is that of the inbox.
-- Messages that such a coordinator put there raised `seq` alone. Those that it took out are still in the index.
local function check_groups(count)
  local known = redis.call('HMGET', agent, 'seq', 'grouped')
  if known[1] ~= known[2] or redis.call('ZCARD', groups_key()) ~= 2 * count then
    regroup(known[1])
  end
end

-- Returns the limits of a group in the index.
local function group_range(group)
  return '[' .. group .. '\n', '(' .. group .. '\v'
end

local function count_group(group)
  return redis.call('ZLEXCOUNT', groups_key(), group_range(group))
end

-- Returns the open questions of the agent in use to people.
local function own_questions()
  local own, title = {}, name
  use_named('human')
  check_groups(count_inbox())
  use_named(title)
  for i, found in ipairs(redis.call('ZRANGEBYLEX', groups_key(), group_range('agent ' .. title))) do
    own[i] = string.match(found, '\n%d+ (%S+)')
  end
  return own
end

-- Returns the refusal of a further question of this agent to people: {'questions', count, limit} if too many are open.
-- `host` is its host; `limits` are those of one agent, of one host, and of all.
local function refuse_question(id, host, limits)
  local counts = { count_group('agent ' .. string.match(id, '^(.-)::')), count_group('questions ' .. host),
    redis.call('ZCARD', questions_key()) }
  for i, count in ipairs(counts) do
    if count >= limits[i] then
      return { 'questions', count, limits[i] }
    end
  end
end

-- Takes the oldest notices of the same host out of the inbox of people, or beyond the limit of all the oldest ones that are not
-- of the coordinator, so that a further one makes at most that many.
local function replace_notices(host, host_most, most)
  local group = 'notices ' .. host
  local excess = count_group(group) + 1 - host_most
  if excess <= 0 then
    group = 'notices'
    excess = count_group(group) + 1 - most
  end
  if excess <= 0 then
    return
  end
  local from, to = group_range(group)
  for _, found in ipairs(redis.call('ZRANGEBYLEX', groups_key(), from, to, 'LIMIT', 0, math.min(excess, EXPIRED_FEW))) do
    local id, expires = string.match(found, '\n%d+ (%S+) (%d+)$')
    local facts = read_facts(redis.call('HGET', message_key(id), 'facts'), id)
    -- An earlier build stored questions without their list.
    if not facts or not facts.wants then
      expire_one(id, expires, now)
    end
  end
end
