-- Changes fields of the record: 'outdated', 'done', or 'unknown' where there is no such agent.
-- ARGV: generation and instance of the session or two empty ones, context or '', field, value, field, value, ...
if ARGV[1] ~= '' and outdated(ARGV[1], ARGV[2]) then
  return 'outdated'
end
if redis.call('EXISTS', agent) == 0 then
  return 'unknown'
end
if ARGV[3] ~= '' then
  enter_context(ARGV[3])
end
if #ARGV > 3 then
  redis.call('HSET', agent, unpack(ARGV, 4))
end
return 'done'
