-- Adds entries of the audit, all of them as one of the stream. KEYS[1] is c3po:audit.
-- The id of an entry of the stream is the position of the last entry in it, so that the id trims and finds both.
-- ARGV: how many are kept, how many these are, these as JSON
local last = redis.call('XREVRANGE', KEYS[1], '+', '-', 'COUNT', 1)[1]
local position = (last and tonumber(string.match(last[1], '^%d+')) or 0) + tonumber(ARGV[2])
local oldest = math.max(position - tonumber(ARGV[1]) + 1, 0)
redis.call('XADD', KEYS[1], 'MINID', '~', string.format('%.0f', oldest), string.format('%.0f-0', position),
  'e', ARGV[3])
return position
