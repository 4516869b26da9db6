module dray/dataplane/upf/tests/go-gtp

go 1.23.0

require github.com/wmnsk/go-gtp v0.8.12
