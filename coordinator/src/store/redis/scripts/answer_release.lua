-- Last step of an answer that could not be sent: the question is open again, at its place, with its own end.
-- 1, or 0 where a later attempt at the same answer decides.
-- ARGV: question, attempt
local question = ARGV[1]
local key = message_key(question)
local facts = facts_of(question)
if not facts or redis.call('HGET', key, 'claim_attempt') ~= ARGV[2] then
  return 0
end
redis.call('ZREM', outbox, question)
redis.call('HDEL', key, 'claim', 'claim_call', 'claim_bound', 'claim_env', 'claim_attempt')
if in_inbox(question) then
  due_from(facts.expires, redis.call('HGET', agent, 'due'))
end
return 1
