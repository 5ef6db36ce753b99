-- Reads a message: {envelope, history, reply}, each nothing where it is not kept.
-- ARGV: id
expire_due()
return redis.call('HMGET', message_key(ARGV[1]), 'env', 'history', 'reply')
