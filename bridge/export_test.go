package bridge

// Open to the tests, of no use to users.
var (
	UpdatesVariable = updatingOps.MatchString
	CPUQuotaIn      = cpuQuota
	ConfigProto     = Config.proto
)
