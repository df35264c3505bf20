-- Adds records to the log of decisions of a scope, and removes what is out of bounds.
-- KEYS: log (a stream), details (a hash: position of a group's first record -> bytes), instances
-- (a sorted set of "instance position", all with score 0), memo
-- ARGV: milliseconds for which a repeated call is recognised, most records, longest age
-- (milliseconds), then of each group how many records it has and their details, and of each of
-- these its instances (separated by spaces) and its outline
local LOG, DETAILS, INSTANCES, MEMO = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local TRIMMED_AT_ONCE = 200
if redis.call('GET', MEMO) then return 0 end

local at = 4
while at < #ARGV do
  local count, details, first = tonumber(ARGV[at]), ARGV[at + 1], nil
  at = at + 2
  for number = 0, count - 1 do
    local instances, outline, position = ARGV[at], ARGV[at + 1], nil
    at = at + 2
    if first then
      position = redis.call(
        'XADD', LOG, '*', 'i', instances, 'o', outline, 'g', first, 'n', number)
    else
      position = redis.call('XADD', LOG, '*', 'i', instances, 'o', outline)
      first = position
      -- Not before: if the server or the account refuses the first write, a repeated call tries
      -- again.
      redis.call('SET', MEMO, '', 'PX', ARGV[1])
      redis.call('HSET', DETAILS, position, details)
    end
    for instance in string.gmatch(instances, '%S+') do
      redis.call('ZADD', INSTANCES, 0, instance .. ' ' .. position)
    end
  end
end

local clock = redis.call('TIME')
local oldest = clock[1] * 1000 + math.floor(clock[2] / 1000) - ARGV[3]
local over = redis.call('XLEN', LOG) - ARGV[2]
repeat
  local asked = math.max(1, math.min(over, TRIMMED_AT_ONCE))
  local removed, groups = {}, {}
  for _, record in ipairs(redis.call('XRANGE', LOG, '-', '+', 'COUNT', asked)) do
    local position, fields = record[1], record[2]
    if over <= 0 and tonumber(string.match(position, '^%d+')) >= oldest then break end
    for instance in string.gmatch(fields[2], '%S+') do
      redis.call('ZREM', INSTANCES, instance .. ' ' .. position)
    end
    removed[#removed + 1] = position
    local group = fields[6] or position
    if groups[#groups] ~= group then groups[#groups + 1] = group end
    over = over - 1
  end
  if #removed > 0 then
    redis.call('XDEL', LOG, unpack(removed))
    -- Of the last group some records may be left.
    local left = redis.call('XRANGE', LOG, '-', '+', 'COUNT', 1)[1]
    if left and left[2][6] == groups[#groups] then groups[#groups] = nil end
    if #groups > 0 then redis.call('HDEL', DETAILS, unpack(groups)) end
  end
until #removed < asked

for _, key in ipairs({LOG, DETAILS, INSTANCES}) do
  redis.call('PEXPIRE', key, ARGV[3])
end
return 1
