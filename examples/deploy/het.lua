-- The figures of `INFO het` as name, value, name, value, ...: for redis_exporter --script.
local out = {}
for name, value in string.gmatch(redis.call('INFO', 'het'), '(het_[%w_]+):(%d+)') do
  out[#out + 1] = name
  out[#out + 1] = value
end
return out
