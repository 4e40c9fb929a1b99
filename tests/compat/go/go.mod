module compat

go 1.20

require (
	github.com/google/uuid v1.3.0
	github.com/tarantool/go-tarantool/v2 v2.4.2
)

require (
	github.com/tarantool/go-iproto v1.1.0 // indirect
	github.com/vmihailenco/msgpack/v5 v5.4.1 // indirect
	github.com/vmihailenco/tagparser/v2 v2.0.0 // indirect
)
