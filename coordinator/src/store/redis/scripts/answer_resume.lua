-- Takes up answers that were begun longer ago: {how many are unfinished, question, envelope, call, bound, attempt,
-- question, ...}.
-- ARGV: how long ago, how many
local begun = redis.call('ZRANGEBYSCORE', outbox, '-inf', now - tonumber(ARGV[1]), 'LIMIT', 0, ARGV[2])
local claims = { '' }
for _, question in ipairs(begun) do
  local key = message_key(question)
  if redis.call('HEXISTS', key, 'claim') == 1 then
    redis.call('HINCRBY', key, 'claim_attempt', 1)
    redis.call('ZADD', outbox, now, question)
    claims[#claims + 1] = question
    for _, fact in ipairs(redis.call('HMGET', key, 'claim_env', 'claim_call', 'claim_bound', 'claim_attempt')) do
      claims[#claims + 1] = fact
    end
  else
    redis.call('ZREM', outbox, question)
  end
end
claims[1] = tostring(redis.call('ZCARD', outbox))
return claims
