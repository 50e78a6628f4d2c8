module stepset.test/cluster/pause

go 1.26
