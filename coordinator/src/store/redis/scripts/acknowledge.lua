-- Takes messages out of the inbox: {'outdated'}, or {'done', '1' for each that is out now or '0'}.
-- ARGV: generation and instance of the session or two empty ones, ids
if ARGV[1] ~= '' and outdated(ARGV[1], ARGV[2]) then
  return { 'outdated' }
end
expire()
local settled = { 'done' }
for i = 3, #ARGV do
  local facts = redis.call('HMGET', message_key(ARGV[i]), 'id', 'kept_until')
  if facts[1] == ARGV[i] then
    settle(ARGV[i], facts[2])
    settled[#settled + 1] = '1'
  else
    settled[#settled + 1] = '0'
  end
end
return settled
