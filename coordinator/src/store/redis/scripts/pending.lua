-- Counts the inbox: {how many, when the oldest was accepted or nothing}.
expire()
local function first_of(list)
  local first = redis.call('ZRANGE', list, 0, 0, 'WITHSCORES')
  return first[1], tonumber(first[2])
end
local oldest, position = first_of(unshown)
local other, before = first_of(shown)
if not oldest or (other and before < position) then
  oldest = other
end
local facts = oldest and redis.call('HGET', message_key(oldest), 'facts')
return { count_inbox(), facts and tonumber(read_further_facts(facts).at) or false }
