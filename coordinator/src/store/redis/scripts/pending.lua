-- Counts the inbox: {how many, when the oldest was accepted or nothing}.
expire()
local first = redis.call('ZRANGE', inbox, 0, 0)[1]
return { redis.call('ZCARD', inbox), first and redis.call('HGET', message_key(first), 'at') or false }
