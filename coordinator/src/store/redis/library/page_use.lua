-- The use of pages by people.

-- Records that a person uses a page, and for how long that counts. KEYS: -, person. ARGV: time
define('use_page', SMALL, function(keys, args)
  redis.call('SET', keys[2], now + tonumber(args[1]), 'PX', args[1])
  return 1
end)

-- Returns for how long the use counts yet; 0 if it does not. KEYS: -, person
define('page_use', SMALL, function(keys)
  local ends = redis.call('GET', keys[2])
  return ends and math.max(tonumber(ends) - now, 0) or 0
end)
