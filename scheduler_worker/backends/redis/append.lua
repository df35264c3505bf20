-- Adds records to the log of decisions of a scope, and removes what is out of bounds.
-- KEYS: log (a stream), details (a hash: position -> bytes), instances (a sorted set of
-- "instance position", all with score 0), memo
-- ARGV: milliseconds for which a repeated call is recognised, most records, longest age
-- (milliseconds), then of each record its instances (separated by spaces), outline and details
local LOG, DETAILS, INSTANCES, MEMO = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local TRIMMED_AT_ONCE = 200
if not redis.call('SET', MEMO, '', 'NX', 'PX', ARGV[1]) then return 0 end

for at = 4, #ARGV, 3 do
  local position = redis.call('XADD', LOG, '*', 'i', ARGV[at], 'o', ARGV[at + 1])
  redis.call('HSET', DETAILS, position, ARGV[at + 2])
  for instance in string.gmatch(ARGV[at], '%S+') do
    redis.call('ZADD', INSTANCES, 0, instance .. ' ' .. position)
  end
end

local clock = redis.call('TIME')
local oldest = clock[1] * 1000 + math.floor(clock[2] / 1000) - ARGV[3]
local over = redis.call('XLEN', LOG) - ARGV[2]
repeat
  local asked, removed = math.max(1, math.min(over, TRIMMED_AT_ONCE)), {}
  for _, record in ipairs(redis.call('XRANGE', LOG, '-', '+', 'COUNT', asked)) do
    local position, fields = record[1], record[2]
    if over <= 0 and tonumber(string.match(position, '^%d+')) >= oldest then break end
    for instance in string.gmatch(fields[2], '%S+') do
      redis.call('ZREM', INSTANCES, instance .. ' ' .. position)
    end
    removed[#removed + 1] = position
    over = over - 1
  end
  if #removed > 0 then
    redis.call('HDEL', DETAILS, unpack(removed))
    redis.call('XDEL', LOG, unpack(removed))
  end
until #removed < asked

for _, key in ipairs({LOG, DETAILS, INSTANCES}) do
  redis.call('PEXPIRE', key, ARGV[3])
end
return 1
