-- Reads the details of records of the log of decisions of a scope.
-- KEYS: log, details; see append.lua. ARGV: positions.
-- Returns of each position {which of the groups has its details, from 1 (0: none), its number in
-- the group, from 0}; and the groups, those that are gone as nil.
local LOG, DETAILS = KEYS[1], KEYS[2]
local places, groups, which = {}, {}, {}
for at, position in ipairs(ARGV) do
  local record = redis.call('XRANGE', LOG, position, position)[1]
  if record then
    local fields = record[2]
    local first = fields[6] or position
    if not which[first] then
      groups[#groups + 1] = redis.call('HGET', DETAILS, first)
      which[first] = #groups
    end
    places[at] = {which[first], tonumber(fields[8] or 0)}
  else
    places[at] = {0, 0}
  end
end
return {places, groups}
