-- Takes messages out of the inbox: {'outdated'}, or {'done', '1' for each that is out now or '0'}.
-- ARGV: generation and instance of the session or two empty ones, ids
if ARGV[1] ~= '' and outdated(ARGV[1], ARGV[2]) then
  return { 'outdated' }
end
expire_due()
local settled = { 'done' }
for i = 3, #ARGV do
  if redis.call('EXISTS', message_key(ARGV[i])) == 1 then
    settle(ARGV[i])
    settled[#settled + 1] = '1'
  else
    settled[#settled + 1] = '0'
  end
end
return settled
