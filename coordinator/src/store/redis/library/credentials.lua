-- Credentials and the codes that make them, two hashes for each kind: keys of hosts and invites, logins of people and their
-- codes. A credential is 'revision record', a code is 'uses end record'. The field `changes` counts the changes of all
-- credentials.

-- Returns whether there are fewer credentials than `most`. The field `changes` does not count.
local function has_room(credentials, most)
  return redis.call('HLEN', credentials) - redis.call('HEXISTS', credentials, 'changes') < tonumber(most)
end

-- Returns whether the credential with which a change is made has that revision. Without one, id and revision are ''.
local function is_as_before(credentials, id, revision)
  return id == '' or string.match(redis.call('HGET', credentials, id) or '', '^%d+') == revision
end

-- Stores a credential as its next revision. Returns 1, or 0 if it was changed meanwhile, or is new and there is no room, or
-- if the credential with which the change is made was changed meanwhile. KEYS: -, credentials
-- ARGV: id, revision, record, id and revision of the credential with which the change is made or '' and '', limit of
-- credentials, entry of the log or ''
define('put_credential', SMALL, function(keys, args)
  local before = redis.call('HGET', keys[2], args[1])
  local revision = before and tonumber(string.match(before, '^%d+')) or 0
  if revision + 1 ~= tonumber(args[2]) or not (before or has_room(keys[2], args[6])) then
    return 0
  end
  if not is_as_before(keys[2], args[4], args[5]) then
    return 0
  end
  redis.call('HSET', keys[2], args[1], args[2] .. ' ' .. args[3])
  redis.call('HINCRBY', keys[2], 'changes', 1)
  log_whole(args[7])
  publish('-')
  return 1
end)

-- Writes a time into the record of a credential that has none, as its next revision, whatever that is. Returns 1, or 0 if there
-- is no such credential or it has that time, or if the credential with which the change is made was changed meanwhile. A
-- record ends with its revision. KEYS: -, credentials
-- ARGV: id, time as JSON, id and revision of the credential with which the change is made or '' and '', entry of the log or ''
define('revoke_credential', SMALL, function(keys, args)
  local before = redis.call('HGET', keys[2], args[1]) or ''
  local revision, text = string.match(before, '^(%d+) ({.*),"revision":%d+}$')
  if not revision or cjson.decode(string.match(before, '{.*$')).revoked_at then
    return 0
  end
  if not is_as_before(keys[2], args[3], args[4]) then
    return 0
  end
  local next = string.format('%.0f', tonumber(revision) + 1)
  redis.call('HSET', keys[2], args[1], next .. ' ' .. text .. ',"revoked_at":' .. args[2] .. ',"revision":' .. next .. '}')
  redis.call('HINCRBY', keys[2], 'changes', 1)
  log_whole(args[5])
  publish('-')
  return 1
end)

-- Deletes a credential, unless it was changed meanwhile. Its last use goes with it if uses are recorded.
-- KEYS: -, credentials, uses or nothing. ARGV: id, revision
define('forget_credential', SMALL, function(keys, args)
  local before = redis.call('HGET', keys[2], args[1])
  if before and string.match(before, '^%d+') == args[2] then
    redis.call('HDEL', keys[2], args[1])
    if keys[3] then
      redis.call('HDEL', keys[3], args[1])
    end
    redis.call('HINCRBY', keys[2], 'changes', 1)
  end
  return 1
end)

-- Returns uses, expiry and record of a stored code, if it is open.
local function open(kept)
  local uses, expires, text = string.match(kept or '', '^(%d+) (%d+) (.*)$')
  if uses and uses ~= '0' and tonumber(expires) > now then
    return uses, expires, text
  end
end

-- Deletes ended codes, and stores one. Returns 1, or 0 if as many as `limit` are open.
-- KEYS: -, codes. ARGV: hash, uses, expires at, record, limit, entry of the log or ''
define('put_code', SMALL, function(keys, args)
  local ended = {}
  local kept = redis.call('HGETALL', keys[2])
  for i = 1, #kept, 2 do
    if not open(kept[i + 1]) then
      ended[#ended + 1] = kept[i]
    end
  end
  if #ended > 0 then
    redis.call('HDEL', keys[2], unpack(ended))
  end
  if redis.call('HLEN', keys[2]) >= tonumber(args[5]) then
    return 0
  end
  redis.call('HSET', keys[2], args[1], args[2] .. ' ' .. args[3] .. ' ' .. args[4])
  log_whole(args[6])
  publish('-')
  return 1
end)

-- Reads an open code: {uses, record}, or nothing. KEYS: -, codes. ARGV: hash
define('code', SMALL, function(keys, args)
  local uses, _, text = open(redis.call('HGET', keys[2], args[1]))
  return uses and { uses, text } or false
end)

-- Reads every open code: {uses, record} of each. KEYS: -, codes
define('codes', SMALL, function(keys)
  local found = {}
  local kept = redis.call('HGETALL', keys[2])
  for i = 2, #kept, 2 do
    local uses, _, text = open(kept[i])
    if uses then
      found[#found + 1] = { uses, text }
    end
  end
  return found
end)

-- Deletes an open code. Returns its {uses, record}, or nothing. KEYS: -, codes. ARGV: hash, entry of the log or ''
define('forget_code', SMALL, function(keys, args)
  local uses, _, text = open(redis.call('HGET', keys[2], args[1]))
  if not uses then
    return false
  end
  redis.call('HDEL', keys[2], args[1])
  log_whole(args[2])
  publish('-')
  return { uses, text }
end)

-- Uses an open code once and stores a new credential. Returns 1, or 0 if the code has ended, the id exists, there is no
-- room, or the credential that made the code was changed meanwhile. KEYS: -, credentials, codes
-- ARGV: hash, id, revision and record of the credential, id and revision of the credential that made the code or '' and '',
-- limit of credentials, entry of the log or ''
define('redeem', SMALL, function(keys, args)
  local uses, expires, text = open(redis.call('HGET', keys[3], args[1]))
  if not uses or redis.call('HEXISTS', keys[2], args[2]) == 1 or not has_room(keys[2], args[7]) then
    return 0
  end
  if not is_as_before(keys[2], args[5], args[6]) then
    return 0
  end
  redis.call('HSET', keys[3], args[1], (tonumber(uses) - 1) .. ' ' .. expires .. ' ' .. text)
  redis.call('HSET', keys[2], args[2], args[3] .. ' ' .. args[4])
  redis.call('HINCRBY', keys[2], 'changes', 1)
  log_whole(args[8])
  publish('-')
  return 1
end)
