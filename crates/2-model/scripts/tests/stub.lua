-- Prints statements with the values of their parameters instead of sending them.
local function show(sql) print("SQL " .. sql:gsub("\n", " ")) end
local none = { nrows = 0, nfields = 0, fetch_row = function() end, free = function() end }

local parameter = {}
parameter.__index = parameter
function parameter:set(value)
   if type(value) == "number" and not self.text then
      -- As an integer, like the buffer of a real parameter.
      value = tostring(ffi.cast("int64_t", value)):gsub("LL", "")
   end
   if self.text then value = "'" .. tostring(value):sub(1, self.size) .. "'" end
   self.value = value
end
function parameter:set_rand_str(pattern)
   self.value = "'" .. sysbench.rand.string(pattern) .. "'"
end

local function prepare(_, sql)
   local statement = { sql = sql, given = {} }
   function statement:bind_create(kind, size)
      local text = kind == sysbench.sql.type.CHAR or kind == sysbench.sql.type.VARCHAR
      return setmetatable({ text = text, size = size }, parameter)
   end
   function statement:bind_param(...) self.given = { ... } end
   function statement:execute()
      local i = 0
      show((self.sql:gsub("%?", function()
         i = i + 1
         return self.given[i].value
      end)))
      return none
   end
   function statement:close() end
   return statement
end

local connection = { prepare = prepare, disconnect = function() end }
function connection:query(sql) show(sql) return none end

function sysbench.sql.driver()
   return {
      name = function() return "mysql" end,
      connect = function() return connection end,
   }
end
