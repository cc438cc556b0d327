-- Statements of dbdyno's microbenchmarks that no bundled sysbench script has, prepared once per
-- connection, on the same table.

sysbench.cmdline.options = {
   tables = {"Tables: one", 1},
   table_size = {"Rows of sbtest1", 100000},
   work = {"points, range, scan or insert", "points"},
   columns = {"Columns that points and range read", "c"},
   by = {"Column in the condition: id or k", "id"},
   count = {"Keys of points, width of range", 100},
}

local kind = sysbench.sql.type

local function key()
   return sysbench.rand.default(1, sysbench.opt.table_size)
end

-- One function per kind of work: prepares, and returns a function that draws the next parameters.
local prepare = {}

local function statement(sql, ...)
   stmt = con:prepare(sql)
   local params = {}
   for i, parameter in ipairs({...}) do
      params[i] = stmt:bind_create(unpack(parameter))
   end
   if #params > 0 then
      stmt:bind_param(unpack(params))
   end
   return params
end

function prepare.points()
   local marks, kinds = {}, {}
   for i = 1, sysbench.opt.count do
      marks[i] = "?"
      kinds[i] = {kind.INT}
   end
   local params = statement(
      string.format("SELECT %s FROM sbtest1 WHERE %s IN (%s)", sysbench.opt.columns,
                    sysbench.opt.by, table.concat(marks, ", ")),
      unpack(kinds))
   return function()
      for i = 1, #params do
         params[i]:set(key())
      end
   end
end

function prepare.range()
   local params = statement(
      string.format("SELECT %s FROM sbtest1 WHERE %s BETWEEN ? AND ?", sysbench.opt.columns,
                    sysbench.opt.by),
      {kind.INT}, {kind.INT})
   return function()
      local low = key()
      params[1]:set(low)
      params[2]:set(low + sysbench.opt.count)
   end
end

function prepare.scan()
   statement("SELECT * FROM sbtest1 WHERE LENGTH(c) < 0")
   return function() end
end

function prepare.insert()
   local digits = string.rep("#", 11)
   local pad = digits .. string.rep("-" .. digits, 4)
   local c = digits .. string.rep("-" .. digits, 9)
   local params = statement("INSERT INTO sbtest1 (k, c, pad) VALUES (?, ?, ?)",
                            {kind.INT}, {kind.CHAR, 120}, {kind.CHAR, 60})
   return function()
      params[1]:set(key())
      params[2]:set_rand_str(c)
      params[3]:set_rand_str(pad)
   end
end

function thread_init()
   con = sysbench.sql.driver():connect()
   draw = prepare[sysbench.opt.work]()
end

function thread_done()
   stmt:close()
   con:disconnect()
end

function event()
   draw()
   stmt:execute()
end
