-- Makes the globals that scripts see. Receives the tables of the libraries and the functions in
-- Rust; returns the globals, and the function that runs a script.
local all, rust, shared = ...
local type, error, tostring, tonumber, next = type, error, tostring, tonumber, next
local native_rawget, native_rawset, select = rawget, rawset, select
local native_pcall, native_xpcall, native_sort = pcall, xpcall, table.sort
local native_setmetatable, native_getmetatable = setmetatable, getmetatable
local native_load, native_resume = load, coroutine.resume
local native_insert, native_remove = table.insert, table.remove
local native_collect, byte, sub = collectgarbage, string.byte, string.sub
local native_concat, native_find = table.concat, string.find
local is_stopped, describe, where, check = rust.is_stopped, rust.describe, rust.where, rust.check
local gmatch, gsub, next_match, find_from = rust.gmatch, rust.gsub, rust.next_match, rust.find_from

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

-- An error as a script sees it.
local function plain(failure)
  if type(failure) == "userdata" then
    local text, is_of_command = describe(failure)
    return is_of_command and {err = text} or text
  end
  return failure
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

-- An error is not caught if the script must end.
local function results(ok, first, ...)
  if ok then
    return true, first, ...
  end
  if is_stopped(first) then
    error(first, 0)
  end
  return false, caught(first)
end

-- Fails if the argument of this number is missing.
local function value_expected(name, number, n)
  if n < number then
    error("bad argument #" .. number .. " to '" .. name .. "' (value expected)", 3)
  end
end

function all.pcall(...)
  if select("#", ...) == 0 then
    return false, "attempt to call a boolean value"
  end
  return results(native_pcall(...))
end

local function handled(ok, ...)
  if not ok and is_stopped((...)) then
    error((...), 0)
  end
  return ok, ...
end

function all.xpcall(...)
  value_expected("xpcall", 2, select("#", ...))
  local f, handler = ...
  return handled(native_xpcall(f, function(failure)
    -- Lua calls no hook in the handler of an error that a hook has raised.
    if is_stopped(failure) then
      return failure
    end
    return handler(plain(failure))
  end))
end

local function resumed(ok, first, ...)
  if ok then
    return true, first, ...
  end
  if is_stopped(first) then
    error(first, 0)
  end
  return false, plain(first)
end

-- The hook counts the instructions of each coroutine on its own.
function all.coroutine.resume(...)
  if type((...)) ~= "thread" then
    error("bad argument #1 to 'resume' (coroutine expected)", 2)
  end
  check()
  return resumed(native_resume(...))
end

-- The results of a function of C that has been called by `pcall`, or its error as one of the script.
local function passed_on(name, ok, ...)
  if ok then
    return ...
  end
  local failure = ...
  if type(failure) == "string" and not is_stopped(failure) then
    local start, stop = native_find(failure, "'?'", 1, true)
    if start then
      failure = sub(failure, 1, start) .. name .. sub(failure, stop)
    end
    error(failure, 3)
  end
  error(failure, 0)
end

for _, name in next, {"create", "wrap"} do
  local native = all.coroutine[name]
  all.coroutine[name] = function(...)
    check()
    return passed_on(name, native_pcall(native, ...))
  end
end

-- Fails in the caller of the function that has the arguments if one is of another kind.
local function expected(name, number, kind, ...)
  local value = select(number, ...)
  if type(value) ~= kind then
    local got = select("#", ...) < number and "no value" or type(value)
    local text = " (" .. kind .. " expected, got " .. got .. ")"
    error("bad argument #" .. number .. " to '" .. name .. "'" .. text, 3)
  end
end

function all.next(...)
  local table, key = ...
  expected("next", 1, "table", ...)
  return next(shown[table] or table, key)
end

function all.pairs(...)
  local table = ...
  expected("pairs", 1, "table", ...)
  local real = shown[table]
  if real then
    return function(_, key) return next(real, key) end, table, nil
  end
  return next, table, nil
end

function all.rawget(...)
  local table, key = ...
  expected("rawget", 1, "table", ...)
  value_expected("rawget", 2, select("#", ...))
  return native_rawget(shown[table] or table, key)
end

function all.rawset(...)
  expected("rawset", 1, "table", ...)
  value_expected("rawset", 2, select("#", ...))
  value_expected("rawset", 3, select("#", ...))
  if shown[(...)] then
    error(readonly, 0)
  end
  return native_rawset(...)
end

function all.setmetatable(...)
  expected("setmetatable", 1, "table", ...)
  if shown[(...)] then
    error(readonly, 0)
  end
  return passed_on("setmetatable", native_pcall(native_setmetatable, ...))
end

function all.getmetatable(...)
  value_expected("getmetatable", 1, select("#", ...))
  local value = ...
  if type(value) == "string" then
    return seen_metatables[""]
  end
  if value ~= nil and shown[value] then
    return seen_metatables[value]
  end
  return native_getmetatable(value)
end

-- Tables and texts that are longer are changed after a look at the time.
local LONG = 1000
-- Comparisons between two looks at the time.
local COMPARISONS = 16

local function is_less(a, b)
  return a < b
end

local function is_long(value)
  return type(value) == "string" and #value > LONG
end

local function has_long(table)
  for index = 1, #table do
    if is_long(native_rawget(table, index)) then
      return true
    end
  end
  return false
end

-- The order is decided in Lua, so that the time is looked at between two comparisons.
function all.table.sort(...)
  local table, less = ...
  expected("sort", 1, "table", ...)
  if less ~= nil then
    expected("sort", 2, "function", ...)
  elseif #table <= COMPARISONS and not has_long(table) then
    return native_sort(table)
  end
  local count = 0
  less = less or is_less
  local function counted(a, b)
    count = count + 1
    if count % COMPARISONS == 0 or is_long(a) and is_long(b) then
      check()
    end
    return less(a, b)
  end
  local ok, failure = native_pcall(native_sort, table, counted)
  if ok then
    return
  elseif failure == "invalid order function for sorting" then
    error(failure, 2)
  elseif type(failure) == "string" and not is_stopped(failure) then
    failure = all.string.gsub(failure, "^prelude:%d+: ", "")
  end
  error(failure, 0)
end

function all.table.insert(...)
  local table, at = ...
  local count = select("#", ...)
  expected("insert", 1, "table", ...)
  if shown[table] then
    error(readonly, 0)
  end
  if count == 2 then
    return native_insert(table, at)
  elseif count ~= 3 then
    error("wrong number of arguments to 'insert'", 2)
  end
  if not tonumber(at) then
    expected("insert", 2, "number", ...)
  end
  -- Lua moves as many elements, whether they are there or not. Its positions have 32 bits.
  if tonumber(at) < -LONG or tonumber(at) >= 2^31 then
    error("bad argument #2 to 'insert' (position out of bounds)", 2)
  elseif #table > LONG then
    check()
  end
  return native_insert(...)
end

function all.table.remove(...)
  local table, at = ...
  expected("remove", 1, "table", ...)
  if at ~= nil and not tonumber(at) then
    expected("remove", 2, "number", ...)
  end
  if at ~= nil and #table > LONG then
    check()
  end
  return native_remove(...)
end

function all.table.foreach(...)
  local table, f = ...
  expected("foreach", 1, "table", ...)
  expected("foreach", 2, "function", ...)
  for key, value in next, shown[table] or table do
    local result = f(key, value)
    if result ~= nil then
      return result
    end
  end
end

function all.table.foreachi(...)
  local table, f = ...
  expected("foreachi", 1, "table", ...)
  expected("foreachi", 2, "function", ...)
  for index = 1, #table do
    local result = f(index, native_rawget(table, index))
    if result ~= nil then
      return result
    end
  end
end

function all.string.gmatch(...)
  local text, pattern = gmatch(...)
  local at = 0
  local function advance(next, ...)
    at = next
    return ...
  end
  return function()
    return advance(next_match(text, pattern, at))
  end
end
all.string.gfind = all.string.gmatch

-- Where a match is, and what takes its place.
local function replaced(replacement, is_function, start, stop, ...)
  if not start then
    return nil
  elseif is_function then
    return start, stop, (replacement(...))
  end
  return start, stop, replacement[(...)]
end

-- No function in Rust calls one of Lua: here a function or a table has the replacements.
function all.string.gsub(...)
  local text, pattern, most, is_anchored = gsub(...)
  if most == nil then
    return text, pattern
  end
  local _, _, replacement = ...
  local is_function = type(replacement) == "function"
  local pieces, joined, copied, from, count = {}, {}, 0, 0, 0
  while count < most do
    local start, stop, value =
      replaced(replacement, is_function, find_from(text, pattern, from, is_anchored))
    if not start then
      break
    end
    count = count + 1
    if not value then
      value = sub(text, start + 1, stop)
    elseif type(value) ~= "string" and type(value) ~= "number" then
      error("invalid replacement value (a " .. type(value) .. ")", 2)
    end
    pieces[#pieces + 1] = sub(text, copied + 1, start)
    pieces[#pieces + 1] = value
    if #pieces > LONG then
      joined[#joined + 1] = native_concat(pieces)
      pieces = {}
    end
    copied = stop
    from = stop > start and stop or stop + 1
    if from > #text or is_anchored then
      break
    end
  end
  pieces[#pieces + 1] = sub(text, copied + 1)
  joined[#joined + 1] = native_concat(pieces)
  return native_concat(joined), count
end

-- The bytes that are compiled between two looks at the time. Each `break` of a loop and each `and`
-- of a condition is added to the end of a list, which the compiler walks.
local PIECE = 1024

local function compile(text, name)
  if byte(text, 1) == 27 then
    return nil, "user_script: bytecode is not loaded"
  elseif #text > rust.longest_text then
    return nil, "user_script: the script is too long"
  end
  local at = 1
  local function read()
    check()
    local piece = sub(text, at, at + PIECE - 1)
    at = at + PIECE
    return piece
  end
  local compiled, failure = native_load(read, name)
  if not compiled and is_stopped(failure) then
    error(failure, 0)
  end
  return compiled, failure
end

local function is_text(value)
  return type(value) == "string" or type(value) == "number"
end

function all.loadstring(...)
  local text, name = ...
  if not is_text(text) then
    expected("loadstring", 1, "string", ...)
  elseif name ~= nil and not is_text(name) then
    expected("loadstring", 2, "string", ...)
  end
  text = tostring(text)
  return compile(text, name or text)
end

function all.load(...)
  local reader, name = ...
  expected("load", 1, "function", ...)
  if name ~= nil and not is_text(name) then
    expected("load", 2, "string", ...)
  end
  local parts = {}
  while true do
    local ok, part = native_pcall(reader)
    if not ok then
      if is_stopped(part) then
        error(part, 0)
      end
      return nil, plain(part)
    end
    if part == nil or part == "" then
      break
    end
    if not is_text(part) then
      return nil, "reader function must return a string"
    end
    parts[#parts + 1] = part
  end
  return compile(native_concat(parts), name or "=(load)")
end

-- Whether an option of `collectgarbage` is obeyed.
local collects = {collect = true, count = true, stop = false, restart = false, step = false,
  setpause = false, setstepmul = false}

function all.collectgarbage(...)
  local what = ...
  check()
  if what == nil then
    what = "collect"
  elseif type(what) == "number" then
    what = tostring(what)
  else
    expected("collectgarbage", 1, "string", ...)
  end
  if collects[what] == nil then
    error("bad argument #1 to 'collectgarbage' (invalid option '" .. what .. "')", 2)
  end
  return collects[what] and native_collect(what) or 0
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
end, compile
