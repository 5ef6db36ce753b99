-- Messages: sending, replies, receipts and acknowledgements.

-- Returns the outcome of a repeated call: {'repeated', envelope}, or {'call_taken'} if the message that is stored there is longer
-- by more than REPEAT_MARGIN, so another one.
local function repeated_call(key, envelope)
  if redis.call('HSTRLEN', key, 'env') > #envelope + REPEAT_MARGIN then
    return { 'call_taken' }
  end
  return { 'repeated', redis.call('HGET', key, 'env') }
end

-- Checks whether the message may go into the inbox of the agent in use. Returns the first expiry of that inbox, nothing, 1 if
-- the inbox has no other message that was not shown, else 0, and the session of the agent. Or returns nothing and the refusal.
-- ARGV from `at` on: as for `put`
local function refusal(key, args, at)
  local before = redis.call('HGET', key, 'facts')
  if before then
    local same = read_further_facts(before).call == call_of(args[at + 3])
    return nil, same and repeated_call(key, args[at + 2]) or { 'taken' }
  end
  local record = redis.call('HMGET', agent, 'due', 'state', 'held_until', 'session')
  if not record[1] then
    return nil, { 'nobody' }
  end
  if record[2] == 'away' and string.find(args[at + 6], 'a', 1, true) and tonumber(record[3]) > now then
    return nil, { 'away' }
  end
  local due = expire(record[1])
  if not due then
    return nil, AGAIN
  end
  local others = redis.call('ZCARD', unshown)
  local count = others + redis.call('ZCARD', shown)
  if name == 'human' then
    check_groups(count)
    local facts = read_facts(args[at + 3], args[at])
    local limits = { tonumber(args[at + 12]), tonumber(args[at + 13]), tonumber(args[at + 14]) }
    local refused = facts.wants and refuse_question(args[at], args[at + 17], limits)
    if refused then
      return nil, refused
    end
  elseif count >= tonumber(args[at + 1]) then
    return nil, { 'full', count }
  end
  local over = charge(args[at + 7])
  if over then
    return nil, over
  end
  if name == 'human' and not read_facts(args[at + 3], args[at]).wants then
    replace_notices(args[at + 17], tonumber(args[at + 15]), tonumber(args[at + 16]))
  end
  return due, nil, others == 0 and 1 or 0, record[4]
end

-- Puts the message there. Returns its position.
-- ARGV from `at` on: id, limit of the inbox, envelope, facts without the time of storing, expires at, stored until, flags, price
-- as for `charge`, its entry of the log after the time, the speaker as for `refused_speaker`, limits of the inbox of people:
-- questions of one agent, of one host and of all, notices of one host and of all; the host of the sender; in how many
-- milliseconds a request of a client is first checked, or ''.
-- Flags are letters: `a` for `refusal` if an agent that is away is skipped, `o` for a question of a one-shot session, `t` if the message
-- continues a thread.
local function put(key, due, args, at)
  local id, ends, kept, flags = args[at], args[at + 4], args[at + 5], args[at + 6]
  local position = redis.call('HINCRBY', agent, 'seq', 1)
  local facts = args[at + 3] .. ' ' .. now_text
  redis.call('HSET', key, 'facts', facts, 'env', args[at + 2])
  redis.call('PEXPIREAT', key, kept)
  redis.call('ZADD', unshown, string.format('%d', position), id .. ' ' .. ends)
  due_from(ends, due)
  if name == 'human' then
    local host, wants = args[at + 17], read_facts(facts, id).wants
    local one, other = grouped(id .. ' ' .. ends, position, host, wants)
    redis.call('HSET', hosts_key(), id, host)
    redis.call('ZADD', groups_key(), 0, one, 0, other)
    redis.call('HSET', agent, 'grouped', position)
    if wants then
      redis.call('ZADD', questions_key(), position, id .. ' ' .. ends)
    end
    plan('push', id, now)
    if args[at + 18] ~= '' then
      plan('end_request', id, now + args[at + 18])
    end
  end
  if string.find(flags, 't', 1, true) then
    local further = read_further_facts(facts)
    local thread = fleet .. 't:' .. further.thread
    redis.call('ZADD', thread, further.at, id)
    -- Never earlier than for the messages that it has: news is stored for less time than a question before it.
    if redis.call('PEXPIREAT', thread, kept, 'GT') == 0 then
      redis.call('PEXPIREAT', thread, kept, 'NX')
    end
  end
  note_charge()
  if string.find(flags, 'o', 1, true) then
    redis.call('SADD', asked_key(string.match(id, '^(.-)::')), id)
  end
  log_rest(args[at + 8])
  wake('inbox', name)
  return position
end

-- Sends a message. Returns {'stored', position, whether it is the only one that was not shown, session of the recipient},
-- {'repeated', envelope}, {'call_taken'}, {'full', count}, {'nobody'}, {'away'}, {'taken'}, or the result of `refused_speaker`,
-- `refuse_question` or `charge`.
-- ARGV: recipient, then as for `put`
define_batched('send', LARGE, function(origin, args, at)
  use_named(args[at + 1])
  local outdated = refused_speaker(args, at + 11)
  if outdated then
    return outdated
  end
  local key = message_key(args[at + 2])
  local due, refused, is_sole, session = refusal(key, args, at + 2)
  if refused then
    return refused
  end
  local position = put(key, due, args, at + 2)
  publish(origin)
  return { 'stored', position, is_sole, session }
end)

-- Returns whether the agent in use is another one than the sender of the message there: it was made later, and is of another host.
local function is_asker_gone(key)
  local record = redis.call('HMGET', agent, 'registered_at', 'host')
  local stored = read_further_facts(redis.call('HGET', key, 'facts')).stored
  if not record[1] or record[1] <= stored then
    return not record[1]
  end
  local host = cjson.decode(redis.call('HGET', key, 'env')).from_host
  return (type(host) == 'string' and host or '') ~= (record[2] or '')
end

-- Returns since when the host of the agent in use has had the name.
local function held_since()
  return speaking == name and speaking_since or redis.call('HGET', agent, 'registered_at') or NEVER
end

-- Returns whether the agent in use received the message with these facts: it was stored since that time, or is in the inbox.
local function has_received(id, kept, facts, since)
  -- The time of storing is the end of the facts, and has 13 digits.
  return since <= string.sub(kept, -13) or in_inbox(id, facts)
end

-- Sends a reply and settles the question in one step. Returns as `send` does, or {'unknown'}, {'withdrawn'} or {'answered', reply}.
-- KEYS: -, the agent that answers, the question, the agent that asked, the reply
-- ARGV: origin of the wake, question, then of the reply as for `put`
local function answer(keys, args)
  use(keys[2])
  local question, reply = args[2], args[3]
  local outdated = refused_speaker(args, 12)
  if outdated then
    return outdated
  end
  local kept = redis.call('HMGET', keys[3], 'facts', 'reply', 'reply_call')
  local facts = read_facts(kept[1], question)
  if not facts or not has_received(question, kept[1], facts, held_since()) then
    return { 'unknown' }
  end
  if kept[2] then
    use(keys[4])
    local key = message_key(kept[2])
    local is_same = kept[3] == call_of(args[6]) and redis.call('HEXISTS', key, 'env') == 1
    return is_same and repeated_call(key, args[5]) or { 'answered', kept[2] }
  end
  if not expire_due() then
    return AGAIN
  end
  if string.find(redis.call('HGET', keys[3], 'history') or '', '\nwithdrawn ', 1, true) then
    return { 'withdrawn' }
  end
  use(keys[4])
  if is_asker_gone(keys[3]) then
    return { 'nobody' }
  end
  local due, refused, is_sole, session = refusal(keys[5], args, 3)
  if refused then
    return refused
  end
  local position = put(keys[5], due, args, 3)
  wake('receipt', question)
  redis.call('HDEL', waits_key(facts.from), question)
  use(keys[2])
  local history = (redis.call('HGET', keys[3], 'history') or '') .. step('answered', now_text, 'reply', '-', reply)
  redis.call('HSET', keys[3], 'reply', reply, 'reply_call', call_of(args[6]), 'history', history)
  settle(question, facts)
  publish(args[1])
  return { 'stored', position, is_sole, session }
end
define('answer', SMALL, answer)
-- The same for a long reply, which a full Redis refuses.
define('answer_into_room', LARGE, answer)

-- The last words of a history that a conclusion may follow.
local CONCLUDES = { taken = { answered = true }, applied = { answered = true, taken = true } }
local ENDS = { answered = true, taken = true, applied = true, withdrawn = true, expired = true, refused = true }

-- Records the outcome of a question. Returns 1 if that was news, else 0, nothing without such a question, or the result of
-- `refused_speaker`.
-- KEYS: -, the agent that was asked, the question
-- ARGV: origin of the wake, question, stage, via, the key that is used or '', the speaker
define('conclude', SMALL, function(keys, args)
  use(keys[2])
  local outdated = refused_speaker(args, 6)
  if outdated then
    return outdated
  end
  local question, stage = args[2], args[3]
  local kept = redis.call('HMGET', keys[3], 'facts', 'history')
  local facts = read_facts(kept[1], question)
  if not facts then
    return false
  end
  if facts.expires <= now_text then
    expire_one(question, facts.expires, facts.expires)
    kept[2] = redis.call('HGET', keys[3], 'history')
  end
  local history = kept[2] or ''
  local last = string.match(history, '([%a_]+) %d+ %S+ %S+ %S+$')
  local follows
  if stage == 'withdrawn' then
    follows = not ENDS[last]
  else
    follows = CONCLUDES[stage][last]
  end
  if not follows then
    return 0
  end
  redis.call('HSET', keys[3], 'history', history .. step(stage, now_text, args[4], '-', '-'))
  if stage == 'withdrawn' then
    settle(question, facts)
    redis.call('HDEL', waits_key(facts.from), question)
  end
  log('receipt', facts.from,
    field('key', args[5]) .. about_message(name, question) .. field('stage', stage) .. field('via', args[4]))
  wake('receipt', question)
  publish(args[1])
  return 1
end)

-- Removes messages from the inbox. Returns for each message 1 if it was removed, or 0; or the result of `refused_speaker`.
-- ARGV: agent, the speaker, then of each message its id and its entry of the log after the time
define_batched('acknowledge', SMALL, function(_, args, at, count)
  use_named(args[at + 1])
  local refused = refused_speaker(args, at + 2)
  if refused then
    return refused
  end
  local settled, since = {}, held_since()
  for i = at + 5, at + count, 2 do
    local id = args[i]
    local kept = redis.call('HGET', message_key(id), 'facts')
    local facts = read_facts(kept, id)
    local is_own = facts and has_received(id, kept, facts, since)
    if is_own then
      if facts.expires <= now_text then
        expire_one(id, facts.expires, facts.expires)
      end
      if settle(id, facts) then
        log_rest(args[i + 1])
      end
    end
    settled[#settled + 1] = is_own and 1 or 0
  end
  publish('-')
  return settled
end)

-- Records that a message reached a person. Returns 1 if that was news, else 0.
-- KEYS: -, `human`, the message. ARGV: origin of the wake, message, stage, via, '@' and the name
define('reach_person', SMALL, function(keys, args)
  use(keys[2])
  local id, stage, via, who = args[2], args[3], args[4], args[5]
  local kept = redis.call('HMGET', keys[3], 'facts', 'history')
  local facts, history = read_facts(kept[1], id), kept[2] or ''
  local last = string.match(history, '([%a_]+) %d+ %S+ %S+ %S+$')
  if not facts or facts.expires <= now_text or ENDS[last] then
    return 0
  end
  for passed, way, person in string.gmatch(history, '([%a_]+) %d+ (%S+) (%S+) %S+') do
    if passed == stage and way == via and person == who then
      return 0
    end
  end
  redis.call('HSET', keys[3], 'history', history .. step(stage, now_text, via, who, '-'))
  log('receipt', name, about_message(facts.from, id) .. field('stage', stage) .. field('via', via))
  wake('receipt', id)
  publish(args[1])
  return 1
end)

local RANK = { stored = 1, on_host = 2, in_session = 3, seen = 4 }

-- Returns the progress in a history: the furthest stage, or nothing after an end other than `expired`, after which later
-- evidence counts; and whether the host, any session, and this session had the message. An expired message no longer reaches
-- a host, because that shows it to nobody.
local function progress(history, session)
  if history == '' then
    return RANK.stored, false, false, false
  end
  local furthest, on_host, was_shown, here = RANK.stored, false, false, false
  for passed, whose in string.gmatch(history, '([%a_]+) %d+ %S+ (%S+) %S+') do
    if not RANK[passed] and passed ~= 'expired' then
      return nil
    end
    furthest = math.max(furthest, RANK[passed] or RANK.on_host)
    on_host = on_host or passed == 'on_host'
    if passed == 'in_session' then
      was_shown, here = true, here or whose == session
    end
  end
  return furthest, on_host, was_shown, here
end

-- The limit of contexts in a history.
local CONTEXTS_KEPT = 8

-- Removes contexts from the middle of a long history: the first and the latest ones stay.
local function forget_contexts(history)
  local _, count = string.gsub(history, '\nin_session ', '')
  for _ = CONTEXTS_KEPT + 1, count do
    local first = string.find(history, '\nin_session ', 1, true)
    local second = string.find(history, '\nin_session ', first + 1, true)
    local rest = string.find(history, '\n', second + 1, true) or #history + 1
    history = string.sub(history, 1, second - 1) .. string.sub(history, rest)
  end
  return history
end

-- Returns whether the evidence adds a step to the history.
local function proves(stage, furthest, was_shown, here)
  local beyond = RANK[stage] > furthest
  if stage == 'in_session' then
    return beyond or (was_shown and not here)
  end
  return beyond and (stage ~= 'seen' or here)
end

-- Moves a message of the inbox to those that were shown.
local function show(id, facts)
  local place = member(id, facts)
  local position = redis.call('ZSCORE', unshown, place)
  if position then
    redis.call('ZREM', unshown, place)
    redis.call('ZADD', shown, position, place)
  end
end

-- Records that a message reached a stage, if the agent in use received it, whose host has had the name since that time, and,
-- with `seen_via`, that it was seen too. Returns 1 if the stage was recorded, 2 if only `seen` was recorded, 3 if both were,
-- else 0; 4 more if the message has come further, which wakes the waits for it. A further context of a session does not: a
-- recipient has as many as it likes. The entries are those of the log after the time, the second one for `seen`.
local function advance(id, since, stage, via, seen_via, session, is_over, entry, seen_entry)
  local key = message_key(id)
  local kept = redis.call('HMGET', key, 'facts', 'history')
  local facts, history = read_facts(kept[1], id), kept[2] or ''
  if not facts or not has_received(id, kept[1], facts, since) then
    return 0
  end
  if facts.expires <= now_text then
    expire_one(id, facts.expires, facts.expires)
    history = redis.call('HGET', key, 'history') or ''
  end
  local furthest, on_host, was_shown, here = progress(history, session)
  if not furthest then
    return 0
  end
  local recorded, before = 0, furthest
  if stage == 'in_session' and not is_over then
    show(id, facts)
  end
  if proves(stage, furthest, was_shown, here) then
    if stage == 'in_session' and not on_host then
      history = history .. step('on_host', now_text, via, session, '-')
    end
    history = history .. step(stage, now_text, via, session, '-')
    furthest, here = math.max(furthest, RANK[stage]), here or stage == 'in_session'
    recorded = 1
    log_rest(entry)
  end
  if seen_via ~= '' and proves('seen', furthest, was_shown, here) then
    history = history .. step('seen', now_text, seen_via, session, '-')
    recorded = recorded + 2
    furthest = RANK.seen
    log_rest(seen_entry)
  end
  if recorded == 0 then
    return 0
  end
  redis.call('HSET', key, 'history', stage == 'in_session' and forget_contexts(history) or history)
  if (stage == 'seen' or recorded >= 2) and not facts.wants then
    settle(id, facts)
  end
  if furthest > before then
    wake('receipt', id)
    recorded = recorded + 4
  end
  return recorded
end

-- Records the progress of messages. Returns the result of `advance` for each, or that of `refused_speaker`.
-- ARGV: agent, context, stage, via, seen via or '', the speaker, then of each message its id and its entries of the log after the
-- time: that of the stage and, with `seen via`, that of `seen`
define_batched('advance', SMALL, function(origin, args, at, count)
  use_named(args[at + 1])
  local refused = refused_speaker(args, at + 6)
  if refused then
    return refused
  end
  local context, stage, via, seen_via, whose = args[at + 2], args[at + 3], args[at + 4], args[at + 5], args[at + 7]
  -- The name of the session in histories, and whether it is in a later context now.
  local session, is_over = '-', false
  if whose ~= '' then
    local present = tonumber(context_of(whose))
    local which = tonumber(context)
    if which > present then
      if not expire_due() then
        return AGAIN
      end
      enter_context(context)
    end
    session = session_name(string.match(whose, '^%d+'), context)
    is_over = which < present
  end
  local advanced, since, width = {}, held_since(), seen_via == '' and 2 or 3
  for i = at + 9, at + count, width do
    advanced[#advanced + 1] = advance(args[i], since, stage, via, seen_via, session, is_over, args[i + 1], args[i + 2])
  end
  publish(origin)
  return advanced
end)
