-- Every open invite: {uses, record} of each. KEYS[1] are the invites.
local found = {}
local kept = redis.call('HGETALL', KEYS[1])
for i = 2, #kept, 2 do
  local uses, _, record = open(kept[i])
  if uses then
    found[#found + 1] = { uses, record }
  end
end
return found
