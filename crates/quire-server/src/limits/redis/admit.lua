-- Decides one create over four buckets, all or nothing. Appended to bucket.lua.
-- KEYS: the source's pair, the service's pair.
-- ARGV: bytes; the latest server time at which the decision is still wanted, or 0; the budgets of the source;
-- the budgets of the service.
-- Answers {code, wait in us, the server's time in us}; code 0 admitted, 1 to 4 the bucket that refuses,
-- 5 too late, with nothing taken.
local TOO_LATE = 5
local deadline_us = tonumber(ARGV[2])
if deadline_us > 0 and now_us > deadline_us then return { TOO_LATE, 0, now_us } end

local cost, bytes_cost = MICRO, tonumber(ARGV[1]) * MICRO
-- The four buckets in their order.
local rate1, burst1, rate2, burst2 = unpack(BUDGETS, ARGV[3])
local rate3, burst3, rate4, burst4 = unpack(BUDGETS, ARGV[4])
local full1, full2, full3, full4 = burst1 * MICRO, burst2 * MICRO, burst3 * MICRO, burst4 * MICRO
local source, service = KEYS[1], KEYS[2]
local stored = redis.call('MGET', source, service)
local source_known, level1, at1, level2, at2 = read_pair(stored[1])
local service_known, level3, at3, level4, at4 = read_pair(stored[2])

local now1, now2 = refilled(level1, at1, rate1, full1), refilled(level2, at2, rate2, full2)
local now3, now4 = refilled(level3, at3, rate3, full3), refilled(level4, at4, rate4, full4)

local refusing, longest_us = 0, 0
local function consider(bucket, level, rate, needed)
    if rate == 0 or level >= needed then return end
    local wait_us = div_ceil(needed - level, rate)
    if wait_us >= longest_us then refusing, longest_us = bucket, wait_us end
end
consider(1, now1, rate1, cost)
consider(2, now2, rate2, bytes_cost)
consider(3, now3, rate3, cost)
consider(4, now4, rate4, bytes_cost)

if refusing == 0 then
    -- A bucket that is off is carried along as it is, for apps that have it on.
    if rate1 > 0 then level1, at1 = now1 - cost, now_us end
    if rate2 > 0 then level2, at2 = now2 - bytes_cost, now_us end
    if rate3 > 0 then level3, at3 = now3 - cost, now_us end
    if rate4 > 0 then level4, at4 = now4 - bytes_cost, now_us end
    if rate1 > 0 or rate2 > 0 then
        store_pair(source, level1, at1, rate1, full1, level2, at2, rate2, full2)
    end
    if rate3 > 0 or rate4 > 0 then
        store_pair(service, level3, at3, rate3, full3, level4, at4, rate4, full4)
    end
    return { 0, 0, now_us }
end

-- The clock was set back: the wait that is answered counts from now, so must the refilling.
if source_known and max(at1, at2) > now_us then
    store_pair(source, level1, min(at1, now_us), rate1, full1, level2, min(at2, now_us), rate2, full2)
end
if service_known and max(at3, at4) > now_us then
    store_pair(service, level3, min(at3, now_us), rate3, full3, level4, min(at4, now_us), rate4, full4)
end
return { refusing, longest_us, now_us }
