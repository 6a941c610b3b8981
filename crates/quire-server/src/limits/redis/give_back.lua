-- Puts one create and its bytes back into the service's buckets, never above the burst. Appended to bucket.lua.
-- KEYS: the service's pair. ARGV: bytes; the budgets of the service.
-- Answers the server's time in us.
local bytes_cost = tonumber(ARGV[1]) * MICRO
local rate1, burst1, rate2, burst2 = unpack(BUDGETS, ARGV[2])
local full1, full2 = burst1 * MICRO, burst2 * MICRO
local known, level1, at1, level2, at2 = read_pair(redis.call('GET', KEYS[1]))
-- What is not stored is full.
if known then
    if rate1 > 0 then level1, at1 = min(refilled(level1, at1, rate1, full1) + MICRO, full1), now_us end
    if rate2 > 0 then level2, at2 = min(refilled(level2, at2, rate2, full2) + bytes_cost, full2), now_us end
    store_pair(KEYS[1], level1, at1, rate1, full1, level2, at2, rate2, full2)
end
return now_us
