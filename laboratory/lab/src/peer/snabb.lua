-- A switch of vhost-user ports in pairs. Parameters: its CPU, then for each port its socket and
-- "listen" or "connect".

local VhostUser = require("apps.vhost.vhost_user").VhostUser
local numa = require("lib.numa")
local syscall = require("syscall")

-- Line buffering, so that the log has the last message if the process is killed.
io.stdout:setvbuf("line")

local parameters = main.parameters
numa.bind_to_cpu(tonumber(table.remove(parameters, 1)), "skip-perf-checks")

-- By default Snabb saves negotiated features in /tmp for drivers that reconnect.
function VhostUser:update_features (features) return features end

local ports = #parameters / 2
local network = config.new()
for port = 0, ports - 1 do
   local socket, side = parameters[2 * port + 1], parameters[2 * port + 2]
   local settings = { socket_path = socket, is_server = side == "listen" }
   config.app(network, "p"..port, VhostUser, settings)
end
for port = 0, ports - 1 do
   config.link(network, ("p%d.tx -> p%d.rx"):format(port, bit.bxor(port, 1)))
end
engine.configure(network)

-- Accept without blocking: otherwise no port forwards until every port has a driver.
for _, app in pairs(engine.app_table) do
   if app.listen_socket then assert(syscall.fcntl(app.listen_socket, "setfl", "nonblock")) end
end

-- Poll continuously, as the other switches do.
engine.busywait = true
print("forwarding")
-- Print the error without the stack, which would fill the reported last lines of the log.
local _, why = pcall(engine.main)
print(why)
