-- Records that messages got further: {'outdated'}, or {'done', senders to wake, '', ids of those that did}.
-- ARGV: generation and instance of the session or two empty ones, context or '' for the present one, stage, via,
-- origin of the wake, ids
local RANK = { stored = 1, on_host = 2, in_session = 3, seen = 4 }
local generation, context, stage, via = ARGV[1], ARGV[3], ARGV[4], ARGV[5]
local held = redis.call('HMGET', agent, 'generation', 'instance', 'context', 'due')
if generation ~= '' and (held[1] ~= generation or held[2] ~= ARGV[2]) then
  return { 'outdated' }
end
expire_due(held[4])

-- As histories name it; and whether the session has gone on to another context since.
local session, is_over = '-', false
if generation ~= '' then
  local present = tonumber(held[3] or '0')
  local which = context ~= '' and tonumber(context) or present
  if which > present then
    enter_context(context)
  end
  session = which == 0 and generation or generation .. '.' .. which
  is_over = which < present
end

-- What a history says: the furthest stage or nothing after an end, and whether the host, any session, and this one had it.
local function read(history)
  local furthest, on_host, was_shown, here = RANK.stored, false, false, false
  for passed, whose in string.gmatch(history, '([%a_]+) %d+ %S+ (%S+) %S+') do
    if not RANK[passed] then
      return nil
    end
    furthest = math.max(furthest, RANK[passed])
    on_host = on_host or passed == 'on_host'
    if passed == 'in_session' then
      was_shown, here = true, here or whose == session
    end
  end
  return furthest, on_host, was_shown, here
end

local function proves(furthest, was_shown, here)
  local beyond = RANK[stage] > furthest
  if stage == 'in_session' then
    return beyond or (was_shown and not here)
  end
  return beyond and (stage ~= 'seen' or here)
end

-- What is shown while it is in the inbox, or marks what was shown to a context that is over.
local function show(id)
  if is_over then
    if in_inbox(id) then
      redis.call('SADD', repeated, id)
    end
    return
  end
  local position = redis.call('ZSCORE', unshown, id)
  if position then
    redis.call('ZREM', unshown, id)
    redis.call('ZADD', shown, position, id)
  end
end

-- Records it of one message. Returns whom to tell.
local function advance(id)
  local kept = redis.call('HMGET', message_key(id), 'facts', 'history')
  local facts, history = read_facts(kept[1], id), kept[2] or ''
  if not facts then
    return
  end
  local furthest, on_host, was_shown, here = read(history)
  if furthest and stage == 'in_session' then
    show(id)
  end
  if not furthest or not proves(furthest, was_shown, here) then
    return
  end
  if stage == 'in_session' and not on_host then
    history = history .. step('on_host', now, via, session, '-')
  end
  redis.call('HSET', message_key(id), 'history', history .. step(stage, now, via, session, '-'))
  if stage == 'seen' and not facts.wants then
    settle(id, facts.kept_until)
  end
  return facts.from
end

local senders, advanced = {}, {}
for i = 7, #ARGV do
  local sender = advance(ARGV[i])
  if sender then
    senders[sender] = true
    advanced[#advanced + 1] = ARGV[i]
  end
end

local woken = { 'done' }
for sender in pairs(senders) do
  wake(ARGV[6], 'receipt', sender)
  woken[#woken + 1] = sender
end
woken[#woken + 1] = ''
for _, id in ipairs(advanced) do
  woken[#woken + 1] = id
end
return woken
