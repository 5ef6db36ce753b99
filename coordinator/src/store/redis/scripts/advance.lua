-- Records that messages got further: {'outdated'}, or {'done', senders to wake}.
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
  session = which == 0 and generation or generation .. '.' .. digits(which)
  is_over = which < present
end

-- What a history says: the furthest stage or nothing after an end, and whether the host, any session, and this one had it.
local function read(history)
  local furthest, on_host, shown, here = 0, false, false, false
  for passed, whose in string.gmatch(history, '([%a_]+) %d+ %S+ (%S+) %S+') do
    if not RANK[passed] then
      return nil
    end
    furthest = math.max(furthest, RANK[passed])
    on_host = on_host or passed == 'on_host'
    if passed == 'in_session' then
      shown, here = true, here or whose == session
    end
  end
  return furthest, on_host, shown, here
end

local function proves(furthest, shown, here)
  local beyond = RANK[stage] > furthest
  if stage == 'in_session' then
    return beyond or (shown and not here)
  end
  return beyond and (stage ~= 'seen' or here)
end

local senders = {}
for i = 7, #ARGV do
  local id = ARGV[i]
  local facts = redis.call('HMGET', message_key(id), 'history', 'from', 'wants', 'id', 'kept_until')
  local history = facts[4] == id and facts[1]
  local furthest, on_host, shown, here = read(history or 'unknown 0 - - -')
  if furthest and stage == 'in_session' then
    if not is_over then
      redis.call('ZREM', unshown, id)
    elseif redis.call('ZSCORE', inbox, id) then
      redis.call('SADD', repeated, id)
    end
  end
  if furthest and proves(furthest, shown, here) then
    if stage == 'in_session' and not on_host then
      history = note_behind(history, id, 'on_host', now, via, session, '-')
    end
    note_behind(history, id, stage, now, via, session, '-')
    if stage == 'seen' and facts[3] == '0' then
      settle(id, facts[5])
    end
    senders[facts[2]] = true
  end
end

local woken = { 'done' }
for sender in pairs(senders) do
  wake(ARGV[6], 'receipt', sender)
  woken[#woken + 1] = sender
end
return woken
