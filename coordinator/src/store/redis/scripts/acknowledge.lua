-- Takes messages out of the inbox: {'outdated'}, or {'done', '1' for each that is out now or '0'}.
-- ARGV: generation and instance of the session or two empty ones, ids
if ARGV[1] ~= '' and outdated(ARGV[1], ARGV[2]) then
  return { 'outdated' }
end
expire()
local settled = { 'done' }
for i = 3, #ARGV do
  local facts = facts_of(ARGV[i])
  if facts then
    settle(ARGV[i], facts.kept_until)
  end
  settled[#settled + 1] = facts and '1' or '0'
end
return settled
