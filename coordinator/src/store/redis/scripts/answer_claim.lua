-- First step of an answer, at the one who answers: says which reply it will be, so that no other one is sent.
-- {'unknown'}, {'answered', reply}, {'repeated', reply} for the same call later, or
-- {'new' or 'again', envelope, call, bound, attempt} for a claim that is to be carried out.
-- ARGV: question, reply, call, bound, envelope
local question, reply, call = ARGV[1], ARGV[2], ARGV[3]
local key = message_key(question)
local done = redis.call('HMGET', key, 'reply', 'reply_call', 'facts')
if not read_facts(done[3], question) then
  return { 'unknown' }
end
if done[1] then
  return { done[2] == call and 'repeated' or 'answered', done[1] }
end
expire()
local claimed = redis.call('HMGET', key, 'claim', 'claim_call')
if claimed[1] and claimed[2] ~= call then
  return { 'answered', claimed[1] }
end
local word = claimed[1] and 'again' or 'new'
if word == 'new' then
  redis.call('HSET', key, 'claim', reply, 'claim_call', call, 'claim_bound', ARGV[4], 'claim_env', ARGV[5],
    'claim_attempt', '0')
  redis.call('ZADD', outbox, now, question)
end
redis.call('HINCRBY', key, 'claim_attempt', 1)
local claim = redis.call('HMGET', key, 'claim_env', 'claim_call', 'claim_bound', 'claim_attempt')
return { word, claim[1], claim[2], claim[3], claim[4] }
