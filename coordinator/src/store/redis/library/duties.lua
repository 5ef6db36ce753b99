-- Duties: timed work, which any coordinator claims when it is due.
-- A duty is a member 'kind id' of a sorted set, by the time from which on it may be claimed: its due time, or the end of its
-- claim. A hash has 'claim since again' of each claimed duty: the id of the claim, the due time, and the time for which the
-- duty was planned during the claim, or NEVER.

local function duties_key()
  return fleet .. 'duties'
end

local function claims_key()
  return fleet .. 'duty_claims'
end

local CLAIM = '^(%S+) (%d+) (%d+)$'

-- Plans a duty. The earlier of two times counts; a claimed duty is due again after its claim.
local function plan(kind, id, due)
  local duty = kind .. ' ' .. id
  local kept = redis.call('HGET', claims_key(), duty)
  if not kept then
    redis.call('ZADD', duties_key(), 'LT', due, duty)
    return
  end
  local claim, since, again = string.match(kept, CLAIM)
  if tonumber(due) < tonumber(again) then
    redis.call('HSET', claims_key(), duty, claim .. ' ' .. since .. ' ' .. due)
  end
end

-- Deletes a duty, claimed or not.
local function cancel(kind, id)
  redis.call('ZREM', duties_key(), kind .. ' ' .. id)
  redis.call('HDEL', claims_key(), kind .. ' ' .. id)
end

-- Records that the inbox may have an expired message from that time on. Most messages expire later than an earlier one.
local function due_from(expires, due)
  if expires < due then
    redis.call('HSET', agent, 'due', expires)
    plan('expire', name, expires)
  end
end

-- KEYS: -. ARGV: kind, id, due time
define('plan', SMALL, function(keys, args)
  plan(args[1], args[2], args[3])
  return 1
end)

-- Claims the duties that are due, except those of kinds that only a newer coordinator knows. Returns {how long until the next
-- one may be claimed or nothing, {duty, how long ago it was due, 1 if an earlier claim has run out or else 0}, ...}.
-- KEYS: -. ARGV: id of the claim, how long it lasts, limit, kinds
define('claim_due', SMALL, function(keys, args)
  local known = {}
  for i = 4, #args do
    known[args[i]] = true
  end
  local claimed = {}
  local due = redis.call('ZRANGEBYSCORE', duties_key(), '-inf', now, 'WITHSCORES', 'LIMIT', 0, args[3])
  for i = 1, #due, 2 do
    local duty = due[i]
    if known[string.match(duty, '^%S+')] then
      local kept = redis.call('HGET', claims_key(), duty)
      local _, since, again = string.match(kept or '- ' .. due[i + 1] .. ' ' .. NEVER, CLAIM)
      redis.call('HSET', claims_key(), duty, args[1] .. ' ' .. since .. ' ' .. again)
      redis.call('ZADD', duties_key(), now + tonumber(args[2]), duty)
      claimed[#claimed + 1] = { duty, now - tonumber(since), kept and 1 or 0 }
    end
  end
  local after = redis.call('ZRANGEBYSCORE', duties_key(), '(' .. now, '+inf', 'WITHSCORES', 'LIMIT', 0, 1)[2]
  return { after and tonumber(after) - now or false, claimed }
end)

-- Ends a claim. The duty is due again at the earlier of the given time and that for which it was planned meanwhile; without
-- either it is deleted. Returns 1, or 0 if the claim is over.
-- KEYS: -. ARGV: duty, id of the claim, how long until it is due again or ''
define('end_claim', SMALL, function(keys, args)
  local duty = args[1]
  local claim, _, again = string.match(redis.call('HGET', claims_key(), duty) or '', CLAIM)
  if claim ~= args[2] then
    return 0
  end
  redis.call('HDEL', claims_key(), duty)
  if args[3] ~= '' then
    again = string.format('%.0f', math.min(tonumber(again), now + tonumber(args[3])))
  end
  if again == NEVER then
    redis.call('ZREM', duties_key(), duty)
  else
    redis.call('ZADD', duties_key(), again, duty)
  end
  return 1
end)
