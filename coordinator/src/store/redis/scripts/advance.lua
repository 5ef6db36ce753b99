-- Records that messages got further: {'outdated'}, or {'done', senders to wake}.
-- ARGV: generation and instance of the session or two empty ones, stage, via, origin of the wake, ids
local RANK = { stored = 1, on_host = 2, in_session = 3, seen = 4 }
local generation, stage, via = ARGV[1], ARGV[3], ARGV[4]
if generation ~= '' and outdated(generation, ARGV[2]) then
  return { 'outdated' }
end
local session = generation ~= '' and generation or '-'
expire_due()

-- What a history says: the furthest stage or nothing after an end, and whether the host, and only other sessions, had it.
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
  return furthest, on_host, shown and not here
end

local senders = {}
for i = 6, #ARGV do
  local id = ARGV[i]
  local facts = redis.call('HMGET', message_key(id), 'history', 'from', 'wants')
  local furthest, on_host, elsewhere = read(facts[1] or 'unknown 0 - - -')
  if furthest and stage == 'in_session' then
    redis.call('ZREM', unshown, id)
  end
  if furthest and (RANK[stage] > furthest or (stage == 'in_session' and elsewhere)) then
    if stage == 'in_session' and not on_host then
      note(id, 'on_host', now, via, session, '-')
    end
    note(id, stage, now, via, session, '-')
    if stage == 'seen' and facts[3] == '0' then
      settle(id)
    end
    senders[facts[2]] = true
  end
end

local woken = { 'done' }
for sender in pairs(senders) do
  wake(ARGV[5], 'receipt', sender)
  woken[#woken + 1] = sender
end
return woken
