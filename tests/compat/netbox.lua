-- Drives a server with net.box of a stock Tarantool: `tarantool netbox.lua HOST:PORT`.
-- Prints a line `STEP VALUE` for each step; the test beside it says what each must be.
local net = require('net.box')
local json = require('json')
local address = arg[1]
local c = net.connect(address)
local function say(step, ok, value) print(step .. ' ' .. json.encode({ok and 'ok' or 'error', ok and value or tostring(value)})) end
local function try(step, f) say(step, pcall(f)) end
local function call(...) return c:call(...) end

try('connected', function() return c:ping() end)
local first = c.schema_version
c:call('queue.create_tube', {'late', 'fifottl'})
try('a tube made after connecting', function() c:reload_schema() return c.space.late ~= nil end)
try('seen without being asked', function()
    local other = net.connect(address)
    other:call('queue.create_tube', {'later', 'fifo', {temporary = true}})
    c:call('queue.state')
    for _ = 1, 100 do
        if c.space.later ~= nil then break end
        require('fiber').sleep(0.01)
    end
    return c.space.later ~= nil and c.space.later.temporary
end)
c:call('queue.tube.later:drop')
try('dropped', function() c:reload_schema() return c.space.later == nil end)
try('select of a tube made late', function()
    c:call('queue.tube.late:put', {'x'})
    return c.space.late:select({0})[1][1]
end)
try('ownership is logged', function()
    c:call('queue.cfg', {{in_replicaset = true}})
    c:reload_schema()
    local logged = not c.space._queue_taken_2.temporary
    c:call('queue.cfg', {{in_replicaset = false}})
    c:reload_schema()
    return logged and c.space._queue_taken_2.temporary
end)
try('calls do not move it', function()
    local before = c.schema_version
    for i = 1, 50 do c:call('queue.tube.late:put', {i}) end
    return c.schema_version == before
end)
try('write refused', function() c.space.late:insert({7, 'r', 'x'}) end)
try('alter', function()
    return c:call('queue.alter_tube', {'late', {capacity = 70}}).opts.capacity
end)
try('count', function() return c:call('box.space.late:count') end)
os.exit(0)
