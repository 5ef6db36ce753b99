-- Takes out of one inbox what is past its time, and returns how many answers of the agent are unfinished.
expire()
return redis.call('ZCARD', outbox)
