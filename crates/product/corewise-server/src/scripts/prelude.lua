-- Makes the globals that scripts see. Receives the tables of the libraries and the functions in
-- Rust; returns the globals, and the function that runs a script.
local all, rust, shared = ...
local type, error, tostring, next, select = type, error, tostring, next, select
local native_rawget, native_rawset = rawget, rawset
local native_pcall, native_xpcall, native_sort = pcall, xpcall, table.sort
local native_setmetatable, native_getmetatable = setmetatable, getmetatable
local native_loadstring, native_resume = loadstring, coroutine.resume
local native_collect, concat, byte = collectgarbage, table.concat, string.byte
local is_stopped, describe, where, check = rust.is_stopped, rust.describe, rust.where, rust.check

-- What a script cannot change is an empty table that shows another one.
local shown = native_setmetatable({}, {__mode = "k"})
local seen_metatables = native_setmetatable({}, {__mode = "k"})
local readonly = "Attempt to modify a readonly table"

local function refuse()
  error(readonly, 2)
end

local function freeze(table)
  local proxy = {}
  shown[proxy] = table
  shared[#shared + 1] = proxy
  return native_setmetatable(proxy, {__index = table, __newindex = refuse})
end

-- The text of an error that `pcall` returns.
local function caught(failure)
  if type(failure) == "userdata" then
    return (describe(failure))
  end
  if type(failure) == "table" then
    local text = failure.err
    if type(text) == "string" or type(text) == "number" then
      return text
    end
  end
  return failure
end

local function results(ok, first, ...)
  if ok then
    return true, first, ...
  end
  if is_stopped() then
    error(first, 0)
  end
  return false, caught(first)
end

local function value_expected(name, n)
  if n == 0 then
    error("bad argument #1 to '" .. name .. "' (value expected)", 3)
  end
end

function all.pcall(...)
  value_expected("pcall", select("#", ...))
  return results(native_pcall(...))
end

local function handled(ok, ...)
  if not ok and is_stopped() then
    error((...), 0)
  end
  return ok, ...
end

function all.xpcall(f, handler)
  return handled(native_xpcall(f, function(failure)
    if type(failure) == "userdata" then
      local text, is_of_command = describe(failure)
      failure = is_of_command and {err = text} or text
    end
    return handler(failure)
  end))
end

local function resumed(ok, first, ...)
  if ok then
    return true, first, ...
  end
  if is_stopped() then
    error(first, 0)
  end
  if type(first) == "userdata" then
    local text, is_of_command = describe(first)
    first = is_of_command and {err = text} or text
  end
  return false, first
end

function all.coroutine.resume(...)
  return resumed(native_resume(...))
end

local function table_expected(name, value)
  if type(value) ~= "table" then
    local kind = value == nil and "nil" or type(value)
    error("bad argument #1 to '" .. name .. "' (table expected, got " .. kind .. ")", 3)
  end
end

function all.next(table, key)
  table_expected("next", table)
  return next(shown[table] or table, key)
end

function all.pairs(table)
  table_expected("pairs", table)
  local real = shown[table]
  if real then
    return function(_, key) return next(real, key) end, table, nil
  end
  return next, table, nil
end

function all.rawget(table, key)
  table_expected("rawget", table)
  return native_rawget(shown[table] or table, key)
end

function all.rawset(table, key, value)
  table_expected("rawset", table)
  if shown[table] then
    error(readonly, 0)
  end
  return native_rawset(table, key, value)
end

function all.setmetatable(table, metatable)
  table_expected("setmetatable", table)
  if shown[table] then
    error(readonly, 0)
  end
  return native_setmetatable(table, metatable)
end

function all.getmetatable(value)
  if type(value) == "string" then
    return seen_metatables[""]
  end
  if value ~= nil and shown[value] then
    return seen_metatables[value]
  end
  return native_getmetatable(value)
end

-- The order of a long table is decided in Lua, so that the time of the script is looked at.
local function is_less(a, b)
  return a < b
end

function all.table.sort(table, less)
  if less == nil and type(table) == "table" and #table > 100 then
    less = is_less
  end
  return native_sort(table, less)
end

function all.loadstring(text, name)
  if type(text) == "string" and byte(text, 1) == 27 then
    return nil, "user_script: bytecode is not loaded"
  end
  return native_loadstring(text, name)
end

function all.load(reader, name)
  if type(reader) ~= "function" then
    error("bad argument #1 to 'load' (function expected, got " .. type(reader) .. ")", 2)
  end
  local parts = {}
  while true do
    local part = reader()
    if part == nil or part == "" then
      break
    end
    if type(part) ~= "string" then
      return nil, "reader function must return a string"
    end
    parts[#parts + 1] = part
  end
  return all.loadstring(concat(parts), name or "=(load)")
end

function all.collectgarbage(what)
  check()
  if what == nil or what == "collect" or what == "count" then
    return native_collect(what)
  end
  return 0
end

-- The table with the functions that a script calls is filled when it begins.
local libraries = {"bit", "cjson", "cmsgpack", "coroutine", "math", "redis", "string", "table"}
for _, name in next, libraries do
  all[name] = freeze(all[name])
end
native_getmetatable("").__index = shown[all.string]
seen_metatables[""] = freeze({__index = all.string})

local globals = freeze(all)
all._G = globals
local absent = {__index = function(_, name)
  error("Script attempted to access nonexistent global variable '" .. tostring(name) .. "'", 2)
end}
native_setmetatable(all, absent)
seen_metatables[globals] = freeze(absent)

-- What is known of an error that ends the script: its text, and where it was raised.
local function handler(failure)
  local source, line = where()
  local text
  if type(failure) == "userdata" then
    local is_of_command
    text, is_of_command = describe(failure)
    text = is_of_command and text or "ERR " .. text
  elseif type(failure) == "table" then
    text = failure.err
    if type(text) == "number" then
      text = tostring(text)
    end
  else
    text = "ERR " .. tostring(failure)
  end
  return {text, source, line}
end

return globals, function(script)
  return native_xpcall(script, handler)
end
