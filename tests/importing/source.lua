-- Spaces in the layouts of the queue module's five drivers, of the 1.5 queue, and of xqueue.
-- Environment: SOURCE_DIR, SOURCE_PORT, SOURCE_TASKS.
local dir, port = os.getenv('SOURCE_DIR'), os.getenv('SOURCE_PORT')
local tasks = tonumber(os.getenv('SOURCE_TASKS'))
box.cfg{ listen = '127.0.0.1:' .. port, work_dir = dir, log = 'source.log', wal_mode = 'none',
         memtx_memory = 1024 * 1024 * 1024 }
box.schema.user.grant('guest', 'read', 'universe')
local day = 86400 * 1000000LL
local now = 1700000000 * 1000000LL
local far = 3153600000 * 1000000LL
local states = { 'r', 't', '!', '~', 'r' }
local function state(i, plain)
    local s = states[i % 5 + 1]
    return plain and s == '~' and 'r' or s
end
local function data(i)
    if i % 3 == 0 then return 'task ' .. i end
    if i % 3 == 1 then return { id = i, list = { 1, box.NULL, 2.5 } } end
    return i
end
local queue = box.schema.space.create('_queue', { format = {
    { 'tube_name', 'string' }, { 'tube_id', 'unsigned' }, { 'space_name', 'string' },
    { 'tube_type', 'string' }, { 'opts', '*' } } })
queue:create_index('tube', { parts = { 1, 'str' } })
local made = {
    fifo = function(i) return { i, state(i, true), data(i) } end,
    utube = function(i) return { i, state(i, true), 'u' .. i % 7, data(i) } end,
    fifottl = function(i)
        return { i, state(i), now + 100 * 365 * day + i, far, far, i % 4, now, data(i) }
    end,
    utubettl = function(i)
        return { i, state(i), now + 100 * 365 * day + i, far, far, i % 4, now, 'u' .. i % 7, data(i) }
    end,
}
made.limfifottl = made.fifottl
local id = 0
for kind, row in pairs(made) do
    local s = box.schema.space.create('old_' .. kind)
    s:create_index('task_id', { parts = { 1, 'unsigned' } })
    queue:insert{ 'old_' .. kind, id, s.name, kind,
                  { if_not_exists = false, temporary = false, capacity = kind == 'limfifottl' and tasks * 2 or nil } }
    id = id + 1
    for i = 0, tasks - 1 do s:insert(row(i * 2)) end
end
queue:insert{ 'gone', 90, 'old_fifo', 'fifo', { temporary = true } }
queue:insert{ 'foreign', 91, 'old_fifo', 'custom', {} }
local s = box.schema.space.create('legacy')
s:create_index('id', { parts = { 1, 'str' } })
local letters = { 'r', 'd', 't', 'b', '*' }
for i = 0, tasks - 1 do
    s:insert{ string.format('%032x', i), 'tube' .. i % 3, letters[i % 5 + 1], now + 100 * 365 * day, 127,
              i % 256, 7, now, 100 * 365 * day, 60 * 1000000, i % 2, i % 4, 'first ' .. i, { i } }
end
-- Three of xqueue: every logical field, a time64 key; a text key that is not first and whole
-- seconds; a status field of another name alone.
local later, six = 4000000000, { 'R', 'T', 'W', 'B', 'Z', 'D' }
local function records(name, format, indexes, row)
    local s = box.schema.space.create(name, { format = format })
    for _, index in ipairs(indexes) do
        s:create_index(index[1], { parts = index[2], unique = index[3] ~= false })
    end
    for i = 0, tasks - 1 do s:insert(row(i, six[i % 6 + 1])) end
end
records('jobs', { { 'id', 'unsigned' }, { 'status', 'string' }, { 'runat', 'number' },
                  { 'priority', 'number' }, { 'tube', 'string' }, { 'data', 'any', is_nullable = true } },
    { { 'primary', { 'id' } }, { 'xq', { 'status', 'priority', 'id' } },
      { 'tube', { 'tube', 'status', 'priority', 'id' } }, { 'runat', { 'runat', 'id' } } },
    function(i, st)
        return { 1700000000000000000ULL + i, st, i % 4 == 0 and 0 or later + i + 0.25, i % 5 - 2,
                 'tube' .. i % 3, data(i) }
    end)
records('mails', { { 'to', 'map' }, { 'key', 'string' }, { 'status', 'string' }, { 'runat', 'unsigned' } },
    { { 'primary', { 'key' } }, { 'xq', { 'status', 'key' } }, { 'runat', { 'runat' }, false } },
    function(i, st) return { { name = 'n' .. i }, string.format('k%08d', i), st, i % 2 * later } end)
records('plain', { { 'id', 'unsigned' }, { 'state', 'string' }, { 'note', 'string', is_nullable = true } },
    { { 'primary', { 'id' } }, { 'xq', { 'state', 'id' } } },
    function(i, st) if i % 2 == 0 then return { i + 1, st } end return { i + 1, st, 'note ' .. i } end)
local s = box.schema.space.create('pairs', { format = { { 'a', 'unsigned' }, { 'b', 'unsigned' } } })
s:create_index('primary', { parts = { 'a', 'b' } })
box.schema.space.create('formless'):create_index('primary')
io.stdout:write('ready\n')
io.stdout:flush()
