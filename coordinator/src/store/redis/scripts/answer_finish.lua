-- Last step of an answer that was sent: the question is answered and out of the inbox.
-- ARGV: question, reply, call, asker, origin of the wake
local question, reply = ARGV[1], ARGV[2]
local key = message_key(question)
redis.call('ZREM', outbox, question)
local facts = facts_of(question)
if not facts or redis.call('HEXISTS', key, 'reply') == 1 then
  return 0
end
redis.call('HSET', key, 'reply', reply, 'reply_call', ARGV[3])
redis.call('HDEL', key, 'claim', 'claim_call', 'claim_bound', 'claim_env', 'claim_attempt')
note(question, step('answered', now, 'reply', '-', reply))
settle(question, facts.kept_until)
-- Once more: whoever read since the reply was sent saw a reply to a question without an answer.
wake(ARGV[5], 'receipt', ARGV[4])
return 1
