-- What a sysbench script finds in its state. Loaded with the pointer to the calls and the settings.
local pointer, settings = ...

local ffi = require("ffi")
local jit = require("jit")
local debug = debug
local error, type, tostring, tonumber, pairs, ipairs = error, type, tostring, tonumber, pairs, ipairs
local setmetatable, select, unpack, pcall, xpcall = setmetatable, select, unpack, pcall, xpcall
local format, concat = string.format, table.concat

local NEEDS_RUN = "() is not possible here: the script needs a run"

-- A userdata could be taken for a string: it is a pointer, and has the length that it pretends.
local function check_text(value)
   if type(value) ~= "string" then error("a string is needed, not " .. type(value), 3) end
end

ffi.cdef [[
typedef struct {
  int32_t type;
  void *buffer;
  unsigned long *data_len;
  unsigned long max_len;
  char *is_null;
} dbdyno_parameter;

typedef struct { int32_t type; char is_null[4]; unsigned long data_len[1], max_len; int64_t buffer[1]; } dbdyno_int;
typedef struct { int32_t type; char is_null[4]; unsigned long data_len[1], max_len; double buffer[1]; } dbdyno_double;
typedef struct { int32_t type; char is_null[4]; unsigned long data_len[1], max_len; uint8_t buffer[?]; } dbdyno_text;

typedef struct {
  void *context;
  uint64_t (*uniform_uint64)(void *);
  double (*uniform_double)(void *);
  uint32_t (*uniform)(void *, uint32_t, uint32_t);
  uint32_t (*gaussian)(void *, uint32_t, uint32_t);
  uint32_t (*special)(void *, uint32_t, uint32_t);
  uint32_t (*pareto)(void *, uint32_t, uint32_t);
  uint32_t (*zipfian)(void *, uint32_t, uint32_t);
  uint32_t (*default_)(void *, uint32_t, uint32_t);
  uint32_t (*unique)(void *);
  void (*text)(void *, const char *, uint8_t *, size_t);
  int32_t (*prepare)(void *, const char *, size_t);
  int32_t (*bind)(void *, int32_t, const dbdyno_parameter *, size_t);
  double (*execute)(void *, int32_t);
  void (*close)(void *, int32_t);
  int32_t (*query)(void *, const char *, size_t);
  int32_t (*bulk_start)(void *, const char *, size_t);
  int32_t (*bulk_row)(void *, const char *, size_t);
  int32_t (*bulk_end)(void *);
  double (*row_count)(void *);
  int32_t (*result)(void *);
  int32_t (*columns)(void *, int32_t);
  int32_t (*next_row)(void *, int32_t);
  const char *(*value)(void *, int32_t, int32_t, int64_t *);
  int32_t (*error_kind)(void *);
  int32_t (*error_number)(void *);
  const char *(*error_text)(void *, int32_t, int64_t *);
  int32_t (*has_more_results)(void *);
  int32_t (*next_result)(void *);
  int32_t (*more_events)(void *);
  double (*lua_seed)(void *);
  double (*time)(void *);
  int32_t (*overdue)(void *);
  void (*print)(void *, const char *, size_t);
  void (*restarted)(void *);
  int32_t (*sleep)(void *, double);
  void (*ran_command)(void *);
  int32_t (*file)(void *, const char *, size_t, int32_t);
} dbdyno_calls;

typedef struct dbdyno_no_result dbdyno_no_result;
typedef struct { int64_t seconds, fraction; } dbdyno_time;
]]

local calls = ffi.cast("dbdyno_calls *", pointer)
local context = calls.context
-- Compiled code calls these directly: with many clients, each memory access of an event is a cache miss.
local call_execute, call_more_events = calls.execute, calls.more_events
local call_uniform, call_default = calls.uniform, calls.default_

-- The connection's results of a call.
local OK, ROWS = 0, 1
-- The result of execute() if there is no result set; otherwise it is the number of rows, or lower if it failed.
local NO_ROWS = -1
-- The kinds of errors.
local RESTART, LOST = 0, 2

local sysbench = {
   tid = settings.client,
   version = settings.version,
   version_string = "sysbench " .. settings.version,
   error = { NONE = 0, RESTART_EVENT = 1 },
   opt = {},
   hooks = {},
   rand = {},
   sql = {},
   cmdline = {},
   histogram = {},
}
_G.sysbench = sysbench

-- Random numbers

local rand = sysbench.rand

function rand.uniform_uint64() return calls.uniform_uint64(context) end
function rand.uniform_double() return calls.uniform_double(context) end
function rand.uniform(a, b) return call_uniform(context, a, b) end
function rand.gaussian(a, b) return calls.gaussian(context, a, b) end
function rand.pareto(a, b) return calls.pareto(context, a, b) end
function rand.default(a, b) return call_default(context, a, b) end
function rand.unique() return calls.unique(context) end

if settings.is_1_1 then
   function rand.zipfian(a, b) return calls.zipfian(context, a, b) end
   function rand.varstring(shortest, longest)
      assert(shortest <= longest and longest > 0)
      local size = rand.uniform(shortest, longest)
      local characters = {}
      for i = 1, size do characters[i] = string.char(rand.uniform(48, 122)) end
      return concat(characters)
   end
else
   function rand.special(a, b) return calls.special(context, a, b) end
end

function rand.string(pattern)
   check_text(pattern)
   local buffer = ffi.new("uint8_t[?]", #pattern)
   calls.text(context, pattern, buffer, #pattern)
   return ffi.string(buffer, #pattern)
end

-- SQL

local T = {
   NONE = 0, TINYINT = 1, SMALLINT = 2, INT = 3, BIGINT = 4, FLOAT = 5, DOUBLE = 6, TIME = 7,
   DATE = 8, DATETIME = 9, TIMESTAMP = 10, CHAR = 11, VARCHAR = 12,
}
sysbench.sql.type = T
sysbench.sql.error = { NONE = 0, IGNORABLE = 1, FATAL = 2 }

local length = ffi.new("int64_t[1]")

local function error_text(what)
   local text = calls.error_text(context, what, length)
   return ffi.string(text, tonumber(length[0]))
end

-- The most characters of a statement in a message.
local EXCERPT = 300

-- A message about a statement that failed.
local function describe(message, number, state, sql)
   local codes = {}
   if number ~= 0 then codes[1] = "error " .. tostring(number) end
   if state ~= "" then codes[#codes + 1] = "SQLSTATE '" .. tostring(state) .. "'" end
   local suffix = #codes > 0 and " (" .. concat(codes, ", ") .. ")" or ""
   if #sql > EXCERPT then sql = sql:sub(1, EXCERPT) .. " …" end
   return tostring(message) .. suffix .. " in: " .. sql
end

-- Raises the error of the last call: a table that restarts the event, or a message.
local function fail(connection, sql)
   local kind, number = calls.error_kind(context), calls.error_number(context)
   local state, message = error_text(0), error_text(1)
   connection.error = kind == RESTART and sysbench.sql.error.IGNORABLE or sysbench.sql.error.FATAL
   connection.sql_errno, connection.sql_state, connection.sql_errmsg = number, state, message
   local description = {
      connection = connection, query = sql,
      sql_errno = number, sql_state = state, sql_errmsg = message,
   }
   -- On a lost connection every statement fails: a restarted event would be restarted forever.
   local ignorable = kind ~= LOST and sysbench.hooks.sql_error_ignorable
   if kind == RESTART or type(ignorable) == "function" and ignorable(description) then
      description.errcode = sysbench.error.RESTART_EVENT
      error(description, 0)
   end
   error(describe(message, number, state, sql), 3)
end

-- What a statement without a result set returns: as in sysbench a null pointer, which is true and equals nil.
ffi.metatype("dbdyno_no_result", {
   __index = function(_, key)
      error("the statement returned no result set, which would have `" .. tostring(key) .. "`", 2)
   end,
   __tostring = function() return "<no sql_result>" end,
})
local NO_RESULT = ffi.cast("dbdyno_no_result *", nil)

local result = {}
function result.__index(rows, key)
   if key == "nfields" then
      return rows.kept ~= nil and calls.columns(context, rows.kept) or 0
   end
   return result[key]
end
result.__tostring = function() return "<sql_result>" end

function result:fetch_row()
   local kept = self.kept
   if kept == nil then
      if self.prepared then
         error("rows of prepared statements cannot be fetched: use connection:query()", 2)
      end
      return nil
   end
   local columns = calls.next_row(context, kept)
   if columns < 0 then
      if columns == -2 then
         error("rows can be fetched until the next statement", 2)
      end
      if self.fetched < self.nrows then
         error("more than 64 MiB of rows, which cannot be fetched", 2)
      end
      return nil
   end
   self.fetched = self.fetched + 1
   self.nfields = columns
   local row = {}
   for i = 1, columns do
      local value = calls.value(context, kept, i - 1, length)
      if length[0] >= 0 then
         row[i] = ffi.string(value, tonumber(length[0]))
      end
   end
   return row
end

function result:free()
   self.kept = nil
   return true
end

-- Parameters are structures, whose methods are known from their types: nothing else is read to set one.
local function parameter_type(name, set, set_rand_str)
   local methods = { set = set, set_rand_str = set_rand_str }
   return ffi.metatype(name, { __index = methods, __tostring = function() return "<sql_param>" end })
end

local function set_number(self, value)
   if value == nil then
      self.is_null[0] = 1
      return
   end
   self.is_null[0] = 0
   self.buffer[0] = value
end

local function no_random_text()
   error("set_rand_str() is for CHAR and VARCHAR", 2)
end

local int_parameter = parameter_type("dbdyno_int", set_number, no_random_text)
local double_parameter = parameter_type("dbdyno_double", set_number, no_random_text)
local text_parameter = parameter_type("dbdyno_text", function(self, value)
   if value == nil then
      self.is_null[0] = 1
      return
   end
   self.is_null[0] = 0
   if type(value) ~= "string" then value = tostring(value) end
   check_text(value)
   local size = #value
   if size > self.max_len then size = tonumber(self.max_len) end
   ffi.copy(self.buffer, value, size)
   self.data_len[0] = size
end, function(self, pattern)
   check_text(pattern)
   self.is_null[0] = 0
   local size = #pattern
   if size > self.max_len then size = tonumber(self.max_len) end
   calls.text(context, pattern, self.buffer, size)
   self.data_len[0] = size
end)

local statement = {}
statement.__index = statement
statement.__tostring = function() return "<sql_statement>" end

function statement:bind_create(kind, size)
   local created
   if kind == T.TINYINT or kind == T.SMALLINT or kind == T.INT or kind == T.BIGINT then
      created = int_parameter()
      created.type, created.max_len = T.BIGINT, 8
   elseif kind == T.FLOAT or kind == T.DOUBLE then
      created = double_parameter()
      created.type, created.max_len = T.DOUBLE, 8
   elseif kind == T.CHAR or kind == T.VARCHAR then
      if type(size) ~= "number" then
         error("bind_create() of CHAR and VARCHAR needs the maximum length", 2)
      end
      created = text_parameter(size)
      created.type, created.max_len = T.VARCHAR, size
   else
      error("bind_create() does not support type " .. tostring(kind), 2)
   end
   return created
end

-- The structure of a parameter, which a script has itself unless it is restricted.
local function structure_of(parameter) return parameter end

-- Parameters on their way to a statement, which copies them: one list, since events may bind theirs each time.
local bound, room = nil, 0

function statement:bind_param(...)
   local count = select("#", ...)
   if count < 1 then return nil end
   local given = { ... }
   if count > room then bound, room = ffi.new("dbdyno_parameter[?]", count), count end
   for i = 1, count do
      local one = structure_of(given[i])
      bound[i - 1].type = one.type
      bound[i - 1].buffer = one.buffer
      bound[i - 1].data_len = one.data_len
      bound[i - 1].max_len = one.max_len
      bound[i - 1].is_null = one.is_null
   end
   -- The buffers live as long as the statement.
   self.given = given
   if calls.bind(context, self.id, bound, count) ~= OK then fail(self.connection, self.sql) end
   return 0
end

function statement:execute()
   if self.id < 0 then error("the statement is closed", 2) end
   local count = call_execute(context, self.id)
   if count >= 0 then
      local rows = self.result
      rows.nrows = count
      return rows
   end
   if count == NO_ROWS then return NO_RESULT end
   fail(self.connection, self.sql)
end

function statement:close()
   if self.id >= 0 then
      calls.close(context, self.id)
      self.id = -1
   end
   return 0
end

function statement:next_result()
   return NO_RESULT
end

local connection = {}
connection.__index = connection
connection.__tostring = function() return "<sql_connection>" end

local function new_result()
   local rows = calls.row_count(context)
   return setmetatable({ nrows = rows, fetched = 0, kept = calls.result(context) }, result)
end

function connection:query(sql)
   sql = tostring(sql)
   check_text(sql)
   local outcome = calls.query(context, sql, #sql)
   if outcome == OK then return NO_RESULT end
   if outcome == ROWS then return new_result() end
   fail(self, sql)
end

function connection:query_row(sql)
   local rows = self:query(sql)
   if rows == nil or rows.nrows == 0 then return nil end
   local row = rows:fetch_row()
   return unpack(row, 1, rows.nfields)
end

function connection:prepare(sql)
   check_text(sql)
   local id = calls.prepare(context, sql, #sql)
   if id < 0 then fail(self, sql) end
   local rows = setmetatable({ nrows = 0, nfields = 0, prepared = true }, result)
   return setmetatable({ id = id, sql = sql, connection = self, result = rows }, statement)
end

function connection:bulk_insert_init(sql)
   check_text(sql)
   if calls.bulk_start(context, sql, #sql) > ROWS then fail(self, sql) end
   return true
end

-- Rows until code is compiled: a script that makes many rows is not in an endless loop without a statement.
local watched_rows = 10000
local trust

function connection:bulk_insert_next(row)
   check_text(row)
   if watched_rows > 0 then
      watched_rows = watched_rows - 1
      if watched_rows == 0 then trust() end
   end
   if calls.bulk_row(context, row, #row) > ROWS then fail(self, "a bulk insert") end
   return true
end

function connection:bulk_insert_done()
   if calls.bulk_end(context) > ROWS then fail(self, "a bulk insert") end
   return true
end

function connection:disconnect()
   self.connected = false
   return true
end

function connection:reconnect()
   error("reconnect() is not supported: dbdyno replaces lost connections itself", 2)
end

if settings.is_1_1 then
   function connection:more_results() return calls.has_more_results(context) ~= 0 end
   function connection:next_result()
      return calls.next_result(context) == ROWS and new_result() or NO_RESULT
   end
end

function connection:check_error(rows)
   return rows
end

-- Events of a thread until code is compiled, and how many it has asked for.
local WATCHED_EVENTS, asked = 3, 0

local the_connection
local driver = {}
driver.__index = driver
driver.__tostring = function() return "<sql_driver>" end

function driver:name() return settings.driver end

function driver:connect()
   if not settings.connects then
      error("connect() is not possible here: connect in thread_init(), prepare() or init()", 2)
   end
   -- Commands may connect again: all objects send to one connection.
   if the_connection ~= nil and not settings.is_command then
      if the_connection.connected then
         error("a second connection of a thread is not supported", 2)
      elseif asked > 0 then
         error("connect() in event() is not supported: the connection of thread_init() stays", 2)
      end
   end
   the_connection = setmetatable(
      { connected = true, error = 0, sql_errno = 0, sql_state = "", sql_errmsg = "", driver = self },
      connection)
   return the_connection
end

local the_driver = setmetatable({ sname = settings.driver }, driver)

function sysbench.sql.driver(name)
   if name ~= nil and name ~= settings.driver then
      error(format("sysbench.sql.driver(%q): the candidate's driver is %q", tostring(name),
                   settings.driver), 2)
   end
   return the_driver
end

-- Options

local cmdline = sysbench.cmdline
cmdline.ARG_NULL, cmdline.ARG_BOOL, cmdline.ARG_INT, cmdline.ARG_SIZE = 0, 1, 2, 3
cmdline.ARG_DOUBLE, cmdline.ARG_STRING, cmdline.ARG_LIST, cmdline.ARG_FILE = 4, 5, 6, 7
cmdline.ARG_MAX = 8
cmdline.PARALLEL_COMMAND = true
cmdline.command = settings.command
cmdline.script_path = settings.path
cmdline.argv = { [0] = "sysbench", settings.path, settings.command }

local TYPE_OF_DEFAULT = {
   boolean = cmdline.ARG_BOOL, number = cmdline.ARG_DOUBLE,
   string = cmdline.ARG_STRING, table = cmdline.ARG_LIST,
}

-- The options of the script: a table by name, each with `kind` and `text`, the default.
local function declared_options()
   local declared = {}
   local options = cmdline.options
   if options == nil then return declared end
   if type(options) ~= "table" then
      error("sysbench.cmdline.options is not a table", 0)
   end
   for name, definition in pairs(options) do
      if type(name) ~= "string" or type(definition) ~= "table" then
         error("sysbench.cmdline.options: every option is NAME = {DESCRIPTION, DEFAULT, TYPE}", 0)
      end
      local default = definition[2]
      local kind = definition[3]
      if kind == nil then
         kind = default == nil and cmdline.ARG_STRING or TYPE_OF_DEFAULT[type(default)]
      end
      if kind == nil then
         error("sysbench.cmdline.options." .. name .. " has no type", 0)
      end
      if type(default) == "table" then
         default = concat(default, ",")
      elseif type(default) == "boolean" then
         default = default and "on" or "off"
      elseif default ~= nil then
         default = tostring(default)
      end
      declared[(name:gsub("-", "_"))] = { kind = kind, text = default, check = definition[4] }
   end
   return declared
end

local SIZES = { k = 1024, m = 1024 ^ 2, g = 1024 ^ 3, t = 1024 ^ 4 }

-- The value of a text; `nil` and the reason if it has none.
local function value_of(kind, text)
   if kind == cmdline.ARG_BOOL then
      if text == nil then return false end
      local word = text:lower()
      if word == "on" or word == "true" or word == "1" or word == "yes" or word == "" then
         return true
      elseif word == "off" or word == "false" or word == "0" or word == "no" then
         return false
      end
      return nil, "true or false"
   elseif kind == cmdline.ARG_LIST then
      local list = {}
      for word in (text or ""):gmatch("[^,]+") do
         list[#list + 1] = word:match("^%s*(.-)%s*$")
      end
      return list
   elseif kind == cmdline.ARG_INT or kind == cmdline.ARG_DOUBLE then
      local number = tonumber(text ~= "" and text or "0")
      if number == nil then return nil, "a number" end
      if kind == cmdline.ARG_INT then
         return number < 0 and math.ceil(number) or math.floor(number)
      end
      return number
   elseif kind == cmdline.ARG_SIZE then
      local digits, unit = (text ~= "" and text or "0"):match("^%s*([%d.]+)%s*([kKmMgGtT]?)$")
      local number = tonumber(digits or "")
      if number == nil then return nil, "a number with K, M, G or T" end
      return number * (SIZES[unit:lower()] or 1)
   end
   return text or ""
end

local function read_options()
   local opt = sysbench.opt
   for name, value in pairs(settings.general) do opt[name] = value end
   local declared = declared_options()
   for name, option in pairs(declared) do
      local text = settings.options[name]
      if name == "mysql_storage_engine" and settings.storage_engine ~= nil then
         text = settings.storage_engine
      end
      if text == nil then text = option.text end
      local value, expected = value_of(option.kind, text)
      if expected ~= nil then
         error(format("option %s: `%s` is not %s", name, text, expected), 0)
      end
      if type(option.check) == "function" and text ~= nil and not option.check(name, text) then
         error(format("option %s: the script does not accept `%s`", name, text), 0)
      end
      opt[name] = value
   end
   if cmdline.options == nil and not settings.is_1_1 then
      -- Scripts of sysbench 0.5 declare nothing and find their options as globals.
      for name, value in pairs(settings.general) do
         if _G[name] == nil then _G[name] = value end
      end
      for name, text in pairs(settings.options) do
         if settings.general[name] == nil then opt[name] = text end
         _G[name] = opt[name]
      end
   end
end

function cmdline.command_defined(name)
   local commands = cmdline.commands
   return type(commands) == "table" and commands[name] ~= nil and commands[name][1] ~= nil
end

function cmdline.command_parallel(name)
   return cmdline.command_defined(name)
      and cmdline.commands[name][2] == cmdline.PARALLEL_COMMAND
end

function cmdline.call_command(name)
   if not cmdline.command_defined(name) then return false end
   local done = cmdline.commands[name][1]()
   return done == nil or done ~= false
end

-- Limits: while a script is new, code is interpreted and its time is checked.

local asked_time = false

local function check_time()
   if calls.overdue(context) == 0 then return end
   -- The line of the script, also within a function of this file that it calls.
   local level = 2
   local frame = debug.getinfo(level, "S")
   while frame ~= nil and (frame.source == "=dbdyno" or frame.what == "C") do
      level = level + 1
      frame = debug.getinfo(level, "S")
   end
   local reason = asked_time and " os.time() advances only while the script sleeps" or ""
   error("still running without a statement: an endless loop?" .. reason, level)
end

local function watch()
   jit.off()
   debug.sethook(check_time, "", 100000)
end

-- A client runs few events in the warm-up of a slice, and each client has code of its own to compile: it is compiled
-- after 5 executions instead of 56, and a branch after 2 instead of 10. There is room for the more traces.
require("jit.opt").start("hotloop=5", "hotexit=2", "maxtrace=4000", "maxmcode=4096")

function trust()
   debug.sethook()
   jit.on()
end

-- C functions that scripts declare themselves

-- Returns the result, or 0. Its callers do so by tail calls: the error is at the line of the script.
local function sleep(seconds, result)
   if calls.sleep(context, tonumber(seconds)) ~= 0 then
      error("sleeping for 10 minutes without a statement: does it wait for what never happens?", 2)
   end
   return result or 0
end

-- The seconds in a structure of seconds and their fraction, of which this many are a second.
local function seconds_of(time, fraction)
   local both = ffi.cast("dbdyno_time *", time)
   return tonumber(both.seconds) + tonumber(both.fraction) / fraction
end

local C = {
   sb_event_start = function() end,
   sb_event_stop = function() end,
   sb_more_events = function()
      if asked <= WATCHED_EVENTS then
         asked = asked + 1
         if asked > WATCHED_EVENTS then trust() end
      end
      local more = call_more_events(context)
      if more == 2 then math.randomseed(calls.lua_seed(context)) end
      return more ~= 0
   end,
   sb_counter_inc = function() end,
   sb_counter_add = function() end,
   sb_counter_val = function() return 0 end,
   sb_rand_uniform_uint64 = rand.uniform_uint64,
   sb_rand_uniform_double = rand.uniform_double,
   sb_rand_default = rand.default,
   sb_rand_uniform = rand.uniform,
   sb_rand_gaussian = rand.gaussian,
   sb_rand_special = rand.special,
   sb_rand_zipfian = rand.zipfian,
   sb_rand_pareto = rand.pareto,
   sb_rand_unique = rand.unique,
   sb_rand_str = function(pattern, buffer) calls.text(context, pattern, buffer, #ffi.string(pattern)) end,
   SB_CNT_OTHER = 0, SB_CNT_READ = 1, SB_CNT_WRITE = 2, SB_CNT_TRX = 3, SB_CNT_ERROR = 4,
   SB_CNT_RECONNECT = 5, SB_CNT_MAX = 6,
   -- A client that sleeps lets others run.
   usleep = function(microseconds) return sleep(tonumber(microseconds) / 1e6) end,
   sleep = function(seconds) return sleep(seconds) end,
   nanosleep = function(time) return sleep(seconds_of(time, 1e9)) end,
   clock_nanosleep = function(clock, flags, time, left)
      if flags ~= 0 then return ffi.C.clock_nanosleep(clock, flags, time, left) end
      return sleep(seconds_of(time, 1e9))
   end,
   poll = function(files, count, milliseconds)
      if count > 0 or milliseconds < 0 then return ffi.C.poll(files, count, milliseconds) end
      return sleep(tonumber(milliseconds) / 1e3)
   end,
   select = function(count, reads, writes, others, time)
      if count > 0 or time == nil then return ffi.C.select(count, reads, writes, others, time) end
      return sleep(seconds_of(time, 1e6))
   end,
}
if settings.is_1_1 then
   C.SB_CNT_BYTES_READ, C.SB_CNT_BYTES_WRITTEN, C.SB_CNT_MAX = 6, 7, 8
end
setmetatable(C, { __index = ffi.C })

pcall(ffi.cdef, [[
typedef enum {
  SB_CNT_OTHER, SB_CNT_READ, SB_CNT_WRITE, SB_CNT_TRX, SB_CNT_ERROR, SB_CNT_RECONNECT, SB_CNT_MAX
} sb_counter_type;
]])

local script_ffi = setmetatable({ C = C }, { __index = ffi })
_G.ffi = script_ffi
package.loaded.ffi = script_ffi

-- Names of sysbench 0.5, which 1.1 has no longer

if not settings.is_1_1 then
   _G.thread_id = settings.client
   _G.test = settings.path
   _G.db_driver = settings.driver
   _G.mysql_table_engine = settings.storage_engine or "innodb"
   _G.myisam_max_rows = 1000000
   _G.sb_rand = rand.default
   _G.sb_rand_str = rand.string
   _G.sb_rand_uniform = rand.uniform
   _G.sb_rand_gaussian = rand.gaussian
   _G.sb_rand_special = rand.special

   function sb_rnd()
      return tonumber(rand.uniform_uint64() % 4294967296)
   end

   function sb_rand_uniq(low, high)
      low, high = low or 0, high or 4294967295
      local value
      repeat value = rand.unique() until value >= low and value <= high
      return value
   end

   local function old_connection()
      if the_connection == nil or not the_connection.connected then
         the_driver:connect()
      end
      return the_connection
   end

   local db = { DB_ERROR_NONE = 0, DB_ERROR_RESTART_TRANSACTION = 1, DB_ERROR_FAILED = 2 }
   sysbench.db = db

   function db.connect() old_connection() end
   function db.disconnect() if the_connection then the_connection:disconnect() end end
   function db.query(sql) return old_connection():query(sql) end
   function db.bulk_insert_init(sql) return old_connection():bulk_insert_init(sql) end
   function db.bulk_insert_next(row) return old_connection():bulk_insert_next(row) end
   function db.bulk_insert_done() return old_connection():bulk_insert_done() end
   function db.prepare(sql) return old_connection():prepare(sql) end
   -- Parameters of 0.5 are a table of values, which is read when the statement is executed.
   local function old_parameter(prepared, value)
      if type(value) == "number" then return prepared:bind_create(T.BIGINT) end
      return prepared:bind_create(T.VARCHAR, math.max(#tostring(value), 255))
   end

   function db.bind_param(prepared, values)
      local bound = {}
      for i, value in ipairs(values) do bound[i] = old_parameter(prepared, value) end
      prepared:bind_param(unpack(bound))
      prepared.values = values
   end
   function db.execute(prepared)
      local values, bound = prepared.values, prepared.given
      for i = 1, values and #bound or 0 do
         local value, one = values[i], bound[i]
         if one.type == T.VARCHAR and value ~= nil and #tostring(value) > one.max_len then
            bound[i] = old_parameter(prepared, tostring(value))
            prepared:bind_param(unpack(bound))
         end
         bound[i]:set(value)
      end
      return prepared:execute()
   end
   function db.bind_result() end
   function db.store_results(rows) return rows end
   function db.free_results(rows) if rows ~= nil then rows:free() end end
   function db.close(prepared) prepared:close() end

   for name, value in pairs(db) do
      _G[type(value) == "function" and "db_" .. name or name] = value
   end
end

-- Files that are stored with the script, by their names relative to its directory

local script_directory = settings.path:match(".*/") or ""
local load, real_loadfile = load, loadfile

function loadfile(file, ...)
   local name = tostring(file)
   if name:sub(1, #script_directory) == script_directory then
      name = name:sub(#script_directory + 1)
   end
   local stored = settings.files[file] and file or name:gsub("^%./", "")
   if settings.files[stored] == nil then return real_loadfile(file, ...) end
   return load(settings.files[stored], "@" .. stored, ...)
end

function dofile(file)
   local chunk, problem = loadfile(file)
   if chunk == nil then error(problem, 0) end
   return chunk()
end

-- Output and time

local function print_text(text)
   calls.print(context, text, #text)
end

function print(...)
   local words = {}
   for i = 1, select("#", ...) do words[i] = tostring((select(i, ...))) end
   print_text(concat(words, "\t"))
end

local output = {}
function output:write(...)
   local text = concat({ ... })
   if #text > 0 then print_text(text) end
   return self
end
function output:flush() return self end
function output:setvbuf() return true end
function output:close() return true end
io.stdout, io.stderr = output, output

local default_output = output
function io.output(file)
   if type(file) == "string" then
      local opened, problem = io.open(file, "w")
      if opened == nil then error(problem, 2) end
      file = opened
   end
   default_output = file or default_output
   return default_output
end
function io.write(...) return default_output:write(...) end
function io.close(file) return (file or default_output):close() end

function os.exit(code)
   error(format("the script called os.exit(%s)", code == nil and "" or tostring(code)), 2)
end

local SLEEP_UNITS = { [""] = 1, s = 1, m = 60, h = 3600, d = 86400 }

-- The seconds for which a command only sleeps.
local function sleep_of(command)
   local time, unit = tostring(command):match("^%s*[%w/]*sleep%s+([%d.]+)([smhd]?)%s*$")
   return tonumber(time) and tonumber(time) * SLEEP_UNITS[unit]
end

local real_execute, real_popen, real_open = os.execute, io.popen, io.open
function os.execute(command)
   local seconds = sleep_of(command)
   if seconds then return sleep(seconds) end
   if settings.restricted then error("os.execute" .. NEEDS_RUN, 2) end
   if settings.recorded then return 0 end
   local status = real_execute(command)
   calls.ran_command(context)
   return status
end

function io.popen(command, mode)
   local seconds = sleep_of(command)
   if seconds then return sleep(seconds, real_open("/dev/null", mode)) end
   if settings.restricted then error("io.popen" .. NEEDS_RUN, 2) end
   if settings.recorded then return real_open("/dev/null", mode) end
   return real_popen(command, mode)
end

local real_time, real_date = os.time, os.date
function os.time(given)
   if given ~= nil then return real_time(given) end
   asked_time = true
   return math.floor(calls.time(context))
end
function os.date(pattern, time)
   return real_date(pattern or "%c", time or calls.time(context))
end

function sysbench.histogram.new()
   return { update = function() end, print = function() end }
end
function sysbench.report_default() end
sysbench.report_csv, sysbench.report_json = sysbench.report_default, sysbench.report_default

-- Errors that are tables are descriptions of SQL errors.
local function message_of(problem)
   if type(problem) == "table" and problem.sql_errmsg ~= nil then
      return describe(problem.sql_errmsg, problem.sql_errno, problem.sql_state,
                      tostring(problem.query))
   end
   return tostring(problem)
end

-- How often an event is restarted at most. No deadlock occurs so often in a row: the same error would come again without end.
local MOST_RESTARTS = 10000

function thread_run(tid)
   while C.sb_more_events(tid) do
      local finished, value
      local restarts = 0
      repeat
         finished, value = pcall(event, tid)
         if not finished then
            if type(value) ~= "table" or value.errcode ~= sysbench.error.RESTART_EVENT then
               error(value, 0)
            end
            calls.restarted(context)
            restarts = restarts + 1
            if restarts == MOST_RESTARTS then
               error("an event was restarted " .. restarts .. " times in a row: " .. message_of(value), 0)
            end
            local hook = sysbench.hooks.before_restart_event
            if hook then hook(value) end
         end
      until finished
      if value then break end
   end
end

local function guarded(work)
   watch()
   local finished, problem = xpcall(work, message_of)
   trust()
   if not finished then error(problem, 0) end
   return problem
end

local function refused(name)
   return function() error(name .. NEEDS_RUN, 2) end
end

-- A script that is only recorded runs no commands. In place of the files that it writes, renames or removes are files
-- without a name, which the same recording reads.

local READ, REMOVE, REPLACE, CHANGE = 0, 1, 2, 3
local UNCHANGED = -2

local function keep_files()
   local real_lines, real_input, compile_file = io.lines, io.input, real_loadfile

   -- The name of what is in place of a file after this access.
   local function place(name, access)
      name = tostring(name)
      local file = calls.file(context, name, #name, access)
      return file == UNCHANGED and name or "/proc/self/fd/" .. file
   end

   function io.open(name, mode)
      mode = mode or "r"
      if mode:find("r") then
         local file, problem, code = real_open(place(name, READ))
         if file == nil or not mode:find("+", 1, true) then return file, problem, code end
         file:close()
      end
      return real_open(place(name, mode:find("w") and REPLACE or CHANGE), mode)
   end
   function io.lines(name, ...) return real_lines(name and place(name, READ), ...) end
   function io.input(file) return real_input(type(file) == "string" and place(file, READ) or file) end
   function real_loadfile(file, ...) return compile_file(file and place(file, READ), ...) end

   function os.remove(name)
      local file, problem, code = io.open(name)
      if file == nil then return nil, problem, code end
      file:close()
      place(name, REMOVE)
      return true
   end
   function os.rename(from, to)
      local file, problem, code = io.open(from)
      if file == nil then return nil, problem, code end
      local copy = io.open(to, "w")
      copy:write(file:read("*a"))
      copy:close()
      file:close()
      return os.remove(from)
   end
   function os.tmpname()
      local number, name = 0, nil
      repeat
         number = number + 1
         name = "/tmp/lua_" .. number
      until io.open(name) == nil
      io.open(name, "w"):close()
      return name
   end

   -- Any C function may act, also under another name: those of the table above are called, and of others these, which
   -- only compute or read. Libraries are not loaded, which may execute their code. Constants belong to no library.
   local called = {}
   for name in ([[
      abs atof atoi atol calloc clock clock_gettime drand48 free getenv getpid getppid gettimeofday getuid gmtime localtime
      lrand48 malloc memchr memcmp memcpy memmove memset mktime rand rand_r random realloc snprintf sprintf srand srand48
      srandom strcmp strdup strftime strlen strncmp strtod strtol strtoul time
   ]]):gmatch("%S+") do called[name] = true end

   local function without_acts(functions, title, others)
      return setmetatable(functions, { __index = function(_, name)
         if others[name] then return ffi.C[name] end
         local found, value = pcall(function() return ffi.C[name] end)
         if found and type(value) == "number" then return value end
         return refused(title .. "." .. tostring(name))
      end })
   end

   without_acts(C, "ffi.C", called)
   function script_ffi.load(name) return without_acts({}, "ffi.load(" .. tostring(name) .. ")", {}) end
   package.loadlib = refused("package.loadlib")
end

if settings.recorded then keep_files() end

-- A restricted script has nothing with which it could execute or change anything outside of its state: no commands, no
-- files but for reading, no memory and code of this process. What is not text could be such code, too.

local function restrict()
   -- A library with these functions; the others are refused.
   local function stub(name, functions)
      return setmetatable(functions, {
         __index = function(_, key) return refused(name .. "." .. tostring(key)) end,
         __metatable = false,
      })
   end
   local function nothing() end

   for _, name in ipairs({ "remove", "rename", "tmpname", "setlocale" }) do
      os[name] = refused("os." .. name)
   end
   for _, name in ipairs({ "output", "tmpfile" }) do
      io[name] = refused("io." .. name)
   end
   function io.open(file, mode)
      if mode ~= nil and mode ~= "r" and mode ~= "rb" then error("io.open" .. NEEDS_RUN, 2) end
      return real_open(file, mode)
   end

   local compile, compile_file = load, real_loadfile
   function load(chunk, name) return compile(chunk, name, "t") end
   function real_loadfile(file) return compile_file(file, "t") end
   _G.load, _G.loadstring = load, load

   -- Modules are those that are stored with the script, and text in its directory and in those of sysbench.
   local directories = { script_directory, "./", "/usr/local/share/sysbench/", "/usr/share/sysbench/" }
   local stored, replace = package.loaders[1], string.gsub
   local function search(name)
      for _, directory in ipairs(directories) do
         for _, tail in ipairs({ ".lua", "/init.lua" }) do
            local chunk = compile_file(directory .. replace(name, "%.", "/") .. tail, "t")
            if chunk ~= nil then return chunk end
         end
      end
      error("require of `" .. name .. "`, which is not in the script's directory, is not possible here: the script needs a run", 3)
   end
   package.loaders = { stored, search }
   package.loadlib = refused("package.loadlib")

   local traceback = debug.traceback
   local safe = {
      debug = stub("debug", { traceback = traceback }),
      jit = stub("jit", {
         on = nothing, off = nothing, flush = nothing, status = function() return false end,
         version = jit.version, version_num = jit.version_num, os = jit.os, arch = jit.arch,
      }),
      ["jit.opt"] = stub("jit.opt", { start = nothing }),
      ["jit.util"] = stub("jit.util", {}),
      ["jit.profile"] = stub("jit.profile", {}),
      ["string.buffer"] = stub("string.buffer", {}),
      ffi = stub("ffi", { C = stub("ffi.C", C), cdef = nothing, os = ffi.os, arch = ffi.arch }),
   }
   local poll = C.poll
   function C.poll(files, count, milliseconds)
      if count ~= 0 or tonumber(milliseconds) < 0 then error("ffi.C.poll" .. NEEDS_RUN, 2) end
      return poll(nil, 0, milliseconds)
   end
   for _, name in ipairs({ "select", "nanosleep", "clock_nanosleep", "sb_rand_str" }) do
      C[name] = refused("ffi.C." .. name)
   end
   for name, library in pairs(safe) do
      package.loaded[name], package.preload[name] = library, nil
   end
   _G.debug, _G.jit, _G.ffi = safe.debug, safe.jit, safe.ffi

   -- Parameters without their structures, which are kept: a statement refers to their memory.
   local structures = {}
   local create = statement.bind_create
   local methods = {}
   function methods:set(value) structures[self]:set(value) end
   function methods:set_rand_str(pattern) structures[self]:set_rand_str(pattern) end
   function statement:bind_create(kind, size)
      local created = create(self, kind, size)
      local shown = setmetatable({ type = created.type, max_len = tonumber(created.max_len) }, {
         __index = methods, __metatable = false, __tostring = function() return "<sql_param>" end,
      })
      structures[shown] = created
      return shown
   end
   function structure_of(parameter)
      return structures[parameter] or error("bind_param() needs parameters of bind_create()", 3)
   end
end

if settings.restricted then restrict() end

local main = {}

-- Runs the top level of the script.
function main.load(chunk)
   guarded(chunk)
end

function main.options()
   read_options()
end

function main.declared()
   return declared_options()
end

function main.thread()
   local tid = settings.client
   guarded(function()
      watch()
      if type(event) ~= "function" then error("the script has no function event()", 0) end
      if type(thread_init) == "function" then thread_init(tid) end
      thread_run(tid)
      if type(thread_done) == "function" then thread_done(tid) end
   end)
end

-- Runs a command of the script, such as `prepare`, or one of the functions `init` and `done`. False if
-- there is none.
function main.call(name)
   return guarded(function()
      if cmdline.command_defined(name) then
         if not cmdline.call_command(name) then
            error("the script's command " .. name .. " failed", 0)
         end
         return true
      end
      local called = _G[name]
      if type(called) ~= "function" then return false end
      called()
      return true
   end)
end

function main.is_parallel(name)
   return cmdline.command_parallel(name)
end

function main.has(name)
   return cmdline.command_defined(name) or type(_G[name]) == "function"
end

return main
