-- A console connected to a server, as `tarantoolctl connect` opens it: `tarantool console.lua HOST:PORT`.
local console = require('console')
console.on_start(function(self)
    local ok, err = pcall(console.connect, arg[1], {timeout = 3})
    if not ok then print('failed', err) os.exit(1) end
    console.on_client_disconnect(function(c) c.running = false end)
end)
console.start()
os.exit(0)
