module tfcluster/pause

go 1.25.0
