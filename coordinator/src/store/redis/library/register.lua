-- Registers every function under its own name and that of the library.
for i = 1, #functions do
  local defined = functions[i]
  redis.register_function({
    function_name = LIBRARY .. '_' .. defined[1],
    flags = defined[2],
    callback = defined[3],
  })
end
